package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
)

// An early Unlock ends the lease for its holder, and the resource stays taken until the minimum hold is
// over, also for longer than a TTL.
//
// Source: the doc comment of WithMinHold.
func TestVirtualMinHold(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		const hold = time.Minute
		var lost atomic.Int64
		l, rival := b.warmLocker(locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost)), b.warmLocker()
		start := time.Now()
		le := b.lock(l, "r", redlock.WithMinHold(hold))
		must(t, le.Unlock(t.Context()))
		wantSince(t, "Unlock", start, 0)
		if cause := context.Cause(le.Context()); !errors.Is(cause, redlock.ErrReleased) || le.Validity() > 0 || !errors.Is(le.Err(), redlock.ErrReleased) {
			t.Errorf("after Unlock: got cause %v, validity %v, %v", cause, le.Validity(), le.Err())
		}
		if err := le.Unlock(t.Context()); !errors.Is(err, redlock.ErrNotHeld) {
			t.Errorf("second Unlock: got %v, want ErrNotHeld", err)
		}
		_, err := l.TryLock(context.WithoutCancel(le.Context()), "r", redlock.WithReentry())
		wantMatch(t, "TryLock with the context of the ended lease", err, []error{redlock.ErrTaken})
		w := b.wait(t.Context(), rival)
		time.Sleep(hold - time.Second)
		b.wantHolding("r", 0, 1, 2)
		next := b.got(w)
		if since := time.Since(start); since < hold || since > hold+2*time.Second || next.Fence() <= le.Fence() {
			t.Errorf("got the next lease after %v with fence %d, want it right after %v, with more than %d", since, next.Fence(), hold, le.Fence())
		}
		b.unlock(next)
		if n := lost.Load(); n != 0 {
			t.Errorf("got %d lost leases, want none", n)
		}

		late := b.lock(l, "r", redlock.WithMinHold(time.Second))
		time.Sleep(2 * time.Second)
		must(t, late.Unlock(t.Context()))
		b.wantHolding("r")
	})
}

// A caller of the process with the same options takes the lease over when the minimum hold ends, and
// has a minimum hold of its own.
func TestVirtualMinHoldHandOver(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		start := time.Now()
		first := b.lock(l, "r", redlock.WithMinHold(time.Second))
		w := b.wait(t.Context(), l, redlock.WithMinHold(time.Second))
		must(t, first.Unlock(t.Context()))
		second := b.got(w)
		wantSince(t, "the hand-over", start, time.Second)
		if second.Token() != first.Token() {
			t.Errorf("got token %s after %s, want a hand-over", second.Token(), first.Token())
		}
		w = b.wait(t.Context(), l, redlock.WithMinHold(time.Second))
		must(t, second.Unlock(t.Context()))
		time.Sleep(time.Second - time.Millisecond)
		b.wantHolding("r", 0, 1, 2)
		third := b.got(w)
		wantSince(t, "the second hand-over", start, 2*time.Second)
		time.Sleep(3 * ttl10)
		if err := third.Err(); err != nil {
			t.Errorf("got %v, want a lease that is renewed", err)
		}
		must(t, third.Unlock(t.Context()))
		b.wantHolding("r")
	})
}

// A lease that is lost while it is only kept for its minimum hold is no loss: the work is done. Close
// releases it.
func TestVirtualMinHoldEnds(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		var lost atomic.Int64
		l := b.warmLocker(locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost))
		le := b.lock(l, "r", redlock.WithMinHold(time.Hour))
		must(t, le.Unlock(t.Context()))
		b.each(func(n *bubbleNode) { n.put("redlock:r", "another|1", time.Minute) }, 0, 1)
		time.Sleep(ttl10)
		if n := lost.Load(); n != 0 {
			t.Errorf("got %d lost leases, want none", n)
		}
		le = b.lock(l, "s", redlock.WithMinHold(time.Hour))
		must(t, le.Unlock(t.Context()))
		b.wantHolding("s", 0, 1, 2)
		must(t, l.Close())
		b.wantHolding("s")
	})
}
