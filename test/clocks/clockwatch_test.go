package clocks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// The tests of the clock watch: first in virtual time, then on real masters whose wall clocks
// are moved. The tests of internal/clockwatch have its arithmetic.
//
// Source: ALGORITHM section 9.

// clockLog records what a Locker reports about clocks.
type clockLog struct {
	mu                      sync.Mutex
	stepped, still, warning []redlock.Event
}

func (c *clockLog) observer() redlock.Option {
	lists := map[redlock.EventKind]*[]redlock.Event{
		redlock.EventMasterClockStepped: &c.stepped, redlock.EventLocalClockStopped: &c.still, redlock.EventWarning: &c.warning,
	}
	return redlock.WithObserver(func(e redlock.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if list := lists[e.Kind]; list != nil {
			*list = append(*list, e)
		}
	})
}

func (c *clockLog) get() (stepped, still, warning []redlock.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stepped), slices.Clone(c.still), slices.Clone(c.warning)
}

// watching returns a Locker, warmed up, whose observer is c.
func watching(b *locktest.Bubble, c *clockLog, opts ...redlock.Option) *redlock.Locker {
	b.T.Helper()
	return b.WarmLocker(append(opts, c.observer(), redlock.WithLogger(nil))...)
}

// mustLock waits for a lease, for some minutes.
func mustLock(b *locktest.Bubble, l *redlock.Locker, resource string) *redlock.Lease {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), 5*time.Minute)
	defer cancel()
	lease, err := l.Lock(ctx, resource)
	locktest.Must(b.T, err)
	return lease
}

// nearly is how much of a step the time between two readings can hide: half a per cent of that
// time, which is at most a few seconds.
const nearly = 60 * time.Millisecond

func about(got, want time.Duration) bool { return (got - want).Abs() <= nearly }

// wantSteps checks that these nodes, by index, stepped by so much, and that no standstill was reported.
func (c *clockLog) wantSteps(t *testing.T, b *locktest.Bubble, by time.Duration, nodes ...int) {
	t.Helper()
	synctest.Wait()
	stepped, still, _ := c.get()
	var got []int
	for _, e := range stepped {
		got = append(got, slices.IndexFunc(b.Nodes, func(n *virtual.Node) bool { return n.Addr() == e.Master }))
		if !about(e.Elapsed, by) {
			t.Errorf("ClockStepped of %s: got %v, want about %v", e.Master, e.Elapsed, by)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, nodes) || len(still) > 0 {
		t.Errorf("got ClockStepped of the nodes %v and %d StoodStill, want those of %v and none", got, len(still), nodes)
	}
}

// wantStill checks that each of these standstills of the local clock was reported once, that
// their sum is right, and that no step of a node was reported.
func (c *clockLog) wantStill(t *testing.T, times ...time.Duration) {
	t.Helper()
	synctest.Wait()
	stepped, still, _ := c.get()
	var got []time.Duration
	for _, e := range still {
		got = append(got, e.Elapsed)
	}
	if !slices.EqualFunc(got, times, about) || len(stepped) > 0 {
		t.Errorf("got StoodStill for %v and %d ClockStepped, want about %v and none", got, len(stepped), times)
	}
}

// wantMarked checks which nodes, by index, a Locker has put in quarantine.
func wantMarked(b *locktest.Bubble, nodes ...int) {
	b.T.Helper()
	synctest.Wait()
	var got []int
	for i, n := range b.Nodes {
		n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
			if r.HGet(redlock.DefaultKeyPrefix+"~guard", "born") != "0" {
				got = append(got, i)
			}
		})
	}
	if !slices.Equal(got, nodes) {
		b.T.Errorf("nodes that have been marked: got %v, want %v", got, nodes)
	}
}

// pause has the same effect on all Lockers with the bubble's own clock: the nodes' clocks advance
// by d, and no time passes here. Messages under way stay under way.
func pause(b *locktest.Bubble, d time.Duration) { b.All(func(n *virtual.Node) { n.RunClock(1, d) }) }

