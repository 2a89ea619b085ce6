package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/wire"
)

// WantSince checks that a moment is exactly so long after another.
func WantSince(t testing.TB, what string, since time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(since); got != want {
		t.Errorf("%s: got it after %v, want %v", what, got, want)
	}
}

// WantWithin checks that a moment is at most so long after another.
func WantWithin(t testing.TB, what string, since time.Time, atMost time.Duration) {
	t.Helper()
	if got := time.Since(since); got > atMost {
		t.Errorf("%s: got it after %v, want at most %v", what, got, atMost)
	}
}

// WantValidity checks how long a lease is valid; with 0, that it is not valid any more.
func WantValidity(t testing.TB, lease *redlock.Lease, want time.Duration) {
	t.Helper()
	if got := lease.Validity(); got != want && max(got, want) > 0 {
		t.Errorf("validity of the lease of %q: got %v, want %v", lease.Resource(), got, want)
	}
}

// WantMatch checks what an error matches, and what it does not.
func WantMatch(t testing.TB, what string, err error, want []error, not ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: got error %v, want it to match %v", what, err, w)
		}
	}
	for _, n := range not {
		if errors.Is(err, n) {
			t.Errorf("%s: got error %v, want it not to match %v", what, err, n)
		}
	}
}

// WantDone waits for a context and checks what ended it.
func WantDone(t testing.TB, ctx context.Context, want []error, not ...error) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Minute):
		t.Fatal("got a context that goes on, want it to end")
	}
	WantMatch(t, "cause of the context", context.Cause(ctx), want, not...)
}

// Receive returns the next value of a channel, which must come within 20 s.
func Receive[T any](t testing.TB, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		t.Fatalf("not within 20s: %s", what)
	}
	return v
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantErr ends the test if err does not match all sentinels.
func WantErr(t testing.TB, err error, sentinels ...error) {
	t.Helper()
	for _, s := range sentinels {
		if !errors.Is(err, s) {
			t.Fatalf("got error %v, want an error that matches %q", err, s)
		}
	}
}

// NewID returns an id of an attempt that no Locker makes.
func NewID() string { return wire.Token(uuid.New(), "") }

// QueueNodeOf returns the index of the node that keeps the queue for a resource, as far as the
// Locker knows.
func QueueNodeOf(l *redlock.Locker, resource string) int { return door.Look(l).QueueNode(resource) }
