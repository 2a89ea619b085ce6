package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// A holder that is cut off from every node knows by its own clock when its lease ends: first the
// context ends, then the validity, then the keys.
//
// Source: ALGORITHM section 7; section 13, I3 and I7.
func TestVirtualEndWithoutIO(t *testing.T) {
	for _, test := range []struct {
		name              string
		opts              []redlock.LockOption
		ttl, drift, early time.Duration // early: from the end of the context to that of the validity
		grace             time.Duration
	}{
		{"renewed", nil, locktest.TTL, locktest.Drift, locktest.Lead, 0},
		{"not renewed", []redlock.LockOption{redlock.WithoutRenewal()}, locktest.TTL, locktest.Drift, locktest.Lead, 0},
		{"short", []redlock.LockOption{redlock.WithTTL(100 * time.Millisecond)}, 100 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 0},
		{"with grace", []redlock.LockOption{redlock.WithGrace(time.Second)}, locktest.TTL, locktest.Drift, locktest.Lead, time.Second},
	} {
		locktest.Subtest(t, test.name, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			const there = 3 * time.Millisecond
			b.All(func(n *virtual.Node) { n.Latency(there, 2*time.Millisecond) })
			start := time.Now()
			lease := b.Lock(l, "r", test.opts...)
			time.Sleep(there) // the slowest replies
			b.All((*virtual.Node).Blackhole)

			ends := test.ttl - test.drift - test.grace
			locktest.WantDone(t, lease.Context(), []error{redlock.ErrLost, reason.Expired}, redlock.ErrReleased, reason.QuorumLost, redlock.ErrMaxHold)
			locktest.WantSince(t, "end of the context", start, ends-test.early)
			locktest.WantValidity(t, lease, test.early)
			locktest.WantMatch(t, "Err", lease.Err(), []error{redlock.ErrLost, reason.Expired}, redlock.ErrReleased)
			time.Sleep(test.early)
			locktest.WantValidity(t, lease, 0)
			b.WantHolding("r", 0, 1, 2, 3, 4)
			time.Sleep(time.Until(start.Add(there+test.ttl)) - 1)
			b.WantHolding("r", 0, 1, 2, 3, 4)
			if got := lease.Validity(); got >= 0 {
				t.Errorf("validity after the deadline: got %v, want less than 0", got)
			}
			time.Sleep(time.Nanosecond)
			b.WantHolding("r")
		})
	}
}

// An Extend lengthens a lease that is not renewed.
//
// Source: ALGORITHM sections 6 and 7.
func TestVirtualExtend(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithoutRenewal())
		lease := b.Lock(l, "r")
		time.Sleep(5 * time.Second)
		b.All(func(n *virtual.Node) { n.Latency(20*time.Millisecond, 30*time.Millisecond) })
		start := time.Now()
		locktest.Must(t, lease.Extend(t.Context()))
		locktest.WantSince(t, "Extend", start, 50*time.Millisecond)
		locktest.WantValidity(t, lease, locktest.Validity-50*time.Millisecond)
		locktest.WantDone(t, lease.Context(), []error{reason.Expired})
		locktest.WantSince(t, "end of the context", start, locktest.Validity-locktest.Lead)
	})
}