// What the watch makes of clocks that move: whose clock, by how much, and who is marked. A node that steps alone is put
// in quarantine for all clients. A quorum that steps forward cannot be told from a local clock that stood still, nor can
// a node if those that are down could have shown the same: then leases are shortened, and no node is marked. A local
// clock that jumps ahead is to blame alone, or has measured the suspend of the machine itself.
//
// Source: ALGORITHM sections 9 and 11.
func TestWatchClocks(t *testing.T) {
	const ms, over = time.Millisecond, 15 * time.Second
	kill, hang := (*virtual.Node).Kill, (*virtual.Node).Hang
	for _, test := range []struct {
		nodes, moved int           // so many nodes, of which the clocks of the first ones
		by           time.Duration // are moved by this
		stands       time.Duration // the local clock stands still for so long
		jumps        time.Duration // the local clock jumps ahead
		down         int           // so many of the last nodes
		fault        func(*virtual.Node)

		marked  int           // so many of the first nodes are marked
		still   time.Duration // the standstill that is reported
		shorter time.Duration // each lease
	}{
		{nodes: 3, moved: 1, by: locktest.TTL, marked: 1},
		{nodes: 3, moved: 1, by: -30 * time.Second, marked: 1},
		{nodes: 3, moved: 1, by: 150 * ms, marked: 1},
		{nodes: 3, moved: 1, by: -150 * ms, marked: 1},
		{nodes: 5, moved: 1, by: locktest.TTL, marked: 1},
		{nodes: 5, moved: 1, by: -150 * ms, marked: 1},

		{nodes: 3, moved: 1, by: 100 * ms, down: 1, fault: kill, still: 100 * ms, shorter: 100 * ms},
		{nodes: 3, moved: 1, by: 100 * ms, down: 1, fault: hang, still: 100 * ms, shorter: 100 * ms},
		{nodes: 4, moved: 1, by: 100 * ms, down: 1, fault: kill, marked: 1},
		{nodes: 4, moved: 1, by: 100 * ms, down: 2, fault: hang, still: 100 * ms, shorter: 100 * ms},
		{nodes: 5, moved: 1, by: 100 * ms, down: 1, fault: hang, marked: 1},
		{nodes: 5, moved: 1, by: 100 * ms, down: 2, fault: kill, still: 100 * ms, shorter: 100 * ms},
		{nodes: 5, moved: 1, by: 100 * ms, down: 2, fault: hang, still: 100 * ms, shorter: 100 * ms},

		{nodes: 1, moved: 1, by: -time.Minute},
		{nodes: 3, moved: 2, by: -time.Minute},
		{nodes: 5, moved: 5, by: -time.Minute},
		{nodes: 1, moved: 1, by: 3 * time.Second, still: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 2, moved: 2, by: 3 * time.Second, still: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 3, moved: 2, by: 3 * time.Second, still: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 4, moved: 3, by: 3 * time.Second, still: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 5, moved: 3, by: 3 * time.Second, still: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 1, moved: 1, by: over, still: over, shorter: over},
		{nodes: 3, moved: 2, by: over, still: over, shorter: over},
		{nodes: 5, moved: 5, by: over, still: over, shorter: over},

		{nodes: 1, stands: 3 * time.Second, still: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 3, stands: 3 * time.Second, still: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 1, stands: over, still: over, shorter: over},
		{nodes: 2, stands: over, still: over, shorter: over},
		{nodes: 5, stands: over, down: 2, fault: kill, still: over, shorter: over},

		{nodes: 3, jumps: 100 * ms, shorter: 100 * ms},
		{nodes: 3, jumps: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 3, jumps: time.Hour, shorter: time.Hour},
		{nodes: 3, jumps: 100 * ms, moved: 3, by: 100 * ms, shorter: 100 * ms},
		{nodes: 3, jumps: 3 * time.Second, moved: 3, by: 3 * time.Second, shorter: 3 * time.Second},
		{nodes: 3, jumps: time.Hour, moved: 3, by: time.Hour, shorter: time.Hour},
	} {
		name := fmt.Sprintf("%d of %d move by %v, %d down, the local clock stands for %v, jumps by %v",
			test.moved, test.nodes, test.by, test.down, test.stands, test.jumps)
		locktest.Subtest(t, name, test.nodes, func(t *testing.T, b *locktest.Bubble) {
			var seen clockLog
			clock := locktest.NewJumpClock()
			l, other := watching(b, &seen, inside.WithClock(clock)), b.WarmLocker(redlock.WithLogger(nil))
			lease, renewed := b.Lock(l, "r", redlock.WithoutRenewal()), b.Lock(l, "renewed")
			contexts := []context.Context{lease.Context(), renewed.Context()}
			for _, n := range b.Nodes[test.nodes-test.down:] {
				test.fault(n)
			}
			time.Sleep(time.Second)
			for _, n := range b.Nodes[:test.moved] {
				n.RunClock(1, test.by)
			}
			clock.Jump(test.jumps)
			if test.stands > 0 {
				clock.Stand(test.stands)
			}
			const found = locktest.TTL/3 + locktest.MasterTimeout // the next renewal, and the time for a doubt
			time.Sleep(found)
			nodes, marked := []int{0, 1, 2, 3, 4}, test.marked
			want := func(when string) {
				t.Helper()
				if test.still > 0 {
					seen.wantStill(t, test.still)
				} else {
					seen.wantSteps(t, b, test.by, nodes[:marked]...)
				}
				wantMarked(b, nodes[:marked]...)
			}
			want("at first")
			left := locktest.Validity - time.Second - found - test.shorter
			if left > 0 {
				if got := lease.Validity(); !about(got, left) {
					t.Errorf("validity: got %v, want %v", got, left)
				}
			} else {
				for _, ctx := range contexts {
					why := []error{redlock.ErrLost, reason.Expired}
					if test.still > 0 {
						why = append(why, reason.Suspended)
					}
					locktest.WantDone(t, ctx, why, reason.QuorumLost)
				}
				if got := max(lease.Validity(), renewed.Validity()); got > 0 {
					t.Errorf("validity: got %v, want none", got)
				}
			}
			if marked > 0 { // another Locker has sent no request since
				if report, _ := admin.Check(t.Context(), other); report.Voting != test.nodes-test.down-marked {
					t.Errorf("voting nodes: got %d of %d, want all but %d", report.Voting, test.nodes, marked)
				}
			}
			if left > 0 { // the context, too, ends by the corrected clock
				locktest.WantDone(t, contexts[0], []error{redlock.ErrLost, reason.Expired}, reason.QuorumLost)
				if got := lease.Validity(); !about(got, locktest.Lead) {
					t.Errorf("validity when the context ends: got %v, want %v", got, locktest.Lead)
				}
			}
			for _, n := range b.Nodes[test.nodes-test.down:] {
				n.Heal()
			}
			time.Sleep(time.Minute)
			want("a minute later") // it is told once
			if test.shorter < locktest.TTL && test.down == 0 {
				locktest.Must(t, context.Cause(contexts[1]))
			}
			next := mustLock(b, l, "next")
			locktest.WantValidity(t, next, locktest.Validity)
		})
	}
}

