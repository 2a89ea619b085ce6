package servers_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// hangUp is a server that is no Redis: it reads from each connection up to a text, if there is one,
// writes a line, and closes the connection.
func hangUp(t testing.TB, at, line string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	locktest.Must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			for in := bufio.NewScanner(conn); at != "" && in.Scan() && in.Text() != at; {
			}
			_, _ = conn.Write([]byte(line))
			_ = conn.Close()
		}
	}()
	return ln.Addr().String()
}

// The error of a master that refuses the connection has the words of the server, or the command at
// which it closed, and Check has a hint what that may be.
func TestServerRefusesTheConnection(outer *testing.T) {
	t := redistest.Timed(outer)
	ca := newAuthority(t)
	redistest.Server(t)
	plain := redistest.Masters(t, 1, "--requirepass", "secret")[0].Addr()
	full := redistest.Masters(t, 1)[0].Addr()
	occupant := redistest.Client(t, full)
	locktest.Must(t, occupant.ConfigSet(t.Context(), "maxclients", "1").Err())
	_, withTLS := ca.master("--tls-auth-clients", "yes")
	const protected = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. " +
		"In this mode connections are only accepted from the loopback interface.\r\n"
	is := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	for _, test := range []struct {
		name       string
		opt        redis.Options
		says, hint string
		matches    func(error) bool // nil for any error
	}{
		{"full", redis.Options{Addr: full}, "max number of clients reached", "maxclients", nil},
		{"full, with a password", redis.Options{Addr: full, Password: "secret", DB: 3}, "max number of clients reached", "maxclients", nil},
		{"protected mode (no real server: loopback is exempt)", redis.Options{Addr: hangUp(t, "", protected)}, "protected mode is enabled", "protected-mode no", nil},
		{"protected mode, with a password (no real server)", redis.Options{Addr: hangUp(t, "", protected), Password: "secret"}, "protected mode is enabled", "protected-mode no", nil},
		{"a proxy without TIME (no real server)", redis.Options{Addr: hangUp(t, "time", "")}, "closed the new connection at TIME: ", "a proxy", nil},
		{"a TLS port", redis.Options{Addr: withTLS}, "closed the new connection at TIME: ", "rediss://", nil},
		{"a port without TLS", redis.Options{Addr: plain, TLSConfig: &tls.Config{RootCAs: ca.pool()}}, "", "", nil},
		{"a TLS port that answers late (no real server)", redis.Options{Addr: silent(t), TLSConfig: &tls.Config{}}, "timeout", "", nil},
		{"a proxy that expects no TLS (no real server)", redis.Options{Addr: hangUp(t, "", ""), TLSConfig: &tls.Config{}}, "closed the new connection at the TLS handshake: ", "maxclients", nil},
		{"another authority", redis.Options{Addr: withTLS, TLSConfig: &tls.Config{}}, "x509", "compare the certificates", is(new(x509.UnknownAuthorityError))},
		{"no client certificate", redis.Options{Addr: withTLS, TLSConfig: &tls.Config{RootCAs: ca.pool()}}, "certificate required", "compare the certificates", is(new(*net.OpError))},
		{"no password", redis.Options{Addr: plain}, "NOAUTH", "ACL line", is(new(redis.Error))},
		{"a wrong password", redis.Options{Addr: plain, Password: "x"}, "WRONGPASS", "ACL line", is(new(redis.Error))},
		{"a user without a password", redis.Options{Addr: plain, Username: "default"}, "WRONGPASS", "ACL line", is(new(redis.Error))},
		{"no such database", redis.Options{Addr: plain, Password: "secret", DB: 99}, "DB index is out of range", "", is(new(redis.Error))},
	} {
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			l, err := redlock.NewFromOptions([]*redis.Options{&test.opt}, redlock.WithLogger(nil))
			locktest.Must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			for began := time.Now(); ; { // a first call may return before the handshake ends
				_, err = l.TryLock(t.Context(), "r")
				if strings.Contains(err.Error(), test.says) && (test.matches == nil || test.matches(err)) {
					break
				}
				if time.Since(began) > 10*time.Second {
					t.Fatalf("TryLock: got %v, want %q in it", err, test.says)
				}
			}
			report, err := admin.Check(t.Context(), l)
			if f := report.Masters[0].Findings[0]; err == nil || !strings.Contains(f.Text, test.says) || !strings.Contains(f.Hint, test.hint) || (test.hint == "") != (f.Hint == "") {
				t.Errorf("Check: got %v and %+v, want %q with the hint %q", err, f, test.says, test.hint)
			}
		})
	}
}

// A server with room for the connection of requests alone says why it refuses the subscription.
func TestServerRefusesTheSubscription(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.TakesSeconds(t)
	c := locktest.Start(t, 1)
	locktest.Lock(t, locktest.Open(t, c.Addrs, redlock.WithLogger(nil)), "r")
	warnings := make(chan error, 100)
	l := locktest.Open(t, c.Addrs, redlock.WithLogger(nil), locktest.On(func(e redlock.Event) { warnings <- e.Err }, redlock.EventWarning))
	if _, err := l.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("got %v, want ErrTaken", err)
	}
	locktest.Must(t, c.Nodes[0].ConfigSet(t.Context(), "maxclients", "1").Err())
	ctx, cancel := context.WithCancel(t.Context())
	var waiter sync.WaitGroup
	waiter.Go(func() { _, _ = l.Lock(ctx, "r") })
	defer func() { cancel(); waiter.Wait() }()
	for {
		if err := locktest.Receive(t, warnings, "a warning about the subscription"); strings.Contains(err.Error(), "its subscription fails: ERR max number of clients reached") {
			return
		}
	}
}

// silent listens, and answers nothing.
func silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	locktest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
