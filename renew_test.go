package redlock

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/term"
)

// wantSlots checks that every lease knows its slot, and that none is due before its parent.
func wantSlots(t *testing.T, h leaseHeap) {
	t.Helper()
	for i, g := range h {
		if g.renewal.slot != i {
			t.Fatalf("the lease in slot %d believes to be in %d", i, g.renewal.slot)
		}
		if parent := h[(i-1)/2]; i > 0 && g.renewal.due < parent.renewal.due {
			t.Fatalf("slot %d is due at %d, its parent at %d", i, g.renewal.due, parent.renewal.due)
		}
	}
}

// Whatever is added, changed and removed, leases come out in the order in which they are due.
func TestLeaseHeap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var h leaseHeap
		var gone []*grant
		for range 200 {
			switch pick := rng.IntN(5); {
			case pick < 3 || len(h) == 0:
				heap.Push(&h, &grant{renewal: renewal{due: instant(rng.IntN(50)), slot: -1}})
			case pick == 3:
				i := rng.IntN(len(h))
				h[i].renewal.due = instant(rng.IntN(50))
				heap.Fix(&h, i)
			default:
				gone = append(gone, heap.Remove(&h, rng.IntN(len(h))).(*grant))
			}
			wantSlots(t, h)
		}
		last := instant(-1)
		for len(h) > 0 {
			g := heap.Pop(&h).(*grant)
			wantSlots(t, h)
			if g.renewal.due < last {
				t.Fatalf("seed %d: got a lease that was due at %d after a lease due at %d", seed, g.renewal.due, last)
			}
			last = g.renewal.due
			gone = append(gone, g)
		}
		for _, g := range gone {
			if g.renewal.slot != -1 {
				t.Fatalf("seed %d: a lease that is out of the heap has slot %d", seed, g.renewal.slot)
			}
		}
	}
}

// watching returns a renewer in a bubble, with a pool without nodes. It ends with the bubble.
func watching(t *testing.T, c clock.Source) *renewer {
	t.Helper()
	k := newRenewer(c)
	done := make(chan struct{})
	go func() { defer close(done); k.run() }()
	t.Cleanup(func() { k.close(); <-done })
	return k
}

// lease returns a lease with that TTL that was granted now.
func (k *renewer) lease(ttl time.Duration) *grant {
	conf := &config{rules: rules.New(), lockConfig: lockConfig{Options: term.Options{TTL: ttl, Manual: true}}, drift: DefaultDrift, clock: clock.NewLease(k.clock)}
	g := &grant{pool: &pool{conf: conf, renewer: k, events: eventsOf(), lines: line.New[*grant, call](&line.DefaultPolicy, false)}, lockConfig: conf.lockConfig, renewal: renewal{slot: -1}}
	g.term.Init(&g.Options, conf.rules)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start = g.pool.now()
	g.setDeadlineLocked(g.start, g.TTL)
	return g
}

// ended returns the reason for the end of a lease, nil before the end.
func (g *grant) ended() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.term.Cause()
}

// A lease that is added while the renewer sleeps for another one is not late.
func TestRenewerWakesForAnEarlierLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := watching(t, clock.Runtime())
		late := k.lease(10 * time.Second)
		k.add(late, late.dueLocked(), instant(k.clock.Now()))
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		soon := k.lease(100 * time.Millisecond)
		k.add(soon, soon.dueLocked(), instant(k.clock.Now()))
		time.Sleep(100*time.Millisecond - driftAllowance(100*time.Millisecond, DefaultDrift) - 5*time.Millisecond)
		synctest.Wait()
		if soon.ended() == nil || late.ended() != nil {
			t.Errorf("got %v and %v, want only the first lease over", soon.ended(), late.ended())
		}
	})
}

// A removed lease is not looked at again; an updated lease is looked at at once.
func TestRenewerRemoveAndUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := watching(t, clock.Runtime())
		removed, updated := k.lease(time.Second), k.lease(time.Second)
		k.add(removed, removed.dueLocked(), instant(k.clock.Now()))
		k.add(updated, never-1, instant(k.clock.Now()))
		k.remove(removed)
		k.remove(removed) // a second time
		k.update(removed)
		if got := k.all(); len(got) != 1 || got[0] != updated {
			t.Fatalf("%d leases are watched, want 1", len(got))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if removed.ended() != nil || updated.ended() != nil {
			t.Fatalf("got %v and %v, want neither looked at", removed.ended(), updated.ended())
		}
		k.update(updated)
		synctest.Wait()
		if !errors.Is(updated.ended(), reason.Expired) {
			t.Errorf("got %v, want reason.Expired", updated.ended())
		}
	})
}

// jumping is a clock that a test sets ahead.
type jumping struct {
	clock.Source
	ahead atomic.Int64
}

func (c *jumping) Now() time.Duration { return c.Source.Now() + time.Duration(c.ahead.Load()) }

// A lease that is being looked at is still in the list of all leases, and changes to it meanwhile
// take effect.
func TestRenewerKeepsWhatItLooksAt(t *testing.T) {
	k := newRenewer(clock.Runtime())
	lease := func() *grant {
		g := k.lease(time.Second)
		k.add(g, 10, 0)
		return g
	}
	kept, removed, updated, over := lease(), lease(), lease(), lease()
	due, _ := k.takeDue(nil, 10)
	if len(due) != 4 || len(k.all()) != 4 {
		t.Fatalf("got %d leases due and %d in all, want 4 and 4", len(due), len(k.all()))
	}
	if again, _ := k.takeDue(nil, 10); len(again) != 0 {
		t.Errorf("got %d leases due while they are looked at, want none", len(again))
	}
	k.remove(removed)
	k.update(updated)
	now := updated.renewal.due
	for _, g := range []*grant{kept, removed, updated} {
		k.checked(g, 500, 10)
	}
	k.checked(over, never, 10)
	if kept.renewal.due != 500 || updated.renewal.due != now || removed.renewal.slot != -1 || over.renewal.slot != -1 || len(k.all()) != 2 {
		t.Errorf("got due %d and %d, slots %d and %d, %d leases; want 500, %d, -1, -1 and 2",
			kept.renewal.due, updated.renewal.due, removed.renewal.slot, over.renewal.slot, len(k.all()), now)
	}
}

// A lease is not late if it was granted after the clock had jumped over the moment for which the
// renewer's timer is set.
func TestRenewerAfterAClockJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &jumping{Source: clock.Runtime()}
		k := watching(t, c)
		other := k.lease(time.Minute)
		k.add(other, other.dueLocked(), other.start)
		synctest.Wait()
		c.ahead.Store(int64(3500 * time.Millisecond))
		g := k.lease(100 * time.Millisecond)
		lead := g.term.Lead()
		k.add(g, g.dueLocked(), g.start)
		time.Sleep(100*time.Millisecond - driftAllowance(100*time.Millisecond, DefaultDrift) - lead)
		synctest.Wait()
		if !errors.Is(g.ended(), reason.Expired) || g.validity() <= 0 {
			t.Errorf("got %v with %v left, want reason.Expired before the end", g.ended(), g.validity())
		}
	})
}