// After a pause of its machine a Locker's leases are over. The next renewal shows it to all Lockers of the machine, and to
// no other client.
//
// Source: ALGORITHM section 9 ("the local clock stood still").
func TestWatchStandstill(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		clock := locktest.NewJumpClock()
		var seen, seenToo, others clockLog
		l, tooHere := watching(b, &seen, inside.WithClock(clock)), watching(b, &seenToo, inside.WithClock(clock))
		elsewhere := watching(b, &others)
		leases := []*redlock.Lease{b.Lock(l, "a"), b.Lock(l, "b"), b.Lock(l, "c", redlock.WithoutRenewal()), b.Lock(tooHere, "d")}
		safe := b.Lock(elsewhere, "e")
		var contexts []context.Context
		for _, lease := range leases {
			contexts = append(contexts, lease.Context())
		}
		b.Nodes[0].Kill()
		time.Sleep(time.Second)
		clock.Stand(15 * time.Second)
		b.Lock(elsewhere, "a") // its keys have expired
		start := time.Now()
		for i, ctx := range contexts {
			locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired, reason.Suspended}, reason.QuorumLost)
			locktest.WantValidity(t, leases[i], 0)
		}
		locktest.WantWithin(t, "end of the contexts", start, locktest.TTL/3)
		seen.wantStill(t, 15*time.Second)
		seenToo.wantStill(t, 15*time.Second)
		locktest.WantMatch(t, "Extend", leases[1].Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired, reason.Suspended})
		locktest.WantMatch(t, "Unlock", leases[1].Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Suspended})
		start = time.Now()
		again := b.Lock(l, "b")
		locktest.WantSince(t, "a new lease", start, 0)
		time.Sleep(time.Minute)
		locktest.Must(t, errors.Join(again.Context().Err(), safe.Context().Err()))
		seen.wantStill(t, 15*time.Second)
		others.wantStill(t)
		wantMarked(b)
	})
}

