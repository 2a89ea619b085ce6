package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
)

// The tests in virtual time: what is promised about moments, asserted exactly. The
// nodes are the fakes of bubble_test.go, whose scripts are the real ones unless
// a node is native.

// Of a lease with the default TTL and drift.
const (
	ttl10       = 10 * time.Second
	drift10     = 102 * time.Millisecond // 1 % and 2 ms
	lead10      = 200 * time.Millisecond // a fiftieth
	timeout10   = 250 * time.Millisecond // of one node
	validity10  = ttl10 - drift10
	reconnect10 = 4*timeout10 + 500*time.Millisecond + 4*timeout10 // a dial that fails, the longest pause, a dial that succeeds
)

// The validity at the grant is the TTL less what the quorum took to answer and the
// drift; slower nodes do not count.
//
// Source: distlock, step 4; ALGORITHM section 3, point 4.
func TestVirtualValidityAtGrant(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		latency []time.Duration // one way
		ttl     time.Duration
		drift   time.Duration
		elapsed time.Duration
	}{
		{"no latency", []time.Duration{0, 0, 0}, ttl10, drift10, 0},
		{"even latency", []time.Duration{7 * ms, 7 * ms, 7 * ms}, ttl10, drift10, 14 * ms},
		{"nearly the node timeout", []time.Duration{124 * ms, 124 * ms, 124 * ms}, ttl10, drift10, 248 * ms},
		{"the third of five decides", []time.Duration{50 * ms, 40 * ms, 1 * ms, 30 * ms, 2 * ms}, ttl10, drift10, 60 * ms},
		{"one node", []time.Duration{3 * ms}, time.Second, 12 * ms, 6 * ms},
		{"two nodes need both", []time.Duration{3 * ms, 9 * ms}, time.Second, 12 * ms, 18 * ms},
		{"the shortest TTL", []time.Duration{ms, ms, ms}, 50 * ms, 2500 * time.Microsecond, 2 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, len(test.latency), func(t *testing.T, b *bubble) {
				l := b.warmLocker(redlock.WithTTL(test.ttl), redlock.WithoutRenewal())
				for i, n := range b.nodes {
					n.latency(test.latency[i], test.latency[i])
				}
				start := time.Now()
				lease := b.lock(l, "r")
				wantSince(t, "the lease", start, test.elapsed)
				want := test.ttl - test.elapsed - test.drift
				if got := lease.Validity(); got != want {
					t.Errorf("validity at the grant: got %v, want %v", got, want)
				}
				time.Sleep(10 * ms)
				if got := lease.Validity(); got != want-10*ms {
					t.Errorf("validity 10 ms later: got %v, want %v", got, want-10*ms)
				}
			})
		})
	}
}

// A holder that is cut off from every node knows by its own clock when its lease
// ends: the context first, then the validity, then the keys.
//
// Source: ALGORITHM section 7; section 13, I3 and I7.
func TestVirtualEndWithoutIO(t *testing.T) {
	for _, test := range []struct {
		name              string
		opts              []redlock.LockOption
		ttl, drift, early time.Duration // early: from the end of the context to that of the validity
		grace             time.Duration
	}{
		{"renewed", nil, ttl10, drift10, lead10, 0},
		{"not renewed", []redlock.LockOption{redlock.WithoutRenewal()}, ttl10, drift10, lead10, 0},
		{"short", []redlock.LockOption{redlock.WithTTL(100 * time.Millisecond)}, 100 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 0},
		{"with grace", []redlock.LockOption{redlock.WithGrace(time.Second)}, ttl10, drift10, lead10, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				const there = 3 * time.Millisecond
				b.all(func(n *bubbleNode) { n.latency(there, 2*time.Millisecond) })
				start := time.Now()
				lease := b.lock(l, "r", test.opts...)
				time.Sleep(there) // the slowest replies
				b.all((*bubbleNode).blackhole)

				ends := test.ttl - test.drift - test.grace
				wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrExpired}, redlock.ErrReleased, redlock.ErrQuorumLost, redlock.ErrMaxHold)
				wantSince(t, "end of the context", start, ends-test.early)
				if got := lease.Validity(); got != test.early {
					t.Errorf("validity when the context ended: got %v, want %v", got, test.early)
				}
				time.Sleep(test.early)
				if got := lease.Validity(); got != 0 {
					t.Errorf("validity at the deadline: got %v, want 0", got)
				}
				b.wantHolding("r", 0, 1, 2, 3, 4)
				time.Sleep(time.Until(start.Add(there+test.ttl)) - 1)
				b.wantHolding("r", 0, 1, 2, 3, 4)
				if got := lease.Validity(); got >= 0 {
					t.Errorf("validity after the deadline: got %v, want less than 0", got)
				}
				time.Sleep(time.Nanosecond)
				b.wantHolding("r")
			})
		})
	}
}

// A lease is renewed every third of its TTL, less up to a tenth of that, for as long
// as it is held. Nothing else about it changes, and its deadline never goes back.
//
// Source: ALGORITHM section 1, "RenewEvery"; section 6; section 13, I8.
func TestVirtualRenewalForAnHour(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		b.all(goNative)
		l := b.warmLocker(redlock.WithTTL(time.Second))
		lease := b.lock(l, "r")
		fence, token := lease.Fence(), lease.Token()
		ends := time.Now().Add(lease.Validity())
		for range 4 * 60 * 60 {
			time.Sleep(250 * time.Millisecond)
			left := lease.Validity()
			next := time.Now().Add(left)
			// At worst the next round is just due.
			if least := time.Second*2/3 - 13*time.Millisecond; left < least || lease.Context().Err() != nil {
				t.Fatalf("got validity %v and context error %v, want at least %v and none", left, context.Cause(lease.Context()), least)
			}
			if next.Before(ends) {
				t.Fatalf("deadline went back by %v, want it to move forward only", ends.Sub(next))
			}
			ends = next
		}
		if lease.Fence() != fence || lease.Token() != token {
			t.Errorf("after an hour: got fence %d and token %s, want %d and %s", lease.Fence(), lease.Token(), fence, token)
		}
		for i, n := range b.nodes {
			calls := n.callsOf("extend", "r")
			if got := len(calls); got < 3*3600 || got > 3*3600*10/9+1 {
				t.Errorf("renewals seen by node %d in an hour: got %d, want from %d to %d", i, got, 3*3600, 3*3600*10/9)
			}
			for k := 1; k < len(calls); k++ {
				gap := calls[k].At.Sub(calls[k-1].At)
				if gap <= 300*time.Millisecond-1 || gap > time.Second/3+1 {
					t.Fatalf("time between two renewals: got %v, want more than 300ms and at most a third of a second", gap)
				}
			}
		}
		b.unlock(lease)
		b.wantHolding("r")
	})
}

// Without renewal no extend is sent, and WithMaxHold ends a renewed lease to the
// nanosecond.
//
// Source: ALGORITHM section 6, "Renewal stops at MaxHold"; section 7.
func TestVirtualBoundedHold(t *testing.T) {
	t.Run("without renewal a lease ends with its TTL", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithoutRenewal())
			start := time.Now()
			lease := b.lock(l, "r")
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrExpired})
			wantSince(t, "end of the context", start, validity10-lead10)
			time.Sleep(lead10)
			if got := lease.Validity(); got != 0 {
				t.Errorf("validity at the deadline: got %v, want 0", got)
			}
			if got := b.nodes[0].seen("extend", "r"); got != 0 {
				t.Errorf("renewals: got %d, want 0", got)
			}
		})
	})
	t.Run("an Extend lengthens it", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithoutRenewal())
			lease := b.lock(l, "r")
			time.Sleep(5 * time.Second)
			b.all(func(n *bubbleNode) { n.latency(20*time.Millisecond, 30*time.Millisecond) })
			start := time.Now()
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatalf("Extend: got %v, want no error", err)
			}
			wantSince(t, "Extend", start, 50*time.Millisecond)
			if got, want := lease.Validity(), validity10-50*time.Millisecond; got != want {
				t.Errorf("validity after Extend: got %v, want %v", got, want)
			}
			wantDone(t, lease.Context(), []error{redlock.ErrExpired})
			wantSince(t, "end of the context", start, validity10-lead10)
		})
	})
	t.Run("the maximum hold is exact", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			b.all(func(n *bubbleNode) { n.latency(5*time.Millisecond, 5*time.Millisecond) })
			start := time.Now()
			lease := b.lock(l, "r", redlock.WithMaxHold(47*time.Second))
			time.Sleep(40 * time.Second)
			if err := lease.Extend(t.Context()); err != nil { // does not get past the bound either
				t.Errorf("Extend: got %v, want no error", err)
			}
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrMaxHold}, redlock.ErrExpired)
			wantSince(t, "end of the context", start, 47*time.Second-lead10)
			time.Sleep(lead10)
			if got := lease.Validity(); got != 0 {
				t.Errorf("validity at the bound: got %v, want 0", got)
			}
			err := lease.Extend(t.Context())
			wantMatch(t, "Extend", err, []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrMaxHold})
		})
	})
	t.Run("a maximum hold of one TTL", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			start := time.Now()
			lease := b.lock(l, "r", redlock.WithMaxHold(ttl10))
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrMaxHold})
			wantSince(t, "end of the context", start, ttl10-lead10)
		})
	})
}