// Failed rounds change nothing: if the nodes are back before the deadline, the lease goes on. If not,
// it ends on time.
//
// Source: ALGORITHM section 6, "Failure of a round changes nothing".
func TestVirtualFailedRenewals(t *testing.T) {
	faults := map[string]func(*virtual.Node){
		"blackholed":    (*virtual.Node).Blackhole,
		"hung":          (*virtual.Node).Hang,
		"replies lost":  (*virtual.Node).LoseReplies,
		"dead":          (*virtual.Node).Kill,
		"read-only":     func(n *virtual.Node) { n.Refuse("READONLY You can't write against a read only replica.") },
		"out of memory": func(n *virtual.Node) { n.Refuse("OOM command not allowed when used memory > 'maxmemory'.") },
		"loading":       func(n *virtual.Node) { n.Refuse("LOADING Redis is loading the dataset in memory") },
	}
	for name, fault := range faults {
		locktest.Subtest(t, "all nodes "+name+", healed in time", 5, func(t *testing.T, b *locktest.Bubble) {
			var failed atomic.Int32
			l := b.WarmLocker(locktest.On(func(e redlock.Event) {
				failed.Add(1)
				locktest.WantMatch(t, "ExtendFailed", e.Err, []error{redlock.ErrNoQuorum})
			}, redlock.EventExtendFailed))
			start := time.Now()
			lease := b.Lock(l, "r")
			fence := lease.Fence()
			time.Sleep(2 * time.Second)
			b.All(fault)
			time.Sleep(5 * time.Second) // the first round has failed by 3.6 s
			locktest.WantValidity(t, lease, time.Until(start.Add(locktest.Validity)))
			if failed.Load() < 2 {
				t.Errorf("rounds that failed: got %d, want at least 2", failed.Load())
			}
			b.All((*virtual.Node).Heal)
			time.Sleep(2700 * time.Millisecond) // 200 ms before the old deadline
			if got := lease.Validity(); got < 5*time.Second {
				t.Errorf("validity 2.7 s after healing: got %v, want it renewed", got)
			}
			time.Sleep(time.Minute)
			if err := lease.Context().Err(); err != nil || lease.Fence() != fence {
				t.Errorf("a minute later: got %v and fence %d, want a lease with fence %d", context.Cause(lease.Context()), lease.Fence(), fence)
			}
			b.WantHolding("r", 0, 1, 2, 3, 4)
		})
		locktest.Subtest(t, "a majority "+name+", never healed", 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			start := time.Now()
			lease := b.Lock(l, "r")
			b.Each(fault, 0, 2, 4)
			locktest.WantDone(t, lease.Context(), []error{redlock.ErrLost, reason.Expired}, reason.QuorumLost)
			locktest.WantSince(t, "end of the context", start, locktest.Validity-locktest.Lead)
		})
	}
}

// A round whose replies come after the deadline revives nothing, even if all nodes say that they kept the key.
//
// Source: ALGORITHM section 6 ("MUST NOT revive the lease").
func TestVirtualLateRenewal(t *testing.T) {
	locktest.Subtest(t, "replies after the end of the context", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithoutRenewal())
		start := time.Now()
		lease := b.Lock(l, "r")
		time.Sleep(locktest.Validity - locktest.Lead - 50*time.Millisecond)
		b.All(func(n *virtual.Node) { n.Latency(10*time.Millisecond, 100*time.Millisecond) })
		err := lease.Extend(t.Context())
		locktest.WantMatch(t, "Extend", err, []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
		locktest.WantDone(t, lease.Context(), []error{redlock.ErrLost, reason.Expired})
		time.Sleep(time.Until(start.Add(locktest.Validity)))
		locktest.WantValidity(t, lease, 0)
		time.Sleep(time.Second) // the nodes did keep the key
		b.WantHolding("r", 0, 1, 2)
	})
	locktest.Subtest(t, "the clock jumps past the deadline while the round is under way", 3, func(t *testing.T, b *locktest.Bubble) {
		clock := locktest.NewJumpClock()
		l := b.WarmLocker(redlock.WithoutRenewal(), redlock.WithClock(clock))
		lease := b.Lock(l, "r")
		time.Sleep(time.Second)
		b.All(func(n *virtual.Node) { n.Latency(20*time.Millisecond, 20*time.Millisecond) })
		done := make(chan error)
		go func() { done <- lease.Extend(context.Background()) }()
		time.Sleep(10 * time.Millisecond)
		clock.Jump(20 * time.Second)
		if err := <-done; err == nil {
			t.Errorf("Extend: got no error, want an error: its replies came after the deadline")
		}
		locktest.WantValidity(t, lease, 0)
		err := lease.Extend(t.Context())
		locktest.WantMatch(t, "Extend again", err, []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
	})
}

