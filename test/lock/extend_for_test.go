package lock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// An extend with a TTL of its own lengthens the lease by that, on the masters, too. It shortens
// nothing, and later extends have the TTL of the lease again.
//
// Source: ALGORITHM section 6.
func TestVirtualExtendFor(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const long = 50 * time.Second
		l, rival := b.WarmLocker(redlock.WithMaxTTL(time.Minute)), b.WarmLocker(redlock.WithMaxTTL(time.Minute))
		le := b.Lock(l, "r", redlock.WithoutRenewal())
		locktest.Must(t, le.ExtendFor(t.Context(), long))
		locktest.WantValidity(t, le, long-502*time.Millisecond)
		locktest.Must(t, le.ExtendFor(t.Context(), redlock.MinTTL))
		locktest.Must(t, le.Extend(t.Context()))
		locktest.WantValidity(t, le, long-502*time.Millisecond)
		b.WantHolding("r", 0, 1, 2)
		start := time.Now()
		w := b.Wait(t.Context(), rival)
		locktest.WantDone(t, le.Context(), []error{reason.Expired})
		locktest.WantSince(t, "the end", start, long-502*time.Millisecond-locktest.Lead)
		next := b.Got(w)
		if since := time.Since(start); since < long-502*time.Millisecond || next.Fence() <= le.Fence() {
			t.Errorf("got the next lease after %v with fence %d, want it after the end, with more than %d", since, next.Fence(), le.Fence())
		}
		err := le.ExtendFor(t.Context(), long)
		locktest.WantMatch(t, "after the end", err, []error{redlock.ErrNotHeld, reason.Expired})
		b.Unlock(next)
	})
}

// A release is repeated as long as the longer key can live.
func TestVirtualExtendForRelease(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithMaxTTL(time.Minute))
		le := b.Lock(l, "r", redlock.WithoutRenewal())
		locktest.Must(t, le.ExtendFor(t.Context(), time.Minute))
		b.Nodes[0].Blackhole()
		locktest.Must(t, le.Unlock(t.Context()))
		time.Sleep(3 * locktest.TTL)
		b.Nodes[0].Heal()
		time.Sleep(locktest.TTL / 2)
		b.WantHolding("r")
	})
}

// A TTL that the lease could not have been acquired with is refused, and no node is asked.
func TestVirtualExtendForRefused(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithMaxTTL(time.Minute))
		le := b.Lock(l, "r", redlock.WithMaxHold(20*time.Second))
		b.All(func(n *virtual.Node) { n.ForgetCalls() })
		for _, ttl := range []time.Duration{-time.Second, 0, redlock.MinTTL - 1, 20*time.Second + 1, time.Minute + 1} {
			if err := le.ExtendFor(t.Context(), ttl); !errors.Is(err, redlock.ErrConfig) || !strings.Contains(err.Error(), "configuration: ExtendFor") {
				t.Errorf("%v: got %v, want ErrConfig, by the name of the call", ttl, err)
			}
		}
		b.WantCalls("extend", 0)
		locktest.Must(t, le.ExtendFor(t.Context(), 20*time.Second))
		b.Unlock(le)
	})
}
