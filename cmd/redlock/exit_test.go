package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/reason"
)

// What is wrong with an argument is said without the library's calls and options.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"redlock: invalid configuration: TryLock: the resource is empty":           "the resource is empty",
		"redlock: invalid configuration: WithTTL(1ms): must be at least 50ms":      "--ttl 1ms: must be at least 50ms",
		"redlock: invalid configuration: WithMasterTimeout(-1s): must be positive": "--master-timeout -1s: must be positive",
		"redlock: invalid configuration: WithKeyPrefix(\"k\"): must be short":      "--prefix \"k\": must be short",
		"resource \"s~1\" is one of several, for any of which LockAny waits":       "resource \"s~1\" is one of several, for any of which --permits waits",
		"redlock: invalid configuration: master \"x\": has no port":                "master \"x\": has no port",
		"key a: redlock: lock \"a\": not acquired\nsecond line":                    "key a: lock \"a\": not acquired; second line",
		"redlock: invalid configuration: Adopt: the token is not that of a lease":  "the token is not that of a lease",
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