// Replies that were under way during a standstill do not show it. They neither disprove it nor
// blame the nodes whose replies came later.
//
// Source: ALGORITHM section 9 ("Never mark nodes then").
func TestWatchStandstillWithRepliesUnderWay(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for late := range n + 1 {
			locktest.Subtest(t, fmt.Sprintf("%d of %d", late, n), n, func(t *testing.T, b *locktest.Bubble) {
				var seen clockLog
				l := watching(b, &seen)
				lease := b.Lock(l, "r")
				ctx := lease.Context()
				time.Sleep(time.Second)
				for i, node := range b.Nodes {
					node.Latency(time.Millisecond, time.Millisecond)
					if i < late {
						node.Latency(time.Millisecond, 30*time.Millisecond)
					}
				}
				done := make(chan error, 1)
				go func() { done <- lease.Extend(context.WithoutCancel(t.Context())) }()
				time.Sleep(1500 * time.Microsecond) // all requests have been executed
				pause(b, 20*time.Second)
				time.Sleep(time.Millisecond)
				_, _ = l.TryLock(t.Context(), "s")
				<-done
				locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired, reason.Suspended})
				locktest.WantValidity(t, lease, 0)
				time.Sleep(locktest.TTL)
				seen.wantStill(t, 20*time.Second)
				wantMarked(b)
				b.Lock(l, "t")
				time.Sleep(locktest.TTL)
				seen.wantStill(t, 20*time.Second)
				wantMarked(b)
			})
		}
	}
}

// The uncertainty of the standstill's length, due to the round trips, counts against the leases:
// here the requests were slow before it, and the replies after it.
//
// Source: ALGORITHM section 9; section 13, I1.
func TestWatchStandstillBetweenSlowReplies(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const slow = 200 * time.Millisecond
		clock := locktest.NewJumpClock()
		l := watching(b, new(clockLog), inside.WithClock(clock), redlock.WithoutRenewal())
		rival := watching(b, new(clockLog))
		lease := b.Lock(l, "r")
		b.All(func(n *virtual.Node) { n.Latency(slow, 0) })
		b.Lock(l, "s")
		b.All(func(n *virtual.Node) { n.Latency(0, slow) })
		clock.Stand(5 * time.Second)
		_, _ = l.TryLock(t.Context(), "u")
		b.All(func(n *virtual.Node) { n.Latency(0, 0) })
		time.Sleep(lease.Validity() - 2*slow)
		for lease.Validity() > 0 {
			_, err := rival.TryLock(t.Context(), "r")
			locktest.WantMatch(t, fmt.Sprintf("TryLock by a rival, %v before the end", lease.Validity()), err, []error{redlock.ErrTaken})
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A node on which keys expired during a standstill has lost nothing, whichever client learns of it first.
//
// Source: ALGORITHM section 6, "Counted"; section 9 ("Never mark nodes then").
func TestWatchStandstillIsNoLoss(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var seen clockLog
		l := watching(b, &seen, redlock.WithoutRenewal(), redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(time.Second/4))
		lease := b.Lock(l, "r")
		time.Sleep(900 * time.Millisecond)
		pause(b, 150*time.Millisecond)
		if err := lease.Extend(t.Context()); err == nil {
			t.Error("Extend: got no error, want an error: the keys had expired")
		}
		time.Sleep(time.Second)
		seen.wantStill(t, 150*time.Millisecond)
		wantMarked(b)
	})
}