// Rounds that fail change nothing: the lease goes on if the nodes are back before its
// deadline, and ends on time if they are not.
//
// Source: ALGORITHM section 6, "Failure of a round changes nothing".
func TestVirtualFailedRenewals(t *testing.T) {
	faults := map[string]func(*bubbleNode){
		"blackholed":    (*bubbleNode).blackhole,
		"hung":          (*bubbleNode).hang,
		"replies lost":  (*bubbleNode).silence,
		"dead":          (*bubbleNode).kill,
		"read-only":     func(n *bubbleNode) { n.replyWith("READONLY You can't write against a read only replica.") },
		"out of memory": func(n *bubbleNode) { n.replyWith("OOM command not allowed when used memory > 'maxmemory'.") },
		"loading":       func(n *bubbleNode) { n.replyWith("LOADING Redis is loading the dataset in memory") },
	}
	for name, fault := range faults {
		t.Run("all nodes "+name+", healed in time", func(t *testing.T) {
			t.Parallel()
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				var failed atomic.Int32
				l := b.warmLocker(redlock.WithObserver(redlock.Observer{ExtendFailed: func(e redlock.Event) {
					failed.Add(1)
					wantMatch(t, "ExtendFailed", e.Err, []error{redlock.ErrNoQuorum})
				}}))
				start := time.Now()
				lease := b.lock(l, "r")
				fence := lease.Fence()
				time.Sleep(2 * time.Second)
				b.all(fault)
				time.Sleep(5 * time.Second) // the first round fails by 3.6 s
				if got, want := lease.Validity(), time.Until(start.Add(validity10)); got != want {
					t.Errorf("validity while the nodes are %s: got %v, want %v", name, got, want)
				}
				if failed.Load() < 2 {
					t.Errorf("rounds that failed: got %d, want at least 2", failed.Load())
				}
				b.all((*bubbleNode).heal)
				time.Sleep(2700 * time.Millisecond) // 200 ms before the old deadline
				if got := lease.Validity(); got < 5*time.Second {
					t.Errorf("validity 2.7 s after healing: got %v, want it renewed", got)
				}
				time.Sleep(time.Minute)
				if err := lease.Context().Err(); err != nil || lease.Fence() != fence {
					t.Errorf("a minute later: got %v and fence %d, want a lease with fence %d", context.Cause(lease.Context()), lease.Fence(), fence)
				}
				b.wantHolding("r", 0, 1, 2, 3, 4)
			})
		})
		t.Run("a majority "+name+", never healed", func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				start := time.Now()
				lease := b.lock(l, "r")
				b.each(fault, 0, 2, 4)
				wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrExpired}, redlock.ErrQuorumLost)
				wantSince(t, "end of the context", start, validity10-lead10)
			})
		})
		t.Run("a minority "+name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				lease := b.lock(l, "r")
				b.each(fault, 1, 3)
				time.Sleep(time.Minute)
				if left := lease.Validity(); left < ttl10*6/10 {
					t.Errorf("validity after a minute: got %v, want it renewed", left)
				}
			})
		})
	}
}

// A round whose replies come after the deadline revives nothing, even if all nodes say
// that they kept the key.
//
// Source: ALGORITHM section 6 ("MUST NOT revive the lease").
func TestVirtualLateRenewal(t *testing.T) {
	t.Run("replies after the end of the context", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithoutRenewal())
			start := time.Now()
			lease := b.lock(l, "r")
			time.Sleep(validity10 - lead10 - 50*time.Millisecond)
			b.all(func(n *bubbleNode) { n.latency(10*time.Millisecond, 100*time.Millisecond) })
			err := lease.Extend(t.Context())
			wantMatch(t, "Extend", err, []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired})
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrExpired})
			time.Sleep(time.Until(start.Add(validity10)))
			if got := lease.Validity(); got != 0 {
				t.Errorf("validity at the old deadline: got %v, want 0", got)
			}
			time.Sleep(time.Second) // the nodes did keep the key
			b.wantHolding("r", 0, 1, 2)
		})
	})
	t.Run("the clock jumps past the deadline while the round is under way", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			clock := locktest.NewJumpClock()
			l := b.warmLocker(redlock.WithoutRenewal(), redlock.WithClock(clock))
			lease := b.lock(l, "r")
			time.Sleep(time.Second)
			b.all(func(n *bubbleNode) { n.latency(20*time.Millisecond, 20*time.Millisecond) })
			done := make(chan error)
			go func() { done <- lease.Extend(context.Background()) }()
			time.Sleep(10 * time.Millisecond)
			clock.Jump(20 * time.Second)
			if err := <-done; err == nil {
				t.Errorf("Extend: got no error, want one: its replies came after the deadline")
			}
			if got := lease.Validity(); got > 0 {
				t.Errorf("validity: got %v, want none", got)
			}
			err := lease.Extend(t.Context())
			wantMatch(t, "Extend again", err, []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired})
		})
	})
}

// steal has a node hold the resource for somebody else.
func steal(n *bubbleNode) { n.put(redlock.DefaultKeyPrefix+"r", "somebody-else|1", time.Hour) }

// A lease whose key is another's, or gone, on so many nodes that the others are no
// exclusive set, is lost at the next round, without waiting for the deadline.
//
// Source: ALGORITHM section 6, "Lost now".
func TestVirtualQuorumLost(t *testing.T) {
	erase := func(n *bubbleNode) { n.put(redlock.DefaultKeyPrefix+"r", "", 0) }
	for _, test := range []struct {
		name  string
		n     int
		fault func(*bubbleNode)
		nodes []int
		lost  bool
	}{
		{"taken on three of five", 5, steal, []int{0, 1, 2}, true},
		{"taken on two of five", 5, steal, []int{3, 4}, false},
		{"missing on three of five", 5, erase, []int{2, 3, 4}, true},
		{"missing on two of five", 5, erase, []int{0, 4}, false},
		{"restarted empty, three of five", 5, (*bubbleNode).restartEmpty, []int{0, 2, 4}, true},
		{"restarted empty, two of five", 5, (*bubbleNode).restartEmpty, []int{0, 2}, false},
		{"taken on two of three", 3, steal, []int{0, 1}, true},
		{"taken on one of three", 3, steal, []int{0}, false},
		{"taken on the only one", 1, steal, []int{0}, true},
		{"taken on two of four", 4, steal, []int{0, 1}, false}, // the quorum is three: two others make none
		{"missing on three of four", 4, erase, []int{0, 1, 3}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, test.n, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				start := time.Now()
				lease := b.lock(l, "r")
				time.Sleep(time.Second)
				b.each(test.fault, test.nodes...)
				if !test.lost {
					time.Sleep(4 * time.Second)
					if err := lease.Context().Err(); err != nil {
						t.Errorf("after a renewal: got %v, want a lease", context.Cause(lease.Context()))
					}
					return
				}
				wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrQuorumLost}, redlock.ErrExpired)
				if got := time.Since(start); got <= 3*time.Second || got > ttl10/3 {
					t.Errorf("end of the context: got it after %v, want the first renewal", got)
				}
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity of a lost lease: got %v, want none", got)
				}
				begin := time.Now()
				wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrQuorumLost})
				wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrQuorumLost})
				wantSince(t, "typed errors", begin, 0)
				synctest.Wait()
				for i, n := range b.nodes {
					if v := n.value("r"); v != "" && v != "somebody-else|1" {
						t.Errorf("key on node %d after Unlock: got %q, want that of somebody else or none", i, v)
					}
				}
			})
		})
	}
}

// An Extend that finds the lease lost says so with the answer that showed it, and does
// not wait for more.
//
// Source: ALGORITHM section 6, "Lost now".
func TestVirtualExtendFindsTheLoss(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		lease := b.lock(l, "r")
		b.each(steal, 0, 1, 2)
		b.all(func(n *bubbleNode) { n.latency(5*time.Millisecond, 5*time.Millisecond) })
		start := time.Now()
		err := lease.Extend(t.Context())
		wantMatch(t, "Extend", err, []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrQuorumLost})
		wantSince(t, "Extend", start, 10*time.Millisecond)
		wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrQuorumLost})
		wantSince(t, "end of the context", start, 10*time.Millisecond)
	})
}

