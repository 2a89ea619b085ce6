package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/reason"
)

// An extend with a TTL of its own lengthens the lease by that, on the masters, too. It shortens
// nothing, and later extends have the TTL of the lease again.
//
// Source: ALGORITHM section 6.
func TestVirtualExtendFor(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		const long = 50 * time.Second
		l, rival := b.warmLocker(redlock.WithMaxTTL(time.Minute)), b.warmLocker(redlock.WithMaxTTL(time.Minute))
		le := b.lock(l, "r", redlock.WithoutRenewal())
		must(t, le.ExtendFor(t.Context(), long))
		if got, want := le.Validity(), long-502*time.Millisecond; got != want {
			t.Errorf("got a validity of %v, want %v", got, want)
		}
		must(t, le.ExtendFor(t.Context(), redlock.MinTTL))
		must(t, le.Extend(t.Context()))
		if got, want := le.Validity(), long-502*time.Millisecond; got != want {
			t.Errorf("after shorter extends: got a validity of %v, want %v", got, want)
		}
		b.wantHolding("r", 0, 1, 2)
		start := time.Now()
		w := b.wait(t.Context(), rival)
		wantDone(t, le.Context(), []error{reason.Expired})
		wantSince(t, "the end", start, long-502*time.Millisecond-lead10)
		next := b.got(w)
		if since := time.Since(start); since < long-502*time.Millisecond || next.Fence() <= le.Fence() {
			t.Errorf("got the next lease after %v with fence %d, want it after the end, with more than %d", since, next.Fence(), le.Fence())
		}
		err := le.ExtendFor(t.Context(), long)
		wantMatch(t, "after the end", err, []error{redlock.ErrNotHeld, reason.Expired})
		b.unlock(next)
	})
}

// A release is repeated as long as the longer key can live.
func TestVirtualExtendForRelease(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker(redlock.WithMaxTTL(time.Minute))
		le := b.lock(l, "r", redlock.WithoutRenewal())
		must(t, le.ExtendFor(t.Context(), time.Minute))
		b.nodes[0].blackhole()
		must(t, le.Unlock(t.Context()))
		time.Sleep(3 * ttl10)
		b.nodes[0].heal()
		time.Sleep(ttl10 / 2)
		b.wantHolding("r")
	})
}

// A TTL that the lease could not have been acquired with is refused, and no node is asked.
func TestVirtualExtendForRefused(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker(redlock.WithMaxTTL(time.Minute))
		le := b.lock(l, "r", redlock.WithMaxHold(20*time.Second))
		b.all(func(n *bubbleNode) { n.forgetCalls() })
		for _, ttl := range []time.Duration{-time.Second, 0, redlock.MinTTL - 1, 20*time.Second + 1, time.Minute + 1} {
			if err := le.ExtendFor(t.Context(), ttl); !errors.Is(err, redlock.ErrConfig) {
				t.Errorf("%v: got %v, want ErrConfig", ttl, err)
			}
		}
		b.wantCalls("extend", 0)
		must(t, le.ExtendFor(t.Context(), 20*time.Second))
		b.unlock(le)
	})
}