// A node whose clock is far from the others gives no vote until it agrees, and the operator is told once.
//
// Source: ALGORITHM section 9 ("no vote for grants until it agrees").
func TestWatchSkew(t *testing.T) {
	told := func(c *clockLog) (n int) {
		_, _, warnings := c.get()
		for _, w := range warnings {
			if strings.Contains(w.Err.Error(), "median") {
				n++
			}
		}
		return n
	}
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		locktest.Subtest(t, fmt.Sprintf("by %v", off), 3, func(t *testing.T, b *locktest.Bubble) {
			var seen clockLog
			b.Nodes[0].RunClock(1, off)
			l := b.Locker(seen.observer(), redlock.WithLogger(nil))
			lease := mustLock(b, l, "r") // until all three clocks are known, it is not known which one is off
			synctest.Wait()
			report, err := admin.Check(t.Context(), l)
			if got := report.Masters[0].Clock; err == nil || (got-off).Abs() > time.Second || report.Voting != 2 {
				t.Errorf("Check: got a clock that is %v off, %d that vote, and %v; want %v, 2 and an error", got, report.Voting, err, off)
			}
			b.Nodes[1].Kill()
			for range 5 {
				_, err := l.TryLock(t.Context(), "s")
				locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNoQuorum}, redlock.ErrQuarantine)
				if got := locktest.RefusedBy(b, 0, err); !strings.Contains(got, "from the median of all masters") {
					t.Errorf("the node that is off: got %q, want how far", got)
				}
				time.Sleep(10 * time.Millisecond)
			}
			locktest.Must(t, lease.Extend(t.Context()))
			synctest.Wait()
			if got := told(&seen); got != 1 && got != 2 { // with two known clocks each is off by half of it
				t.Errorf("warnings: got %d, want one for each node that is off", got)
			}
			seen.wantSteps(t, b, 0)
			wantMarked(b)
			b.Nodes[1].Restart()
			b.VouchAgain()

			b.Nodes[0].RunClock(1, -off) // an operator sets it
			time.Sleep(locktest.Quarantine + 4*time.Second)
			seen.wantSteps(t, b, -off, 0)
			b.Nodes[2].Kill()
			b.Lock(l, "t") // needs its vote
		})
	}
	locktest.Subtest(t, "a little", 3, func(t *testing.T, b *locktest.Bubble) {
		var seen clockLog
		b.Nodes[0].RunClock(1, 5*time.Second) // less than 5.15 s
		l := watching(b, &seen)
		b.Nodes[1].Kill()
		b.Lock(l, "r")
		if got := told(&seen); got != 0 {
			t.Errorf("warnings: got %d, want none", got)
		}
	})
	locktest.Subtest(t, "told again when it happens again", 5, func(t *testing.T, b *locktest.Bubble) {
		var seen clockLog
		l := watching(b, &seen)
		for i := range 3 {
			for _, off := range []time.Duration{time.Hour, -time.Hour} {
				b.Nodes[4].RunClock(1, off)
				for range 30 {
					time.Sleep(time.Second)
					if lease, err := l.TryLock(t.Context(), "r"); err == nil {
						b.Unlock(lease)
					}
				}
			}
			if got := told(&seen); got != i+1 {
				t.Errorf("warnings, the clock being off the %d. time: got %d, want %d", i+1, got, i+1)
			}
		}
	})
}

// Clocks that drift by the allowed amount do not count as stepped, however long it goes on. Clocks
// that drift by chrony's default maximum do.
//
// Source: ALGORITHM section 1, A1; section 9, "Why".
func TestWatchDrift(t *testing.T) {
	locktest.Subtest(t, "0.4 % for an hour", 5, func(t *testing.T, b *locktest.Bubble) {
		for i, node := range b.Nodes {
			node.RunClock([]float64{1.004, 0.996, 1, 1.004, 0.996}[i], 0)
		}
		var seen clockLog
		l := watching(b, &seen)
		lease := b.Lock(l, "r")
		for range 360 {
			time.Sleep(locktest.TTL)
			if got := lease.Validity(); got < 6*time.Second {
				t.Fatalf("validity: got %v, want it renewed", got)
			}
		}
		seen.wantSteps(t, b, 0)
		wantMarked(b)
	})
	for _, rate := range []float64{1.08, 0.92} {
		locktest.Subtest(t, fmt.Sprintf("rate %v", rate), 5, func(t *testing.T, b *locktest.Bubble) {
			var seen clockLog
			l := watching(b, &seen)
			lease := b.Lock(l, "r")
			b.Nodes[3].RunClock(rate, 0)
			for range 10 {
				time.Sleep(locktest.TTL)
				if got := lease.Validity(); got < 6*time.Second {
					t.Fatalf("validity: got %v, want it renewed", got)
				}
			}
			synctest.Wait()
			stepped, still, _ := seen.get()
			if len(stepped) < 10 || len(still) > 0 {
				t.Errorf("got %d ClockStepped and %d StoodStill, want at least 10 and none", len(stepped), len(still))
			}
			for _, e := range stepped {
				if e.Master != b.Nodes[3].Addr() || (e.Elapsed > 0) != (rate > 1) {
					t.Errorf("ClockStepped: got %v of %s, want it of %s, with the sign of its drift", e.Elapsed, e.Master, b.Nodes[3].Addr())
				}
			}
			wantMarked(b, 3)
		})
	}
	locktest.Subtest(t, "a little at each look, as there is much traffic", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithLogger(nil))
		b.Nodes[0].RunClock(1.08, 0)
		for range 300 {
			time.Sleep(10 * time.Millisecond)
			if lease, err := l.TryLock(t.Context(), "r"); err == nil {
				_ = lease.Unlock(t.Context())
			}
		}
		wantMarked(b, 0)
	})
}

