package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/reason"
)

// What is wrong with an argument is said without the library's calls and options.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"redlock: invalid configuration: TryLock: the resource is empty":                "the resource is empty",
		"redlock: lock \"k\": no quorum, context deadline exceeded: granted by 1":       "lock \"k\": no quorum, and the time is over: granted by 1",
		"redlock: invalid configuration: several: Lock: resource \"a~1\" is one":        "resource \"a~1\" is one",
		"redlock: invalid configuration: WithTTL(1ms): must be at least 50ms":           "--ttl 1ms: must be at least 50ms",
		"redlock: invalid configuration: WithMasterTimeout(-1s): must be positive":      "--master-timeout -1s: must be positive",
		"redlock: invalid configuration: WithKeyPrefix(\"k\"): must be short":           "--prefix \"k\": must be short",
		"resource \"s~1\" is one of several, for any of which package semaphore waits":  "resource \"s~1\" is one of several, for any of which --permits waits",
		"redlock: invalid configuration: master \"x\": has no port":                     "master \"x\": has no port",
		"redlock: check: no quorum\nredlock: check: no quorum":                          "check: no quorum; check: no quorum",
		"key a: redlock: lock \"a\": not acquired\nsecond line":                         "key a: lock \"a\": not acquired; second line",
		"redlock: invalid configuration: Extend: the Handle is zero: it names no lease": "the Handle is zero: it names no lease",
	} {
		if got := oneLine(errors.New(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// A server that is listed under two names is a mistake in --masters, and no lock of another holder. Whether a
// quorum of the addresses has said yes before that is noticed depends on when they answer.
func TestOneServerTwice(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("%w, %w", redlock.ErrNotAcquired, reason.SameServer),
		fmt.Errorf("%w, %w, %w", redlock.ErrNotAcquired, redlock.ErrNoQuorum, reason.SameServer),
	} {
		if got := exitCode(new(connection).withoutQuorum(err)); !isNoQuorum(err) || got != exitConfig {
			t.Errorf("%v: got code %d, and that the masters are the reason: %t; want %d, true", err, got, isNoQuorum(err), exitConfig)
		}
	}
	if err := fmt.Errorf("%w, %w", redlock.ErrNotAcquired, redlock.ErrTaken); isNoQuorum(err) {
		t.Errorf("%v: got that the masters are the reason, want another holder", err)
	}
}

// A master is asked in the other protocol only if it has hung up: one that hangs would not answer in that protocol
// either, and one that refuses speaks the right one.
func TestTheOtherProtocolIsTried(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{{io.EOF, true}, {os.ErrDeadlineExceeded, false}, {redlock.ErrTaken, false}, {errors.New("OOM command not allowed"), false}} {
		asked := make(chan bool, 1)
		server := httptest.NewUnstartedServer(nil)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				asked <- true
			}
		}
		server.StartTLS()
		addr := server.Listener.Addr().String()
		c := connection{asked: map[string]*redis.Options{addr: {Network: "tcp", Addr: addr}}}
		if hint := c.mistake(addr, test.err); (hint != "") != test.want || len(asked) > 0 != test.want {
			t.Errorf("%v: got the hint %q, and that the master was asked: %t; want %t", test.err, hint, len(asked) > 0, test.want)
		}
		server.Close()
	}
}