// If a lease's key is lost or taken on so many nodes that the others are no exclusive set, the lease
// is lost at the next round, before its deadline.
//
// Source: ALGORITHM section 6, "Lost now".
func TestVirtualQuorumLost(t *testing.T) {
	for _, test := range []struct {
		name  string
		n     int
		fault func(*virtual.Node)
		nodes []int
		lost  bool
	}{
		{"taken on three of five", 5, locktest.Steal, []int{0, 1, 2}, true},
		{"taken on two of five", 5, locktest.Steal, []int{3, 4}, false},
		{"missing on three of five", 5, locktest.Erase, []int{2, 3, 4}, true},
		{"missing on two of five", 5, locktest.Erase, []int{0, 4}, false},
		{"restarted empty, three of five", 5, (*virtual.Node).RestartEmpty, []int{0, 2, 4}, true},
		{"restarted empty, two of five", 5, (*virtual.Node).RestartEmpty, []int{0, 2}, false},
		{"taken on two of three", 3, locktest.Steal, []int{0, 1}, true},
		{"taken on one of three", 3, locktest.Steal, []int{0}, false},
		{"taken on the only one", 1, locktest.Steal, []int{0}, true},
		{"taken on two of four", 4, locktest.Steal, []int{0, 1}, false}, // the quorum is three: two other nodes are none
		{"missing on three of four", 4, locktest.Erase, []int{0, 1, 3}, true},
	} {
		locktest.Subtest(t, test.name, test.n, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			start := time.Now()
			lease := b.Lock(l, "r")
			time.Sleep(time.Second)
			b.Each(test.fault, test.nodes...)
			if !test.lost {
				time.Sleep(4 * time.Second)
				locktest.Must(t, context.Cause(lease.Context()))
				return
			}
			locktest.WantDone(t, lease.Context(), []error{redlock.ErrLost, reason.QuorumLost}, reason.Expired)
			if got := time.Since(start); got <= 3*time.Second || got > locktest.TTL/3 {
				t.Errorf("end of the context: got it after %v, want the first renewal", got)
			}
			locktest.WantValidity(t, lease, 0)
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			begin := time.Now()
			locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.QuorumLost})
			locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.QuorumLost})
			locktest.WantSince(t, "typed errors", begin, 0)
			time.Sleep(time.Second)
			for i, n := range b.Nodes {
				if v := n.Value("r"); v != "" && v != "another-holder|1" {
					t.Errorf("key on node %d after Unlock: got %q, want that of another holder or none", i, v)
				}
			}
		})
	}
}

// An Extend that finds the lease lost returns with the answer that showed the loss, and waits for no other answer.
//
// Source: ALGORITHM section 6, "Lost now".
func TestVirtualExtendFindsTheLoss(t *testing.T) {
	locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		b.Each(locktest.Steal, 0, 1, 2)
		b.All(func(n *virtual.Node) { n.Latency(5*time.Millisecond, 5*time.Millisecond) })
		start := time.Now()
		err := lease.Extend(t.Context())
		locktest.WantMatch(t, "Extend", err, []error{redlock.ErrNotHeld, redlock.ErrLost, reason.QuorumLost})
		locktest.WantSince(t, "Extend", start, 10*time.Millisecond)
		locktest.WantDone(t, lease.Context(), []error{redlock.ErrLost, reason.QuorumLost})
		locktest.WantSince(t, "end of the context", start, 10*time.Millisecond)
	})
}

// The next round sets the key again on a node that restarted empty. The node does not count until
// its quarantine is over.
//
// Source: ALGORITHM section 6, "Counted" and "Filling"; section 8.
func TestVirtualRefilledNode(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var forgot, failed atomic.Int32
		l := b.WarmLocker(redlock.WithoutRenewal(), locktest.On(func(e redlock.Event) {
			forgot.Add(1)
			if e.Master != b.Nodes[0].Addr() || e.Resource != "r" {
				t.Errorf("MasterForgot: got %q and %q, want %q and %q", e.Master, e.Resource, b.Nodes[0].Addr(), "r")
			}
		}, redlock.EventKeyLost),
			locktest.On(func(redlock.Event) { failed.Add(1) }, redlock.EventExtendFailed))
		start := time.Now()
		lease := b.Lock(l, "r")
		time.Sleep(time.Second)
		b.Nodes[0].RestartEmpty()
		b.Nodes[1].Blackhole()

		err := lease.Extend(t.Context())
		locktest.WantMatch(t, "Extend with one node down and one node that forgot", err, []error{redlock.ErrNoQuorum}, redlock.ErrLost, redlock.ErrNotHeld)
		synctest.Wait()
		if forgot.Load() != 1 || failed.Load() != 1 {
			t.Errorf("got %d MasterForgot and %d ExtendFailed, want 1 and 1", forgot.Load(), failed.Load())
		}
		locktest.WantValidity(t, lease, time.Until(start.Add(locktest.Validity)))
		b.WantHolding("r", 0, 1, 2)

		err = lease.Extend(t.Context())
		locktest.WantMatch(t, "Extend, the round after", err, []error{redlock.ErrNoQuorum}, redlock.ErrLost, redlock.ErrNotHeld)
		b.Nodes[1].Heal()
		time.Sleep(time.Second) // to connect again
		for range 11 {          // seconds; the quarantine lasts 10.3
			time.Sleep(time.Second)
			locktest.Must(t, lease.Extend(t.Context()))
		}
		b.Nodes[1].Blackhole()
		locktest.Must(t, lease.Extend(t.Context()))
		locktest.WantValidity(t, lease, locktest.Validity)
		if forgot.Load() != 1 {
			t.Errorf("MasterForgot: got %d, want 1", forgot.Load())
		}
	})
}

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