// A node that restarted empty is told the key again by the next round, but is counted by
// none until its quarantine is over.
//
// Source: ALGORITHM section 6, "Counted" and "Filling"; section 8.
func TestVirtualRefilledNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		var forgot, failed atomic.Int32
		l := b.warmLocker(redlock.WithoutRenewal(), redlock.WithObserver(redlock.Observer{
			NodeForgot: func(e redlock.Event) {
				forgot.Add(1)
				if e.Node != b.nodes[0].Addr() || e.Resource != "r" {
					t.Errorf("NodeForgot: got %q and %q, want %q and %q", e.Node, e.Resource, b.nodes[0].Addr(), "r")
				}
			},
			ExtendFailed: func(redlock.Event) { failed.Add(1) },
		}))
		start := time.Now()
		lease := b.lock(l, "r")
		time.Sleep(time.Second)
		b.nodes[0].restartEmpty()
		b.nodes[1].blackhole()

		err := lease.Extend(t.Context())
		wantMatch(t, "Extend with one node down and one that forgot", err, []error{redlock.ErrNoQuorum}, redlock.ErrLost, redlock.ErrNotHeld)
		synctest.Wait()
		if forgot.Load() != 1 || failed.Load() != 1 {
			t.Errorf("got %d NodeForgot and %d ExtendFailed, want 1 and 1", forgot.Load(), failed.Load())
		}
		if got, want := lease.Validity(), time.Until(start.Add(validity10)); got != want {
			t.Errorf("validity after a round that failed: got %v, want %v", got, want)
		}
		b.wantHolding("r", 0, 1, 2)

		err = lease.Extend(t.Context())
		wantMatch(t, "Extend, the round after", err, []error{redlock.ErrNoQuorum}, redlock.ErrLost, redlock.ErrNotHeld)
		b.nodes[1].heal()
		time.Sleep(time.Second) // to connect again
		for range 11 {          // seconds; the quarantine has 10.3
			time.Sleep(time.Second)
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend with two of three that have a vote: got %v, want no error", err)
			}
		}
		b.nodes[1].blackhole()
		if err := lease.Extend(t.Context()); err != nil {
			t.Errorf("Extend when the quarantine is over: got %v, want no error", err)
		}
		if got := lease.Validity(); got != validity10 {
			t.Errorf("validity after the round: got %v, want %v", got, validity10)
		}
		if forgot.Load() != 1 {
			t.Errorf("NodeForgot: got %d, want 1", forgot.Load())
		}
	})
}

// Nodes may restart empty one after the other, as long as a quorum has a vote at any time:
// the lease is filled in again everywhere and goes on.
//
// Source: ALGORITHM section 6, "Filling is why early return costs no safety".
func TestVirtualRollingEmptyRestarts(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		renewed := make(chan redlock.Event, 100)
		var forgot atomic.Int32
		l := b.warmLocker(redlock.WithObserver(redlock.Observer{
			Extended:   func(e redlock.Event) { renewed <- e },
			NodeForgot: func(redlock.Event) { forgot.Add(1) },
		}))
		other := b.warmLocker()
		for len(renewed) > 0 {
			<-renewed
		}
		lease := b.lock(l, "r")
		for i := range 20 {
			for len(renewed) > 0 {
				<-renewed
			}
			b.nodes[i%5].restartEmpty()
			if _, err := other.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
				t.Fatalf("restart %d: TryLock of another Locker got %v, want ErrTaken", i+1, err)
			}
			for e := range renewed {
				if e.Resource == "r" {
					break
				}
			}
			b.wantHolding("r", 0, 1, 2, 3, 4)
			time.Sleep(5 * time.Second) // two of five are in quarantine at a time
			if err := lease.Context().Err(); err != nil {
				t.Fatalf("after restart %d: got %v, want a lease", i+1, context.Cause(lease.Context()))
			}
		}
		if got := forgot.Load(); got != 20 {
			t.Errorf("NodeForgot: got %d, want 20", got)
		}
		b.unlock(lease)
	})
}

// wantNever polls for a while and fails when the key of resource is somewhere.
func wantNever(t *testing.T, b *bubble, resource string, during time.Duration) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got := b.holding(resource); len(got) > 0 {
			t.Fatalf("nodes that have the key of %q: got %v, want none", resource, got)
		}
	}
}

// An acquire that reaches its node after the attempt has ended does nothing there.
//
// Source: ALGORITHM section 3, LATE; section 5, notAfter; CHAOS section 3, "Ghost write".
func TestVirtualLateAcquire(t *testing.T) {
	for _, test := range []struct {
		name string
		hung []int
		err  error
	}{
		{"of a lease", []int{2}, nil},
		{"of an attempt that failed", []int{0, 2}, redlock.ErrNoQuorum},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.each((*bubbleNode).hang, test.hung...)
				lease, err := l.TryLock(t.Context(), "r")
				if !errors.Is(err, test.err) {
					t.Fatalf("TryLock: got %v, want %v", err, test.err)
				}
				time.Sleep(time.Second)
				if lease != nil {
					b.unlock(lease)
				}
				time.Sleep(2 * time.Second)
				b.each((*bubbleNode).resume, test.hung...)
				wantNever(t, b, "r", ttl10)
				late := b.nodes[2]
				if got := late.seen("acquire", "r"); got != 1 {
					t.Errorf("acquires that reached the hung node: got %d, want 1", got)
				}
				for _, c := range late.callsOf("release", "r") { // it would clean up after an orphan
					if c.Before != "" {
						t.Errorf("key that a release found on the hung node: got %q, want none", c.Before)
					}
				}
			})
		})
	}
}

// A node that set the key and whose replies are lost is told to drop it as soon as it
// can be reached again, and no key of the attempt is set after that.
//
// Source: ALGORITHM section 5; section 13, I6.
func TestVirtualLostReply(t *testing.T) {
	for _, test := range []struct {
		name string
		mute []int
	}{
		{"of a lease that was unlocked", []int{4}},
		{"of an attempt that failed", []int{1, 2, 4}},
		{"of an attempt that nobody answered", []int{0, 1, 2, 3, 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.each((*bubbleNode).silence, test.mute...)
				start := time.Now()
				lease, err := l.TryLock(t.Context(), "r")
				if failed := len(test.mute) > 2; failed != (err != nil) {
					t.Fatalf("TryLock: got %v, want an error: %v", err, failed)
				}
				if err != nil {
					wantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum}, redlock.ErrTaken)
					wantSince(t, "TryLock", start, timeout10)
				} else {
					b.unlock(lease)
				}
				b.wantHolding("r", test.mute...)
				time.Sleep(3 * time.Second)
				b.wantHolding("r", test.mute...)
				b.all((*bubbleNode).heal)
				time.Sleep(reconnect10)
				wantNever(t, b, "r", 2*ttl10)
			})
		})
	}
}

// A call that is cancelled while its requests are under way returns at once, and
// leaves nothing.
//
// Source: ALGORITHM section 3, point 5; section 5.
func TestVirtualCancelledAttempt(t *testing.T) {
	const there, back = 60 * time.Millisecond, 40 * time.Millisecond
	for _, after := range []time.Duration{1, 30 * time.Millisecond, 80 * time.Millisecond, 100*time.Millisecond - 1} {
		t.Run(fmt.Sprintf("after %v", after), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.all(func(n *bubbleNode) { n.latency(there, back) })
				gone := errors.New("the user went away")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(after, func() { cancel(gone) })
				start := time.Now()
				_, err := l.Lock(ctx, "r")
				wantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, context.Canceled, gone}, redlock.ErrTaken, redlock.ErrNoQuorum)
				wantSince(t, "Lock", start, after)
				time.Sleep(time.Until(start.Add(there+back+there)) + 1) // the release follows the reply
				wantNever(t, b, "r", ttl10)
			})
		})
	}
	t.Run("before the call", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for _, call := range []func(context.Context, string, ...redlock.LockOption) (*redlock.Lease, error){l.Lock, l.TryLock} {
				start := time.Now()
				_, err := call(ctx, "r")
				wantMatch(t, "with a context that has ended", err, []error{redlock.ErrNotAcquired, context.Canceled})
				wantSince(t, "the error", start, 0)
			}
			time.Sleep(time.Second)
			for i, n := range b.nodes {
				if got := n.seen("acquire", "r"); got != 0 {
					t.Errorf("acquires seen by node %d: got %d, want 0", i, got)
				}
			}
		})
	})
	t.Run("before the nodes are connected", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.locker()
			b.all(func(n *bubbleNode) { n.latency(there, back) })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := l.Lock(ctx, "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, context.DeadlineExceeded})
			wantSince(t, "Lock", start, 10*time.Millisecond)
			wantNever(t, b, "r", 2*time.Second)
		})
	})
}

