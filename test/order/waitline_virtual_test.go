package order_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// A call that waits gets the resource when its holder's key expires, and waits as long as its context allows: no TTL
// bounds it.
//
// Source: ALGORITHM section 10; distlock, "Retry on Failure".
func TestVirtualWaiting(t *testing.T) {
	t.Parallel()
	locktest.Subtest(t, "for the expiry of a holder that is gone", 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(redlock.WithTTL(time.Second), redlock.WithoutRenewal()), b.WarmLocker()
		start := time.Now()
		held := b.Lock(l, "r")
		lease, err := other.Lock(t.Context(), "r")
		if err != nil {
			t.Fatalf("Lock: got %v, want a lease", err)
		}
		// One who waits for a call asks again when what is in the way ends, by a fifth.
		const latest = 1201200 * time.Microsecond
		if got := time.Since(start); got < time.Second || got > latest {
			t.Errorf("Lock: got it after %v, want from 1s to %v", got, latest)
		}
		if held.Validity() > 0 {
			t.Errorf("validity of the holder before: got %v, want none", held.Validity())
		}
		if lease.Fence() <= held.Fence() {
			t.Errorf("fence: got %d after %d, want a larger one", lease.Fence(), held.Fence())
		}
	})
	locktest.Subtest(t, "until the context ends", 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		held := b.Lock(l, "r")
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		start := time.Now()
		_, err := other.Lock(ctx, "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.DeadlineExceeded}, redlock.ErrNoQuorum)
		locktest.WantSince(t, "Lock", start, 35*time.Second)
		b.Unlock(held)
		b.WantHolding("r")
	})
	locktest.Subtest(t, "for nodes that come back", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.All((*virtual.Node).Hang)
		start := time.Now()
		time.AfterFunc(20*time.Second, func() { b.All((*virtual.Node).Resume) })
		if _, err := l.Lock(t.Context(), "r"); err != nil {
			t.Fatalf("Lock: got %v, want a lease", err)
		}
		if got := time.Since(start); got < 20*time.Second || got > 20*time.Second+locktest.Reconnect {
			t.Errorf("Lock: got it after %v, want from 20s to %v", got, 20*time.Second+locktest.Reconnect)
		}
	})
}

// Callers of one Locker are served in the order they came; one whose context ends
// leaves the line, and the next is served in its place.
//
// Source: ALGORITHM section 10, "In one process"; section 13, I10.
func TestVirtualFirstComeFirstServed(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		held := b.Lock(other, "r")
		const callers, gone, hold = 20, 5, 5 * time.Millisecond
		var mu sync.Mutex
		var order []int
		var ended sync.WaitGroup
		for i := range callers {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if i%4 == 0 { // the first of them is the head of the line
				time.AfterFunc(time.Second+time.Duration(i), cancel)
			}
			ended.Go(func() {
				lease, err := l.Lock(ctx, "r")
				if i%4 == 0 {
					locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.Canceled})
					return
				}
				if err != nil {
					t.Errorf("Lock: got %v, want a lease", err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(hold)
				if err := lease.Unlock(ctx); err != nil {
					t.Errorf("Unlock: got %v, want no error", err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		b.Unlock(held)
		start := time.Now()
		ended.Wait()
		if !slices.IsSorted(order) || len(order) != callers-gone {
			t.Errorf("order: got %v, want %d in the order they came", order, callers-gone)
		}
		locktest.WantWithin(t, "all of them", start, (callers-gone)*hold+101*time.Millisecond)
	})
}