// A machine was paused, and at first reaches only a minority: its leases are over. When a quorum
// shows the same, no node is to blame, and no lease is shortened again.
//
// Source: ALGORITHM section 9.
func TestWatchStandstillSeenByFew(t *testing.T) {
	for _, n := range []int{3, 5} {
		for back := range n - n/2 + 1 {
			locktest.Subtest(t, fmt.Sprintf("%d nodes, %d back at a time", n, back), n, func(t *testing.T, b *locktest.Bubble) {
				clock := locktest.NewJumpClock()
				var seen clockLog
				l := watching(b, &seen, inside.WithClock(clock))
				lease := b.Lock(l, "r")
				ctx := lease.Context()
				time.Sleep(time.Second)
				away := b.Nodes[n/2:]
				for _, node := range away {
					node.Hang()
				}
				clock.Stand(time.Minute)
				start := time.Now()
				locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired, reason.Suspended})
				locktest.WantWithin(t, "end of the context", start, locktest.TTL/3+locktest.MasterTimeout)
				locktest.WantValidity(t, lease, 0)
				for len(away) > 0 && back > 0 {
					for _, node := range away[:min(back, len(away))] {
						node.Resume()
					}
					away = away[min(back, len(away)):]
					time.Sleep(2500 * time.Millisecond)
					_, _ = l.TryLock(t.Context(), "s")
					time.Sleep(locktest.MasterTimeout)
				}
				seen.wantStill(t, time.Minute)
				wantMarked(b)
				if back > 0 {
					_, _ = l.TryLock(t.Context(), "t") // too late for the nodes that were away
					b.Lock(l, "u")
				}
			})
		}
	}
}

// Without the restart guard a node cannot be marked. Then it has no vote for this Locker.
//
// Source: ALGORITHM section 9.
func TestWatchWithoutRestartGuard(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var seen clockLog
		l := watching(b, &seen, redlock.WithoutRestartGuard())
		lease := b.Lock(l, "r")
		b.Nodes[0].RunClock(1, 4*time.Second)
		time.Sleep(locktest.TTL / 3)
		start := time.Now()
		seen.wantSteps(t, b, 4*time.Second, 0)
		wantMarked(b)
		b.Nodes[1].Kill()
		for time.Since(start) < locktest.Quarantine-locktest.TTL/3 {
			_, err := l.TryLock(t.Context(), "s")
			if got := locktest.RefusedBy(b, 0, err); !strings.Contains(got, "in quarantine") {
				t.Fatalf("TryLock after %v: got %v, want no vote of the node", time.Since(start), err)
			}
			time.Sleep(time.Second)
		}
		locktest.WantDone(t, lease.Context(), []error{reason.Expired}, reason.Suspended)
		time.Sleep(locktest.TTL) // the node had forgotten the lease, which also counts
		b.Unlock(b.Lock(l, "s"))
		b.Nodes[1].Heal()
		time.Sleep(time.Second)

		clock := locktest.NewJumpClock()
		var still clockLog
		l = watching(b, &still, redlock.WithoutRestartGuard(), inside.WithClock(clock))
		lease = b.Lock(l, "t")
		clock.Stand(locktest.TTL)
		locktest.WantDone(t, lease.Context(), []error{reason.Expired, reason.Suspended})
		still.wantStill(t, locktest.TTL)
		b.Unlock(b.Lock(l, "t"))
	})
}