// One attempt takes no longer than the node timeout, whatever the nodes do, and does
// not wait at all for those that it does not need.
//
// Source: ALGORITHM section 1, "NodeTimeout"; section 3, points 2, 4 and 5.
func TestVirtualOneAttempt(t *testing.T) {
	type fault = func(*bubbleNode)
	for _, test := range []struct {
		name  string
		fault fault
		nodes []int
		takes time.Duration
		want  []error // none: a lease
		not   []error
	}{
		{"all five well", (*bubbleNode).heal, nil, 0, nil, nil},
		{"two of five hung", (*bubbleNode).hang, []int{0, 1}, 0, nil, nil},
		{"two of five dead", (*bubbleNode).kill, []int{1, 3}, 0, nil, nil},
		{"three of five hung", (*bubbleNode).hang, []int{0, 1, 2}, timeout10, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"three of five blackholed", (*bubbleNode).blackhole, []int{2, 3, 4}, timeout10, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"all hung", (*bubbleNode).hang, []int{0, 1, 2, 3, 4}, timeout10, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"three of five dead", (*bubbleNode).kill, []int{0, 1, 2}, 0, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"taken on three of five", steal, []int{0, 2, 4}, 0, []error{redlock.ErrTaken}, []error{redlock.ErrNoQuorum}},
		{"taken on two of five", steal, []int{0, 2}, 0, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.each(test.fault, test.nodes...)
				start := time.Now()
				lease, err := l.TryLock(t.Context(), "r")
				wantSince(t, "TryLock", start, test.takes)
				if len(test.want) == 0 {
					if err != nil {
						t.Fatalf("TryLock: got %v, want a lease", err)
					}
					if got := lease.Validity(); got != validity10-test.takes {
						t.Errorf("validity: got %v, want %v", got, validity10-test.takes)
					}
					return
				}
				wantMatch(t, "TryLock", err, append(test.want, redlock.ErrNotAcquired), test.not...)
				var verdict *redlock.QuorumError
				if !errors.As(err, &verdict) || verdict.Need != 3 || verdict.Granted > 2 || verdict.Resource != "r" || verdict.Op != "lock" {
					t.Errorf("TryLock: got %+v, want a QuorumError of lock r with at most 2 of 3", verdict)
				}
				b.all((*bubbleNode).heal)
				time.Sleep(reconnect10)
				for i, n := range b.nodes {
					if v := n.value("r"); v != "" && v != "somebody-else|1" {
						t.Errorf("key on node %d after a failed attempt: got %q, want none of ours", i, v)
					}
				}
			})
		})
	}
}

// Nodes slower than the node timeout fail the attempt at that moment. The keys that
// they set nevertheless are dropped as soon as they are fast enough to be talked to; if
// they stay slow, the keys expire.
//
// Source: ALGORITHM section 1, "NodeTimeout"; section 5; section 1, P4.
func TestVirtualSlowNodes(t *testing.T) {
	slow := func(n *bubbleNode) { n.latency(100*time.Millisecond, 151*time.Millisecond) }
	for _, staysSlow := range []bool{false, true} {
		t.Run(fmt.Sprintf("slow for ever: %v", staysSlow), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.all(slow)
				start := time.Now()
				_, err := l.TryLock(t.Context(), "r")
				wantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum}, redlock.ErrTaken)
				wantSince(t, "TryLock", start, timeout10)
				b.wantHolding("r", 0, 1, 2)
				if staysSlow {
					time.Sleep(time.Until(start.Add(100*time.Millisecond + ttl10)))
				} else {
					b.all(func(n *bubbleNode) { n.latency(0, 0) })
					time.Sleep(reconnect10)
				}
				wantNever(t, b, "r", ttl10)
			})
		})
	}
}

// A lease that would be granted with less than half of its TTL left is none.
//
// Source: ALGORITHM section 1, "MinValidity"; section 3, point 4.
func TestVirtualMinimumValidity(t *testing.T) {
	// 1 s - 12 ms drift - 250 ms grace - 500 ms: 238 ms are left for the round trip.
	for _, test := range []struct {
		trip time.Duration
		ok   bool
	}{
		{238 * time.Millisecond, true},
		{239 * time.Millisecond, false},
	} {
		t.Run(fmt.Sprintf("round trip of %v", test.trip), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker(redlock.WithTTL(time.Second), redlock.WithNodeTimeout(timeout10), redlock.WithGrace(250*time.Millisecond))
				b.all(func(n *bubbleNode) { n.latency(test.trip, 0) })
				start := time.Now()
				lease, err := l.TryLock(t.Context(), "r")
				wantSince(t, "TryLock", start, test.trip)
				if test.ok {
					if err != nil || lease.Validity() != 500*time.Millisecond {
						t.Errorf("TryLock: got %v, want a lease with 500ms left", err)
					}
					return
				}
				wantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum}, redlock.ErrTaken)
				time.Sleep(test.trip)
				wantNever(t, b, "r", time.Second)
			})
		})
	}
}

// Unlock returns with the quorum, however the other nodes are, and within the node
// timeout if there is none. The keys go as soon as the nodes are back.
//
// Source: ALGORITHM section 5.
func TestVirtualUnlock(t *testing.T) {
	t.Run("two of five hung", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			synctest.Wait()
			b.each((*bubbleNode).hang, 3, 4)
			start := time.Now()
			b.unlock(lease)
			wantSince(t, "Unlock", start, 0)
			b.wantHolding("r", 3, 4)
			time.Sleep(time.Second)
			b.each((*bubbleNode).resume, 3, 4)
			b.wantHolding("r")
		})
	})
	t.Run("latency is that of the quorum", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			for i, n := range b.nodes {
				n.latency(time.Duration(i+1)*time.Millisecond, time.Duration(i+1)*time.Millisecond)
			}
			start := time.Now()
			b.unlock(lease)
			wantSince(t, "Unlock", start, 6*time.Millisecond)
		})
	})
	for name, fault := range map[string]func(*bubbleNode){"hung": (*bubbleNode).hang, "blackholed": (*bubbleNode).blackhole} {
		t.Run("three of five "+name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				lease := b.lock(l, "r")
				synctest.Wait()
				b.each(fault, 0, 1, 2)
				start := time.Now()
				err := lease.Unlock(t.Context())
				wantMatch(t, "Unlock", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld, redlock.ErrLost)
				wantSince(t, "Unlock", start, timeout10)
				wantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased}, redlock.ErrLost)
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity after Unlock: got %v, want none", got)
				}
				b.wantHolding("r", 0, 1, 2)
				time.Sleep(2 * time.Second)
				b.all((*bubbleNode).heal)
				time.Sleep(reconnect10)
				wantNever(t, b, "r", ttl10)
			})
		})
	}
	t.Run("a connection that broke", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			synctest.Wait()
			b.all(func(n *bubbleNode) { n.kill(); n.restart() })
			start := time.Now()
			b.unlock(lease)
			wantSince(t, "Unlock", start, 0)
			b.wantHolding("r")
		})
	})
	t.Run("with a context that has ended", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			ctx, cancel := context.WithCancel(t.Context())
			lease, err := l.Lock(ctx, "r")
			if err != nil {
				t.Fatalf("Lock: got %v, want a lease", err)
			}
			cancel()
			if err := lease.Unlock(ctx); err != nil {
				t.Errorf("Unlock: got %v, want no error", err)
			}
			b.wantHolding("r")
		})
	})
	t.Run("the key expired on the nodes by a step of their clocks", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			synctest.Wait()
			b.all(func(n *bubbleNode) { n.runClock(1, time.Hour) })
			wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
		})
	})
}

