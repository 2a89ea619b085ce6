package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// An early Unlock ends the lease for its holder, and the resource stays taken until the minimum hold is
// over, also for longer than a TTL.
//
// Source: the doc comment of WithMinHold.
func TestVirtualMinHold(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const hold = time.Minute
		var lost atomic.Int64
		l, rival := b.WarmLocker(locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost)), b.WarmLocker()
		start := time.Now()
		le := b.Lock(l, "r", redlock.WithMinHold(hold))
		locktest.Must(t, le.Unlock(t.Context()))
		locktest.WantSince(t, "Unlock", start, 0)
		if cause := context.Cause(le.Context()); !errors.Is(cause, redlock.ErrReleased) || le.Validity() > 0 || !errors.Is(le.Err(), redlock.ErrReleased) {
			t.Errorf("after Unlock: got cause %v, validity %v, %v", cause, le.Validity(), le.Err())
		}
		if err := le.Unlock(t.Context()); !errors.Is(err, redlock.ErrNotHeld) {
			t.Errorf("second Unlock: got %v, want ErrNotHeld", err)
		}
		_, err := l.TryLock(context.WithoutCancel(le.Context()), "r", redlock.WithReentry())
		locktest.WantMatch(t, "TryLock with the context of the ended lease", err, []error{redlock.ErrTaken})
		w := b.Wait(t.Context(), rival)
		time.Sleep(hold - time.Second)
		b.WantHolding("r", 0, 1, 2)
		next := b.Got(w)
		if since := time.Since(start); since < hold || since > hold+2*time.Second || next.Fence() <= le.Fence() {
			t.Errorf("got the next lease after %v with fence %d, want it right after %v, with more than %d", since, next.Fence(), hold, le.Fence())
		}
		b.Unlock(next)
		if n := lost.Load(); n != 0 {
			t.Errorf("got %d lost leases, want none", n)
		}

		late := b.Lock(l, "r", redlock.WithMinHold(time.Second))
		time.Sleep(2 * time.Second)
		locktest.Must(t, late.Unlock(t.Context()))
		b.WantHolding("r")
	})
}

// A minimum hold that ends just before the maximum hold ends as any other: the resource is free then, and
// the lease was released.
//
// Source: the doc comment of WithMinHold.
func TestVirtualMinHoldNearTheMaximumHold(t *testing.T) {
	const hold = 20 * time.Second
	for _, before := range []time.Duration{time.Nanosecond, 5 * time.Millisecond, locktest.Lead / 2, 2 * locktest.Lead} {
		locktest.Subtest(t, before.String(), 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker() // which released a lease
			start := time.Now()
			lease := b.Lock(l, "r", redlock.WithMinHold(hold-before), redlock.WithMaxHold(hold))
			locktest.Must(t, lease.Unlock(t.Context()))
			time.Sleep(hold - before - time.Millisecond)
			b.WantHolding("r", 0, 1, 2)
			next := b.Got(b.Wait(t.Context(), b.WarmLocker()))
			if got := time.Since(start); got > hold+100*time.Millisecond {
				t.Errorf("got the next lease after %v, want it at %v", got, hold)
			}
			b.Unlock(next)
			if c := l.Stats().Counts; c[redlock.EventReleased] != 2 || c[redlock.EventLost] != 0 {
				t.Errorf("got %d leases released and %d lost, want 2 and 0", c[redlock.EventReleased], c[redlock.EventLost])
			}
		})
	}
}

// A caller of the process with the same options takes the lease over when the minimum hold ends, and
// has a minimum hold of its own.
func TestVirtualMinHoldHandOver(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		start := time.Now()
		first := b.Lock(l, "r", redlock.WithMinHold(time.Second))
		w := b.Wait(t.Context(), l, redlock.WithMinHold(time.Second))
		locktest.Must(t, first.Unlock(t.Context()))
		second := b.Got(w)
		locktest.WantSince(t, "the hand-over", start, time.Second)
		if second.Token() != first.Token() {
			t.Errorf("got token %s after %s, want a hand-over", second.Token(), first.Token())
		}
		w = b.Wait(t.Context(), l, redlock.WithMinHold(time.Second))
		locktest.Must(t, second.Unlock(t.Context()))
		time.Sleep(time.Second - time.Millisecond)
		b.WantHolding("r", 0, 1, 2)
		third := b.Got(w)
		locktest.WantSince(t, "the second hand-over", start, 2*time.Second)
		time.Sleep(3 * locktest.TTL)
		locktest.Must(t, third.Err())
		locktest.Must(t, third.Unlock(t.Context()))
		b.WantHolding("r")
	})
}

// A master's clock that steps while others do not answer may be taken for a standstill of the local clock. That
// does not end a minimum hold earlier: the local clock may be right.
//
// Source: the doc comment of WithMinHold; ALGORITHM section 9 ("assume both").
func TestVirtualMinHoldUnderAStep(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const hold, step = time.Minute, 2 * time.Second
		var corrected atomic.Int64
		l := b.WarmLocker(locktest.On(func(redlock.Event) { corrected.Add(1) }, redlock.EventLocalClockStopped))
		start := time.Now()
		locktest.Must(t, b.Lock(l, "r", redlock.WithMinHold(hold)).Unlock(t.Context()))
		b.Nodes[2].Hang()
		b.Nodes[0].RunClock(1, step)
		time.Sleep(locktest.TTL / 2) // the next renewal finds that
		b.Nodes[2].Resume()
		time.Sleep(time.Until(start.Add(hold - time.Millisecond)))
		b.WantHolding("r", 0, 1, 2)
		time.Sleep(2 * time.Millisecond)
		b.WantHolding("r")
		if n := corrected.Load(); n != 1 {
			t.Errorf("the clock was corrected %d times, want once", n)
		}
	})
}

// A lease that is lost while it is only kept for its minimum hold is no loss: the work is done. Close releases it.
func TestVirtualMinHoldEnds(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var lost atomic.Int64
		l := b.WarmLocker(locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost))
		le := b.Lock(l, "r", redlock.WithMinHold(time.Hour))
		locktest.Must(t, le.Unlock(t.Context()))
		b.Each(func(n *virtual.Node) { n.Put("redlock:r", "another|1", time.Minute) }, 0, 1)
		time.Sleep(locktest.TTL)
		if n := lost.Load(); n != 0 {
			t.Errorf("got %d lost leases, want none", n)
		}
		le = b.Lock(l, "s", redlock.WithMinHold(time.Hour))
		locktest.Must(t, le.Unlock(t.Context()))
		b.WantHolding("s", 0, 1, 2)
		locktest.Must(t, l.Close())
		b.WantHolding("s")
	})
}