// Every step of a node begins its quarantine anew, even if the last one is not over, and a step forward does not end it.
//
// Source: ALGORITHM sections 8 and 9.
func TestWatchStepsInQuarantine(t *testing.T) {
	restart := func(n *virtual.Node) { n.Kill(); n.Restart() }
	for _, test := range []struct {
		name  string
		first func(*virtual.Node)
		steps []time.Duration
	}{
		{"again and again", nil, slices.Repeat([]time.Duration{2 * time.Second}, 10)},
		{"there and back", nil, slices.Repeat([]time.Duration{time.Hour, -time.Hour}, 10)},
		{"of a node that restarted empty some time ago", (*virtual.Node).RestartEmpty, []time.Duration{0, locktest.TTL}},
		{"with an empty restart, forward", (*virtual.Node).RestartEmpty, []time.Duration{locktest.TTL}},
		{"with an empty restart, back", (*virtual.Node).RestartEmpty, []time.Duration{-locktest.TTL}},
		{"with an empty restart, far", (*virtual.Node).RestartEmpty, []time.Duration{time.Hour}},
		{"with a restart, forward", restart, []time.Duration{locktest.TTL}},
		{"with a restart, back", restart, []time.Duration{-locktest.TTL}},
		{"with a restart, far", restart, []time.Duration{time.Hour}},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			var seen clockLog
			l := watching(b, &seen)
			lease := b.Lock(l, "r")
			if test.first != nil {
				test.first(b.Nodes[1])
			}
			for _, by := range test.steps {
				b.Nodes[1].RunClock(1, by)
				time.Sleep(locktest.TTL / 3)
				report, err := admin.Check(t.Context(), b.Locker(redlock.WithLogger(nil)))
				if got, want := report.Masters[1].Quarantine, locktest.Quarantine-locktest.TTL/3; got < want {
					t.Errorf("quarantine: got %v and %v, want at least %v", got, err, want)
				}
			}
			if stepped, _, _ := seen.get(); test.first == nil && len(stepped) != len(test.steps) {
				t.Errorf("ClockStepped: got %d, want %d", len(stepped), len(test.steps))
			}
			time.Sleep(time.Minute)
			locktest.Must(t, context.Cause(lease.Context()))
			wantMarked(b, 1)
		})
	}
}

// A quarantine is measured by the node's clock, so it only runs while that clock is right.
//
// Source: ALGORITHM section 8.
func TestWatchQuarantineUnderAWrongClock(t *testing.T) {
	for _, test := range []struct {
		name string
		off  time.Duration
		look func(t *testing.T, l *redlock.Locker) // by the client that comes first
	}{
		{"behind, met by an attempt", -time.Hour, func(t *testing.T, l *redlock.Locker) { _, _ = l.TryLock(t.Context(), "x") }},
		{"behind, met by a look", -time.Hour, func(t *testing.T, l *redlock.Locker) { _, _ = admin.Check(t.Context(), l) }},
		{"ahead", time.Hour, func(t *testing.T, l *redlock.Locker) { _, _ = l.TryLock(t.Context(), "x") }},
		{"a little behind", -20 * time.Second, func(t *testing.T, l *redlock.Locker) { _, _ = l.TryLock(t.Context(), "x") }},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			holder := b.WarmLocker(redlock.WithLogger(nil), redlock.WithoutRenewal())
			b.Nodes[2].Kill()
			lease := b.Lock(holder, "r") // by a bare majority
			b.Nodes[2].Restart()
			b.VouchAgain()
			// A master comes back without its data and with a wrong clock, is looked at, and then corrected.
			b.Nodes[1].RestartEmpty()
			b.Nodes[1].RunClock(1, test.off)
			first := b.Locker(redlock.WithLogger(nil))
			test.look(t, first)
			synctest.Wait()
			_ = first.Close()
			b.Nodes[1].RunClock(1, -test.off)
			corrected := time.Now()
			for lease.Validity() > 0 {
				fresh := b.Locker(redlock.WithLogger(nil))
				if _, err := fresh.TryLock(t.Context(), "r"); err == nil {
					t.Fatalf("a second holder, %v before the end of the first lease", lease.Validity())
				}
				_ = fresh.Close()
				time.Sleep(500 * time.Millisecond)
			}
			// The quarantine ends: at the latest its whole length after the correction.
			b.Nodes[0].Kill()
			fresh := b.Locker(redlock.WithLogger(nil))
			b.Unlock(mustLock(b, fresh, "r"))
			locktest.WantWithin(t, "a vote", corrected, locktest.Quarantine+1500*time.Millisecond)
		})
	}
}