// A lease that is over says so at once, by an error that names the reason, and
// nobody else's key is touched.
//
// Source: ALGORITHM section 5 (ErrNotHeld); section 13, I9.
func TestVirtualUseAfterTheEnd(t *testing.T) {
	t.Run("after Unlock", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			b.unlock(lease)
			next := b.lock(l, "r")
			b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
			start := time.Now()
			wantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			wantSince(t, "typed errors", start, 0)
			wantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased})
			time.Sleep(time.Second)
			b.wantHolding("r", 0, 1, 2)
			if next.Validity() <= 0 {
				t.Errorf("validity of the next lease: got %v, want some", next.Validity())
			}
		})
	})
	t.Run("after expiry, with another holder", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, other := b.warmLocker(redlock.WithoutRenewal()), b.warmLocker()
			lease := b.lock(l, "r")
			time.Sleep(ttl10 + time.Millisecond)
			next := b.lock(other, "r")
			start := time.Now()
			wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired}, redlock.ErrReleased)
			wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired}, redlock.ErrReleased)
			wantSince(t, "typed errors", start, 0)
			time.Sleep(2 * time.Second)
			b.wantHolding("r", 0, 1, 2)
			for i, n := range b.nodes {
				if got := n.callsOf("release", "r"); len(got) > 1 {
					t.Errorf("releases seen by node %d: got %d, want at most 1", i, len(got))
				}
			}
			if err := next.Extend(t.Context()); err != nil {
				t.Errorf("Extend of the next lease: got %v, want no error", err)
			}
			if next.Fence() <= lease.Fence() {
				t.Errorf("fence: got %d after %d, want a larger one", next.Fence(), lease.Fence())
			}
			// The handle stays as it is.
			wantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
		})
	})
	t.Run("just before the deadline, when the context has ended", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithoutRenewal())
			lease := b.lock(l, "r")
			<-lease.Context().Done()
			wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired})
			wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired})
			b.wantHolding("r") // it is given back all the same
		})
	})
}

// Close releases everything, tells everybody, and returns within its bound.
//
// Source: ALGORITHM section 5 ("Closing the client waits for these, bounded"); section 13, I11.
func TestVirtualClose(t *testing.T) {
	t.Run("releases all leases", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			var leases []*redlock.Lease
			for i := range 10 {
				leases = append(leases, b.lock(l, fmt.Sprint("r", i)))
			}
			inUse := leases[0].Context()
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			wantSince(t, "Close", start, 0)
			if inUse.Err() == nil {
				t.Error("context after Close: got none that has ended, want one")
			}
			for i, lease := range leases {
				b.wantHolding(fmt.Sprint("r", i))
				wantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased, redlock.ErrClosed}, redlock.ErrLost)
				wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
				wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity after Close: got %v, want none", got)
				}
			}
			_, err := l.Lock(t.Context(), "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrClosed})
			_, err = l.TryLock(t.Context(), "r")
			wantMatch(t, "TryLock", err, []error{redlock.ErrClosed})
			err = l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error {
				t.Error("Do: got fn called, want it not to be")
				return nil
			})
			wantMatch(t, "Do", err, []error{redlock.ErrClosed})
			if err := l.Close(); err != nil {
				t.Errorf("second Close: got %v, want no error", err)
			}
		})
	})
	t.Run("before anything was done", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.locker()
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			wantSince(t, "Close", start, 0)
		})
	})
	for name, fault := range map[string]func(*bubbleNode){
		"hung": (*bubbleNode).hang, "blackholed": (*bubbleNode).blackhole, "dead": (*bubbleNode).kill,
	} {
		t.Run("all nodes "+name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				for i := range 3 {
					b.lock(l, fmt.Sprint("r", i))
				}
				synctest.Wait()
				b.all(fault)
				start := time.Now()
				wantMatch(t, "Close", l.Close(), []error{redlock.ErrNoQuorum})
				wantWithin(t, "Close", start, 3*timeout10)
				wantMatch(t, "second Close", l.Close(), []error{redlock.ErrNoQuorum})
			})
		})
		t.Run("all nodes "+name+" for long", func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.lock(l, "r")
				synctest.Wait()
				b.all(fault)
				time.Sleep(5 * time.Second) // renewals have failed, dials are under way
				start := time.Now()
				wantMatch(t, "Close", l.Close(), []error{redlock.ErrNoQuorum})
				wantWithin(t, "Close", start, 3*timeout10)
			})
		})
	}
	t.Run("two of five hung", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			b.lock(l, "r")
			synctest.Wait()
			b.each((*bubbleNode).hang, 1, 2)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error: a quorum confirmed", err)
			}
			wantWithin(t, "Close", start, 3*timeout10)
			b.each((*bubbleNode).resume, 1, 2)
			b.wantHolding("r") // what was sent arrives
		})
	})
	t.Run("while callers wait", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, other := b.warmLocker(), b.warmLocker()
			b.lock(other, "r")
			var ended sync.WaitGroup
			for range 5 {
				ended.Go(func() {
					_, err := l.Lock(context.Background(), "r")
					wantMatch(t, "Lock", err, []error{redlock.ErrClosed})
				})
			}
			time.Sleep(time.Second)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			ended.Wait()
			wantSince(t, "Close", start, 0)
		})
	})
	t.Run("while an attempt is under way", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			b.all(func(n *bubbleNode) { n.latency(50*time.Millisecond, 50*time.Millisecond) })
			done := make(chan error, 1)
			go func() {
				_, err := l.TryLock(context.Background(), "r")
				done <- err
			}()
			time.Sleep(10 * time.Millisecond)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			wantMatch(t, "TryLock", <-done, []error{redlock.ErrClosed})
			wantWithin(t, "Close", start, 3*timeout10)
			time.Sleep(50 * time.Millisecond)
			wantNever(t, b, "r", ttl10)
		})
	})
}

// A call that waits gets the resource when its holder's key expires, or is given back,
// and waits as long as its context allows: no TTL bounds it.
//
// Source: ALGORITHM section 10; distlock, "Retry on Failure".
func TestVirtualWaiting(t *testing.T) {
	t.Parallel()
	const longestPause = 100*time.Millisecond + time.Microsecond
	t.Run("for the expiry of a holder that is gone", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l, other := b.warmLocker(redlock.WithTTL(time.Second), redlock.WithoutRenewal()), b.warmLocker()
			start := time.Now()
			held := b.lock(l, "r")
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
	})
	for _, test := range []struct {
		name    string
		same    bool // one Locker
		longest time.Duration
	}{
		{"for Unlock by another Locker, a minute later", false, longestPause},
		{"for Unlock by the same Locker, a minute later", true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				b.all(goNative)
				l := b.warmLocker(redlock.WithTTL(time.Second))
				other := l
				if !test.same {
					other = b.warmLocker(redlock.WithTTL(time.Second))
				}
				held := b.lock(l, "r")
				var released time.Time
				time.AfterFunc(time.Minute, func() {
					released = time.Now()
					if err := held.Unlock(context.Background()); err != nil {
						t.Errorf("Unlock: got %v, want no error", err)
					}
				})
				if _, err := other.Lock(t.Context(), "r"); err != nil {
					t.Fatalf("Lock: got %v, want a lease", err)
				}
				wantWithin(t, "Lock", released, test.longest)
			})
		})
	}
	t.Run("until the context ends", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l, other := b.warmLocker(), b.warmLocker()
			held := b.lock(l, "r")
			ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
			defer cancel()
			start := time.Now()
			_, err := other.Lock(ctx, "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.DeadlineExceeded}, redlock.ErrNoQuorum)
			wantSince(t, "Lock", start, 35*time.Second)
			b.unlock(held)
			b.wantHolding("r")
		})
	})
	t.Run("for nodes, until the context ends", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l := b.warmLocker()
			b.each((*bubbleNode).kill, 0, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			start := time.Now()
			_, err := l.Lock(ctx, "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum, context.DeadlineExceeded}, redlock.ErrTaken)
			wantSince(t, "Lock", start, 3*time.Second)
		})
	})
	t.Run("for nodes that come back", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l := b.warmLocker()
			b.all((*bubbleNode).hang)
			start := time.Now()
			time.AfterFunc(20*time.Second, func() { b.all((*bubbleNode).resume) })
			if _, err := l.Lock(t.Context(), "r"); err != nil {
				t.Fatalf("Lock: got %v, want a lease", err)
			}
			if got := time.Since(start); got < 20*time.Second || got > 20*time.Second+reconnect10 {
				t.Errorf("Lock: got it after %v, want from 20s to %v", got, 20*time.Second+reconnect10)
			}
		})
	})
}

// Callers of one Locker are served in the order they came; one whose context ends
// leaves the line, and the next is served in its place.
//
// Source: ALGORITHM section 10, "In one process"; section 13, I10.
func TestVirtualFirstComeFirstServed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		b.all(goNative)
		l, other := b.warmLocker(), b.warmLocker()
		held := b.lock(other, "r")
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
					wantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.Canceled})
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
		b.unlock(held)
		start := time.Now()
		ended.Wait()
		if !slices.IsSorted(order) || len(order) != callers-gone {
			t.Errorf("order: got %v, want %d in the order they came", order, callers-gone)
		}
		wantWithin(t, "all of them", start, (callers-gone)*hold+101*time.Millisecond)
	})
}

