package locktest

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
)

// Waiter is a call of Lock in a goroutine of its own.
type Waiter struct {
	Lease *redlock.Lease
	Err   error
	At    time.Time // when the call returned
	Done  chan struct{}
}

// Begin runs a call, and returns when the call waits or is over.
func Begin(get func() (*redlock.Lease, error)) *Waiter {
	w := &Waiter{Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.Lease, w.Err = get()
		w.At = time.Now()
	}()
	synctest.Wait() // it gets in line
	return w
}

// Waits reports whether the call has not returned.
func (w *Waiter) Waits() bool {
	synctest.Wait()
	select {
	case <-w.Done:
		return false
	default:
		return true
	}
}

// Wait begins a call of Lock for "r".
func (b *Bubble) Wait(ctx context.Context, l *redlock.Locker, opts ...redlock.LockOption) *Waiter {
	return b.WaitFor(ctx, l, "r", opts...)
}

// WaitFor begins a call of Lock.
func (b *Bubble) WaitFor(ctx context.Context, l *redlock.Locker, resource string, opts ...redlock.LockOption) *Waiter {
	return Begin(func() (*redlock.Lease, error) { return l.Lock(ctx, resource, opts...) })
}

// Got waits for the lease of a call.
func (b *Bubble) Got(w *Waiter) *redlock.Lease {
	b.T.Helper()
	select {
	case <-w.Done:
	case <-time.After(20 * time.Second):
		b.T.Fatal("Lock: got nothing for 20 s, want a lease")
	}
	if w.Err != nil {
		b.T.Fatalf("Lock: got %v, want a lease", w.Err)
	}
	return w.Lease
}