// skewedCluster starts N masters whose wall clocks can be moved.
func skewedCluster(t testing.TB, n int) *locktest.Cluster {
	t.Helper()
	return locktest.NewCluster(t, redistest.Skewed(t, n))
}

// steppedBy waits for the event that a master's clock stepped, and checks by how much.
func (c *clockLog) steppedBy(t testing.TB, node string, least, most time.Duration) {
	t.Helper()
	var found redlock.Event
	redistest.Eventually(t, 10*time.Second, func() bool {
		stepped, _, _ := c.get()
		i := slices.IndexFunc(stepped, func(e redlock.Event) bool { return e.Master == node })
		if i >= 0 {
			found = stepped[i]
		}
		return i >= 0
	}, "the clock of "+node+" is seen to have been stepped")
	if found.Elapsed < least || found.Elapsed > most {
		t.Errorf("step: got %v, want from %v to %v", found.Elapsed, least, most)
	}
}

// The clock of one master of five is moved while a lease is held: the master has no vote for any
// client, and the lease goes on.
func TestClockOfAMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	const ttl = 2 * time.Second
	for _, test := range []struct {
		name        string
		move        func(p *masters.Process) error
		least, most time.Duration
	}{
		{"a TTL forward", func(p *masters.Process) error { return p.StepClock(ttl) }, ttl - time.Second, ttl + time.Second},
		{"30 s back", func(p *masters.Process) error { return p.StepClock(-30 * time.Second) }, -31 * time.Second, -29 * time.Second},
		{"an hour forward", func(p *masters.Process) error { return p.StepClock(time.Hour) }, time.Hour - time.Second, time.Hour + time.Second},
		{"at chrony's fastest rate", func(p *masters.Process) error { return p.DriftClock(80_000) }, time.Millisecond, 2 * time.Second},
	} {
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			c := skewedCluster(t, 5)
			opts := []redlock.Option{redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl / 4), redlock.WithLogger(nil)}
			var seen clockLog
			l := locktest.Open(t, c.Addrs, append(opts, seen.observer())...)
			le := locktest.Lock(t, l, "r")
			ctx, fence := le.Context(), le.Fence()
			redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:r") == 5 }, "all hold the key")
			locktest.Must(t, test.move(c.Procs[2]))
			seen.steppedBy(t, c.Addrs[2], test.least, test.most)

			// No other client can get the lock, nor the vote of that master.
			rival := locktest.Open(t, c.Addrs, opts...)
			redistest.Eventually(t, 5*time.Second, func() bool {
				report, _ := admin.Check(t.Context(), rival)
				return report.Masters[2].Quarantine > 0
			}, "the master is in quarantine for all clients")
			for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if other, err := rival.TryLock(t.Context(), "r"); err == nil && ctx.Err() == nil {
					t.Fatalf("a rival has a lease with fence %d while that with %d is valid for %v", other.Fence(), fence, le.Validity())
				}
			}
			locktest.Must(t, ctx.Err())
			if _, still, _ := seen.get(); len(still) > 0 {
				t.Errorf("got %d StoodStill, want none", len(still))
			}
			locktest.Must(t, le.Unlock(t.Context()))
			c.Empty(t, "redlock:r")
		})
	}
}

// With a master down and the clocks of the other two apart, the error says what is wrong with the clocks, and not that
// too few of them are known.
func TestClocksThatDisagreeAreNamed(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := skewedCluster(t, 3)
	locktest.Must(t, c.Procs[0].StepClock(time.Hour))
	locktest.Must(t, c.Procs[2].Kill())
	for range 5 {
		l := locktest.Open(t, c.Addrs)
		_, err := l.TryLock(t.Context(), "r")
		text := fmt.Sprint(err)
		named := strings.Contains(text, "from the median") && !strings.Contains(text, "too few masters are known")
		if !errors.Is(err, redlock.ErrNoQuorum) || !named {
			t.Errorf("got %v, want the clocks", err)
		}
		locktest.Must(t, l.Close())
	}
}