// Every later lease has a larger fencing token, while nodes fail and come back, with
// their data or without.
//
// Source: ALGORITHM section 1, P2; section 4; section 13, I2 and I5.
func TestVirtualFenceRises(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		b.all(goNative)
		l := b.warmLocker(redlock.WithTTL(200*time.Millisecond), redlock.WithMaxTTL(200*time.Millisecond), redlock.WithoutRenewal())
		rng := rand.New(rand.NewPCG(3, 4))
		var last int64
		cycles, failed := 0, 0
		for cycles < 1000 && failed < 4000 {
			time.Sleep(time.Duration(1+rng.IntN(60)) * time.Millisecond)
			if n := b.nodes[rng.IntN(5)]; rng.IntN(8) == 0 {
				switch rng.IntN(6) {
				case 0:
					n.kill()
				case 1:
					n.hang()
				case 2:
					n.silence()
				case 3:
					n.restartEmpty()
				case 4:
					n.latency(time.Duration(rng.IntN(6))*time.Millisecond, time.Duration(rng.IntN(6))*time.Millisecond)
				}
			}
			if rng.IntN(2) == 0 {
				b.nodes[rng.IntN(5)].heal()
			}
			lease, err := l.TryLock(t.Context(), "r")
			if err != nil {
				failed++
				continue
			}
			if lease.Fence() <= last {
				t.Fatalf("fence of lease %d: got %d after %d, want a larger one", cycles+1, lease.Fence(), last)
			}
			last = lease.Fence()
			cycles++
			if rng.IntN(3) > 0 { // others expire
				_ = lease.Unlock(t.Context())
			} else {
				time.Sleep(lease.Validity())
			}
		}
		if cycles < 1000 {
			t.Errorf("leases: got %d, want 1000", cycles)
		}
		t.Logf("%d leases, %d attempts failed", cycles, failed)
	})
}

// Contenders get tokens that are unique, and rise from each holder to the next.
//
// Source: ALGORITHM section 13, I1 and I2.
func TestVirtualFenceOfContenders(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		b.all(goNative)
		b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
		var mu sync.Mutex
		var fences []int64
		var ended sync.WaitGroup
		for range 3 {
			l := b.locker()
			ended.Go(func() {
				for range 50 {
					err := l.Do(context.Background(), "r", func(_ context.Context, lease *redlock.Lease) error {
						mu.Lock()
						fences = append(fences, lease.Fence())
						mu.Unlock()
						time.Sleep(time.Millisecond)
						return nil
					})
					if err != nil {
						t.Errorf("Do: got %v, want no error", err)
					}
				}
			})
		}
		ended.Wait()
		if len(fences) != 150 {
			t.Errorf("leases: got %d, want 150", len(fences))
		}
		for i := 1; i < len(fences); i++ {
			if fences[i] <= fences[i-1] {
				t.Fatalf("fence of lease %d: got %d after %d, want a larger one", i+1, fences[i], fences[i-1])
			}
		}
	})
}

// Counters that failed attempts have put out of step cost the next lease a second
// round trip, and later ones none.
//
// Source: ALGORITHM section 4.
func TestVirtualSecondRound(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		b.unlock(b.lock(l, "r"))
		const counterKey = redlock.DefaultKeyPrefix + "r~fence"
		count := number(b.nodes[0].at(counterKey)) + 3*64
		b.each(func(n *bubbleNode) { n.put(counterKey, strconv.FormatInt(count, 10), time.Minute) }, 0, 1) // as three attempts leave them that failed on the others
		const trip = 10 * time.Millisecond
		for i, n := range b.nodes {
			n.latency(0, trip+time.Duration(i)*time.Microsecond) // the votes come in order
		}
		start := time.Now()
		lease := b.lock(l, "r")
		// The target is known with the vote of node 2, which is then raised.
		wantSince(t, "the lease", start, 2*(trip+2*time.Microsecond))
		time.Sleep(time.Second)
		for i, n := range b.nodes {
			want := 0
			if i >= 2 {
				want = 1
			}
			if got := n.seen("raise", "r"); i < 3 && got != want {
				t.Errorf("raises seen by node %d: got %d, want %d", i, got, want)
			}
		}
		time.Sleep(time.Second)
		b.unlock(lease)
		time.Sleep(time.Second)
		counter := b.nodes[0].at(counterKey)
		for i, n := range b.nodes {
			if got := n.at(counterKey); got != counter {
				t.Errorf("counter of node %d: got %s, want %s as on node 0", i, got, counter)
			}
			n.forgetCalls()
		}
		start = time.Now()
		next := b.lock(l, "r")
		wantSince(t, "the next lease", start, trip+2*time.Microsecond)
		if next.Fence() <= lease.Fence() {
			t.Errorf("fence: got %d after %d, want a larger one", next.Fence(), lease.Fence())
		}
		time.Sleep(time.Second)
		for i, n := range b.nodes {
			if got := n.seen("raise", "r"); got != 0 {
				t.Errorf("raises seen by node %d for the next lease: got %d, want 0", i, got)
			}
		}
	})
}

// The holder's clock is all that a lease is judged by: if it jumps ahead, as after a
// suspend, the lease is over at the first look. Where it starts does not matter.
//
// Source: ALGORITHM sections 7 and 11.
func TestVirtualClockOfTheHolder(t *testing.T) {
	t.Run("jumps past the deadline", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			clock := locktest.NewJumpClock()
			l, other := b.warmLocker(redlock.WithClock(clock)), b.warmLocker()
			watched, extended, unlocked := b.lock(l, "watched"), b.lock(l, "extended"), b.lock(l, "unlocked")
			ctx := watched.Context()
			time.Sleep(1300 * time.Millisecond)
			clock.Jump(time.Hour)
			b.all(func(n *bubbleNode) { n.runClock(1, time.Hour) })
			_, _ = other.TryLock(t.Context(), "r") // learns that the nodes' clocks have jumped
			synctest.Wait()
			start := time.Now()
			for _, lease := range []*redlock.Lease{watched, extended, unlocked} {
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity at the first look: got %v, want none", got)
				}
				if _, err := other.Lock(t.Context(), lease.Resource()); err != nil {
					t.Errorf("Lock by another Locker: got %v, want a lease", err)
				}
			}
			wantMatch(t, "Extend", extended.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired})
			wantMatch(t, "Unlock", unlocked.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrExpired})
			wantSince(t, "typed errors", start, 0)
			wantDone(t, ctx, []error{redlock.ErrLost, redlock.ErrExpired})
			wantWithin(t, "end of the context", start, time.Second)
			time.Sleep(5 * time.Second)
			for _, lease := range []*redlock.Lease{watched, extended, unlocked} {
				b.wantHolding(lease.Resource(), 0, 1, 2) // for the other Locker
			}
		})
	})
	for _, ahead := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour, 1<<63 - 1 - time.Hour} {
		t.Run(fmt.Sprintf("starts at %v", ahead), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				clock := locktest.NewJumpClock()
				clock.Jump(ahead)
				l := b.warmLocker(redlock.WithClock(clock))
				lease := b.lock(l, "r")
				if got := lease.Validity(); got != validity10 {
					t.Errorf("validity: got %v, want %v", got, validity10)
				}
				time.Sleep(time.Minute)
				if err := lease.Context().Err(); err != nil {
					t.Errorf("after a minute: got %v, want a lease", context.Cause(lease.Context()))
				}
				b.unlock(lease)
			})
		})
	}
}

// Clocks of nodes may run off by less than half the drift, and be set to anything: a
// lease excludes others until its deadline. TestVirtualCheckerCatches has what happens with
// clocks that do worse.
//
// Source: ALGORITHM section 1, A1; section 9; section 13, I1 and I3.
func TestVirtualClocksOfNodes(t *testing.T) {
	for _, test := range []struct {
		name  string
		rates []float64
	}{
		{"0.4 % fast", []float64{1.004, 1.004, 1.004}},
		{"0.4 % slow", []float64{0.996, 0.996, 0.996}},
		{"apart by 0.8 %", []float64{0.996, 1.004, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				b.all(goNative)
				for i, n := range b.nodes {
					n.runClock(test.rates[i], time.Duration(i-1)*2*time.Second)
				}
				l, other := b.warmLocker(redlock.WithoutRenewal()), b.warmLocker()
				held := b.lock(l, "r")
				lease, err := other.Lock(t.Context(), "r")
				if err != nil {
					t.Fatalf("Lock: got %v, want a lease", err)
				}
				if held.Validity() > 0 {
					t.Errorf("validity of the holder before, when the next had a lease: got %v, want it over", held.Validity())
				}
				time.Sleep(time.Minute)
				if err := lease.Context().Err(); err != nil {
					t.Errorf("a minute later: got %v, want a lease", context.Cause(lease.Context()))
				}
			})
		})
	}
	t.Run("an hour without a word makes no request late", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithTTL(50 * time.Millisecond)) // a node timeout of 5 ms
			b.all(func(n *bubbleNode) { n.runClock(1.004, 0) })
			time.Sleep(time.Hour)
			lease, err := l.TryLock(t.Context(), "r")
			if err != nil {
				t.Fatalf("TryLock: got %v, want a lease", err)
			}
			b.unlock(lease)
		})
	})
	t.Run("a step of all costs one attempt", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l := b.warmLocker()
			for name, step := range map[string]time.Duration{"back": -time.Hour, "ahead": time.Hour} {
				b.all(func(n *bubbleNode) { n.runClock(1, step) })
				_, err := l.TryLock(t.Context(), name)
				wantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum})
				b.wantHolding(name)
				start := time.Now()
				lease, err := l.Lock(t.Context(), name)
				if err != nil {
					t.Fatalf("Lock: got %v, want a lease", err)
				}
				wantSince(t, "Lock", start, 0)
				b.unlock(lease)
			}
		})
	})
}

// Do gives its function a context that ends with the caller's or with the lease, and
// unlocks in any case.
//
// Source: ALGORITHM section 7; the doc comment of Locker.Do.
func TestVirtualDo(t *testing.T) {
	type ctxKey struct{}
	errWork := errors.New("work failed")
	t.Run("the function's context", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "v"), 25*time.Second)
			defer cancel()
			start := time.Now()
			var inner context.Context
			err := l.Do(ctx, "r", func(ctx context.Context, lease *redlock.Lease) error {
				inner = ctx
				if got := ctx.Value(ctxKey{}); got != "v" {
					t.Errorf("value: got %v, want v", got)
				}
				if at, ok := ctx.Deadline(); !ok || at.Sub(start) != 25*time.Second {
					t.Errorf("deadline: got %v and %v, want 25s", at.Sub(start), ok)
				}
				<-ctx.Done()
				wantSince(t, "end of the context", start, 25*time.Second)
				if lease.Validity() <= 0 {
					t.Errorf("validity: got %v, want some: only the caller's context ended", lease.Validity())
				}
				wantMatch(t, "cause", context.Cause(ctx), []error{context.DeadlineExceeded})
				return errWork
			})
			wantMatch(t, "Do", err, []error{errWork}, redlock.ErrLost)
			if inner.Err() == nil {
				t.Error("context after Do: got none that has ended, want one")
			}
			b.wantHolding("r")
		})
	})
	t.Run("the caller's deadline is told as such, every time", func(t *testing.T) {
		inBubble(t, 1, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				err := l.Do(ctx, "r", func(ctx context.Context, _ *redlock.Lease) error {
					<-ctx.Done()
					return ctx.Err()
				})
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("call %d: got %v from the context, want DeadlineExceeded", i+1, err)
				}
			}
		})
	})
	t.Run("the cause of a cancellation comes through", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			ctx, cancel := context.WithCancelCause(t.Context())
			err := l.Do(ctx, "r", func(ctx context.Context, _ *redlock.Lease) error {
				cancel(errWork)
				wantDone(t, ctx, []error{errWork})
				return nil
			})
			if err != nil {
				t.Errorf("Do: got %v, want no error", err)
			}
			b.wantHolding("r")
		})
	})
	t.Run("a lease that is lost", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			start := time.Now()
			err := l.Do(t.Context(), "r", func(ctx context.Context, _ *redlock.Lease) error {
				b.all((*bubbleNode).blackhole)
				wantDone(t, ctx, []error{redlock.ErrLost, redlock.ErrExpired})
				wantSince(t, "end of the context", start, validity10-lead10)
				return errWork
			})
			wantMatch(t, "Do", err, []error{errWork, redlock.ErrLost, redlock.ErrExpired})
			if joined, ok := err.(interface{ Unwrap() []error }); !ok || joined.Unwrap()[0] != errWork {
				t.Errorf("Do: got %v, want the function's error first", err)
			}
		})
	})
	t.Run("a lease that is lost unnoticed", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithoutRenewal())
			err := l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error {
				time.Sleep(time.Minute)
				return nil
			})
			wantMatch(t, "Do", err, []error{redlock.ErrLost, redlock.ErrExpired})
		})
	})
	t.Run("the function's error alone", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			err := l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error { return errWork })
			if err != errWork {
				t.Errorf("Do: got %v, want the function's error as it is", err)
			}
			b.wantHolding("r")
		})
	})
	t.Run("a panic", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			func() {
				defer func() {
					if got := recover(); got != "oops" {
						t.Errorf("panic: got %v, want oops", got)
					}
				}()
				_ = l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error { panic("oops") })
			}()
			b.wantHolding("r")
		})
	})
	t.Run("a resource that is taken", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, other := b.warmLocker(), b.warmLocker()
			b.lock(other, "r")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := l.Do(ctx, "r", func(context.Context, *redlock.Lease) error {
				t.Error("got fn called, want it not to be")
				return nil
			})
			wantMatch(t, "Do", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.DeadlineExceeded})
		})
	})
}

// A call inside a lease, by its context, is told apart from other callers: it gets
// another handle with WithReentry, and an error instead of a deadlock without.
//
// Source: the doc comment of WithReentry.
func TestVirtualReentry(t *testing.T) {
	t.Run("without the option", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			derived, cancel := context.WithTimeout(lease.Context(), time.Minute)
			defer cancel()
			_, err := l.Lock(derived, "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrReentry}, redlock.ErrNotAcquired)
			_, err = l.TryLock(derived, "r")
			wantMatch(t, "TryLock", err, []error{redlock.ErrReentry}, redlock.ErrNotAcquired)
			err = l.Do(t.Context(), "s", func(ctx context.Context, _ *redlock.Lease) error {
				return l.Do(ctx, "s", func(context.Context, *redlock.Lease) error { return nil })
			})
			wantMatch(t, "Do in Do", err, []error{redlock.ErrReentry})
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend after it: got %v, want no error", err)
			}
			b.wantHolding("r", 0, 1, 2)
			b.unlock(lease)
			b.wantHolding("r")
		})
	})
	t.Run("the holds are counted", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithReentry())
			outer := b.lock(l, "r")
			inner, err := l.Lock(outer.Context(), "r")
			if err != nil {
				t.Fatalf("Lock: got %v, want a handle", err)
			}
			innermost, err := l.TryLock(inner.Context(), "r")
			if err != nil {
				t.Fatalf("TryLock: got %v, want a handle", err)
			}
			if inner.Fence() != outer.Fence() || innermost.Token() != outer.Token() {
				t.Errorf("inner handles: got fence %d, token %s, want %d, %s", inner.Fence(), innermost.Token(), outer.Fence(), outer.Token())
			}
			b.unlock(inner)
			wantMatch(t, "unlocking it twice", inner.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
			wantMatch(t, "extending it", inner.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
			if outer.Validity() <= 0 || outer.Context().Err() != nil || inner.Validity() > 0 {
				t.Errorf("validity: got %v outside and %v inside, want some and none", outer.Validity(), inner.Validity())
			}
			b.unlock(outer)
			b.wantHolding("r", 0, 1, 2)
			time.Sleep(time.Minute) // the last handle has the lease renewed
			if err := innermost.Extend(t.Context()); err != nil {
				t.Errorf("Extend: got %v, want no error", err)
			}
			b.unlock(innermost)
			b.wantHolding("r")
			wantMatch(t, "unlocking once more", outer.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
		})
	})
	t.Run("other resources and other Lockers are asked for as usual", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, other := b.warmLocker(redlock.WithReentry()), b.warmLocker(redlock.WithReentry())
			r := b.lock(l, "r")
			s, err := l.TryLock(r.Context(), "s")
			if err != nil {
				t.Fatalf("TryLock(s) inside r: got %v, want a lease", err)
			}
			again, err := l.TryLock(s.Context(), "r")
			if err != nil || again.Token() != r.Token() {
				t.Errorf("TryLock(r) inside s inside r: got %v, want a handle of r", err)
			}
			_, err = other.TryLock(s.Context(), "r")
			wantMatch(t, "TryLock(r) of another Locker", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
			_, err = l.TryLock(t.Context(), "r")
			wantMatch(t, "TryLock(r) outside", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
		})
	})
	t.Run("when the lease is over", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithReentry())
			first := b.lock(l, "r")
			inside := context.WithoutCancel(first.Context())
			b.unlock(first)
			second, err := l.TryLock(inside, "r")
			if err != nil {
				t.Fatalf("TryLock after Unlock: got %v, want a lease", err)
			}
			if second.Token() == first.Token() || second.Fence() <= first.Fence() {
				t.Errorf("TryLock after Unlock: got token %s and fence %d, want a new lease", second.Token(), second.Fence())
			}
			b.unlock(second)
			_, err = l.TryLock(first.Context(), "r")
			wantMatch(t, "TryLock with the lease's own context", err, []error{redlock.ErrNotAcquired, context.Canceled, redlock.ErrReleased})
		})
	})
	t.Run("a lost lease ends all handles", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithReentry(), redlock.WithoutRenewal())
			outer := b.lock(l, "r")
			inner, err := l.TryLock(outer.Context(), "r")
			if err != nil {
				t.Fatalf("TryLock: got %v, want a handle", err)
			}
			a, c := outer.Context(), inner.Context()
			time.Sleep(ttl10)
			for _, ctx := range []context.Context{a, c} {
				wantDone(t, ctx, []error{redlock.ErrLost, redlock.ErrExpired})
			}
			wantMatch(t, "Unlock inside", inner.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost})
			wantMatch(t, "Unlock outside", outer.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost})
		})
	})
}

// overlapChecker sees every lease of one resource, and looks for two that are valid
// at one instant. All Lockers of a bubble have the same clock.
type overlapChecker struct {
	mu       sync.Mutex
	held     map[*redlock.Lease]bool // whether it was seen to be over
	last     int64                   // largest fencing token so far
	leases   int
	problems []string
}

func (c *overlapChecker) granted(lease *redlock.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = make(map[*redlock.Lease]bool)
	}
	c.leases++
	c.held[lease] = false
	c.lookLocked()
	switch f := lease.Fence(); {
	case f == c.last:
		c.problems = append(c.problems, fmt.Sprintf("fence %d twice", f))
	case f < c.last:
		c.problems = append(c.problems, fmt.Sprintf("fence %d after %d", f, c.last))
	}
	c.last = max(c.last, lease.Fence())
}

// unlocking is called before Unlock.
func (c *overlapChecker) unlocking(lease *redlock.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookLocked()
	delete(c.held, lease)
}

func (c *overlapChecker) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookLocked()
}

func (c *overlapChecker) lookLocked() {
	valid := 0
	for lease, over := range c.held {
		if c.held[lease] = lease.Validity() <= 0; c.held[lease] {
			continue
		}
		valid++
		if over {
			c.problems = append(c.problems, "a lease valid again after its end")
		}
	}
	if valid > 1 {
		c.problems = append(c.problems, fmt.Sprintf("%d leases valid at once", valid))
	}
}

// storm has three Lockers contend for one resource while a seeded schedule of faults goes
// over the nodes, and returns what the checker saw.
func storm(t *testing.T, seed uint64, during time.Duration, prefix func(i int) string, harm func(*rand.Rand, *bubbleNode), opts ...redlock.Option) *overlapChecker {
	c := &overlapChecker{}
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		b.all(goNative)
		ctx, stop := context.WithTimeout(t.Context(), during)
		defer stop()
		var ended sync.WaitGroup
		for i := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			l := b.locker(append(opts, redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithKeyPrefix(prefix(i)))...)
			ended.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
					lease, err := l.TryLock(ctx, "r")
					if err != nil {
						continue
					}
					c.granted(lease)
					work := time.NewTimer(time.Duration(rng.IntN(1500)) * time.Millisecond)
					if rng.IntN(2) == 0 {
						<-work.C // works on, whatever becomes of the lease
					} else {
						select {
						case <-work.C:
						case <-lease.Context().Done():
						}
						work.Stop()
					}
					c.unlocking(lease)
					_ = lease.Unlock(ctx)
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed, 99))
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			harm(rng, b.nodes[rng.IntN(5)])
			for range 2 {
				n := b.nodes[rng.IntN(5)]
				n.heal()
				n.latency(time.Duration(rng.IntN(5))*time.Millisecond, time.Duration(rng.IntN(5))*time.Millisecond)
			}
			c.look()
		}
		b.all((*bubbleNode).heal)
		ended.Wait()
	})
	return c
}

// harmless is one of the faults that Redlock promises to survive on any number of
// nodes: none of them loses a key.
func harmless(rng *rand.Rand, n *bubbleNode) {
	switch rng.IntN(8) {
	case 0:
		n.hang()
	case 1:
		n.blackhole()
	case 2:
		n.silence()
	case 3:
		n.kill()
	case 4:
		n.kill()
		n.restart()
	case 5:
		n.replyWith("READONLY You can't write against a read only replica.")
	case 6:
		n.latency(time.Duration(rng.IntN(30))*time.Millisecond, time.Duration(rng.IntN(30))*time.Millisecond)
	case 7:
		n.latency(time.Duration(rng.IntN(150))*time.Millisecond, time.Duration(rng.IntN(150))*time.Millisecond)
	}
}

// No two leases are valid at one instant and every token is larger than those before,
// whatever happens to nodes that keep their data.
//
// Source: ALGORITHM section 1, P1 and P2; section 13, I1 and I2.
func TestVirtualExclusionUnderFaults(t *testing.T) {
	const seeds = 50
	var leases atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				c := storm(t, seed, 8*time.Second, func(int) string { return redlock.DefaultKeyPrefix }, harmless)
				if len(c.problems) > 0 {
					t.Errorf("seed %d: got %d problems, %q first, want none", seed, len(c.problems), c.problems[0])
				}
				leases.Add(int64(c.leases))
			})
		}
	})
	if got := leases.Load(); got < 6*seeds {
		t.Errorf("leases: got %d in all, want at least %d, or little was tested", got, 6*seeds)
	}
	t.Logf("%d leases", leases.Load())
}

// The checker of TestVirtualExclusionUnderFaults must find what is wrong.
//
// Source: ALGORITHM section 13, negative controls.
func TestVirtualCheckerCatches(t *testing.T) {
	redlock.Break(t, "ignoresSteps")
	same := func(int) string { return redlock.DefaultKeyPrefix }
	for _, test := range []struct {
		name   string
		prefix func(int) string
		harm   func(*rand.Rand, *bubbleNode)
	}{
		{"a Locker with another key prefix", func(i int) string { return []string{"a:", "a:", "b:"}[i] }, harmless},
		{"nodes that restart empty again and again", same, func(_ *rand.Rand, n *bubbleNode) { n.restartEmpty() }},
		{"clocks of nodes that jump ahead", same, func(_ *rand.Rand, n *bubbleNode) { n.runClock(1, time.Minute) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(20) {
				c := storm(t, seed, 15*time.Second, test.prefix, test.harm, redlock.WithoutRestartGuard())
				if len(c.problems) > 0 {
					return
				}
			}
			t.Error("problems with 20 seeds: got none, want some")
		})
	}
}

// A quarantine is told of once, also where a reply that was sent in it arrives when it is over.
// The next one is told of again, also if the end of the first was not seen.
//
// Source: ALGORITHM section 8.
func TestVirtualQuarantineIsToldOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bubble) {
		var told atomic.Int64
		l := b.warmLocker(redlock.WithObserver(redlock.Observer{Quarantined: func(redlock.Event) { told.Add(1) }}))
		wantTold := func(want int64, when string) {
			t.Helper()
			synctest.Wait()
			if got := told.Load(); got != want {
				t.Errorf("%s: got the event %d times, want %d", when, got, want)
			}
		}
		left := func() time.Duration {
			t.Helper()
			_, err := l.TryLock(t.Context(), "r")
			var q *redlock.QuorumError
			if !errors.As(err, &q) || len(q.Nodes) != 1 {
				t.Fatalf("got %v, want a refusal", err)
			}
			return q.Nodes[0].Quarantine
		}
		b.nodes[0].restartEmpty()
		wait := left()
		if wait <= 0 {
			t.Fatal("got no quarantine after an empty restart")
		}
		wantTold(1, "at first")
		b.nodes[0].breakOff() // another connection
		wait = left()
		wantTold(1, "by another connection")
		time.Sleep(wait - 10*time.Millisecond)
		b.nodes[0].latency(0, 30*time.Millisecond)
		_ = left()
		wantTold(1, "by a reply that comes after the end")
		b.nodes[0].latency(0, 0)
		b.unlock(b.lock(l, "r"))

		b.nodes[0].restartEmpty()
		_ = left()
		wantTold(2, "of the next")
		time.Sleep(time.Minute) // nobody asks
		b.nodes[0].restartEmpty()
		_ = left()
		wantTold(3, "of one after a long time")
	})
}
