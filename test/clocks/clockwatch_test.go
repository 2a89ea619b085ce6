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

// nearly is how much of a step the time between two readings can hide: half a per cent of that
// time, which is at most a few seconds.
const nearly = 60 * time.Millisecond

func about(got, want time.Duration) bool { return (got - want).Abs() <= nearly }

// wantSteps checks that these nodes, by index, stepped by so much, and that no standstill was
// reported.
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

// stillClock is a clock that can stand still, as that of a paused machine does. The goroutines go
// on running: it is for tests in which none does anything meanwhile, or in which that is the
// point.
type stillClock struct {
	redlock.Clock
	mu     sync.Mutex
	still  bool
	at     time.Duration
	behind time.Duration
}

func newStillClock() *stillClock { return &stillClock{Clock: redlock.RuntimeClock()} }

func (c *stillClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still {
		return c.at
	}
	return c.Clock.Now() - c.behind
}

// stand makes the clock stand still for d, and returns when it runs again.
func (c *stillClock) stand(d time.Duration) {
	c.mu.Lock()
	c.at, c.still = c.Clock.Now()-c.behind, true
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	c.behind, c.still = c.Clock.Now()-c.at, false
	c.mu.Unlock()
}

// pause has the same effect on all Lockers with the bubble's own clock: the nodes' clocks advance
// by d, and no time passes here. Messages under way stay under way.
func pause(b *locktest.Bubble, d time.Duration) { b.All(func(n *virtual.Node) { n.RunClock(1, d) }) }

// A node whose clock steps has no vote from the reply on that shows it. It is in quarantine for
// all clients, and a lease on the other nodes goes on.
//
// Source: ALGORITHM section 9 ("their vote is void").
func TestWatchMasterSteps(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, step := range []time.Duration{locktest.TTL, -30 * time.Second, 150 * time.Millisecond, -150 * time.Millisecond} {
			t.Run(fmt.Sprintf("one of %d by %v", n, step), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, n, func(t *testing.T, b *locktest.Bubble) {
					var seen, others clockLog
					l, other := watching(b, &seen), watching(b, &others)
					lease := b.Lock(l, "r")
					time.Sleep(time.Second)
					b.Nodes[0].RunClock(1, step)
					time.Sleep(3 * time.Second) // a renewal
					seen.wantSteps(t, b, step, 0)
					wantMarked(b, 0)
					others.wantSteps(t, b, step) // it has sent no request
					report, err := admin.Check(t.Context(), other)
					locktest.WantMatch(t, "Check by another Locker", err, []error{redlock.ErrQuarantine}, redlock.ErrNoQuorum)
					if got := report.Masters[0].Quarantine; got < 7*time.Second || got > locktest.Quarantine {
						t.Errorf("quarantine of the node, as another Locker sees it: got %v, want some of %v", got, locktest.Quarantine)
					}
					if report.Voting != n-1 {
						t.Errorf("voting nodes: got %d, want %d", report.Voting, n-1)
					}
					time.Sleep(time.Minute)
					if err := lease.Context().Err(); err != nil || lease.Validity() < 6*time.Second {
						t.Errorf("a minute later: got validity %v and %v, want a lease", lease.Validity(), context.Cause(lease.Context()))
					}
					seen.wantSteps(t, b, step, 0) // once
					b.Unlock(lease)
				})
			})
			t.Run(fmt.Sprintf("the deciding vote of %d, by %v", n, step), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, n, func(t *testing.T, b *locktest.Bubble) {
					l := b.WarmLocker(redlock.WithLogger(nil))
					for _, node := range b.Nodes[n/2+1:] {
						node.Kill()
					}
					time.Sleep(time.Second)
					b.Nodes[0].RunClock(1, step)
					_, err := l.TryLock(t.Context(), "r")
					locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum})
					says := "clock was stepped"
					if step >= locktest.MasterTimeout {
						says = "arrived after its time" // the node itself is the first to notice
					}
					if got := locktest.RefusedBy(b, 0, err); !strings.Contains(got, says) {
						t.Errorf("the node: got %q, want %q", got, says)
					}
					start := time.Now()
					time.Sleep(locktest.MasterTimeout + time.Millisecond)
					wantMarked(b) // as it may have been the local clock
					for time.Since(start) < locktest.Quarantine {
						_, err = l.TryLock(t.Context(), "r")
						locktest.WantMatch(t, "TryLock meanwhile", err, []error{redlock.ErrNoQuorum})
						time.Sleep(time.Second)
					}
					b.WantHolding("r")
					if step.Abs() < time.Second { // otherwise it is too far from the other clocks
						b.Lock(l, "r")
					}
				})
			})
		}
	}
}

// A holder of a bare majority keeps the resource although one of its keys is gone. This holds even
// if the other Locker does not know the node's clock from before.
//
// Source: ALGORITHM section 9, "Why"; section 13, I1.
func TestWatchBareMajority(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, step := range []time.Duration{4 * time.Second, locktest.TTL} {
			t.Run(fmt.Sprintf("%d nodes, %v", n, step), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, n, func(t *testing.T, b *locktest.Bubble) {
					var seen clockLog
					l := watching(b, &seen, redlock.WithoutRenewal())
					minority := b.Nodes[n/2+1:]
					for _, node := range minority {
						node.Kill()
					}
					lease := b.Lock(l, "r")
					time.Sleep(7 * time.Second)
					for _, node := range minority {
						node.Restart()
					}
					b.VouchAgain()
					b.Nodes[0].RunClock(1, step)
					_, _ = l.TryLock(t.Context(), "s") // the holder must learn of it
					synctest.Wait()
					time.Sleep(locktest.MasterTimeout + time.Millisecond)
					wantMarked(b, 0)
					seen.wantSteps(t, b, step, 0)
					if got := lease.Validity(); got < 2*time.Second {
						t.Errorf("validity: got %v, want a lease", got)
					}
					rivals := []*redlock.Locker{b.Locker(redlock.WithLogger(nil)), b.Locker(redlock.WithLogger(nil))}
					for lease.Validity() > 0 {
						for _, rival := range rivals {
							_, err := rival.TryLock(t.Context(), "r")
							locktest.WantMatch(t, "TryLock by a rival while the lease is valid", err, []error{redlock.ErrNotAcquired})
						}
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(locktest.Drift)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if _, err := b.Locker(redlock.WithLogger(nil)).Lock(ctx, "r"); err != nil {
						t.Errorf("Lock by a rival afterwards: got %v, want a lease", err)
					}
				})
			})
		}
	}
}

// After a pause of its machine a Locker's leases are over. The first reply of a quorum shows it. No
// other client is affected.
//
// Source: ALGORITHM section 9 ("the local clock stood still").
func TestWatchStandstill(t *testing.T) {
	for _, test := range []struct {
		n, down int
	}{{1, 0}, {2, 0}, {3, 0}, {3, 1}, {5, 0}, {5, 1}, {5, 2}} {
		t.Run(fmt.Sprintf("%d nodes, %d down", test.n, test.down), func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, test.n, func(t *testing.T, b *locktest.Bubble) {
				var clock = newStillClock()
				var seen, seenToo, others clockLog
				l := watching(b, &seen, redlock.WithClock(clock))
				tooHere := watching(b, &seenToo, redlock.WithClock(clock))
				elsewhere := watching(b, &others)
				leases := []*redlock.Lease{b.Lock(l, "a"), b.Lock(l, "b"), b.Lock(l, "c", redlock.WithoutRenewal()), b.Lock(tooHere, "d")}
				safe := b.Lock(elsewhere, "e")
				var contexts []context.Context
				for _, lease := range leases {
					contexts = append(contexts, lease.Context())
				}
				for _, node := range b.Nodes[:test.down] {
					node.Kill()
				}
				time.Sleep(time.Second)
				clock.stand(15 * time.Second)
				if got := leases[0].Validity(); got <= 0 {
					t.Errorf("validity before the first reply: got %v: the test's clock did not stand still", got)
				}
				if _, err := elsewhere.TryLock(t.Context(), "a"); err != nil {
					t.Errorf("TryLock elsewhere: got %v, want a lease: the keys have expired", err)
				}
				start := time.Now()
				for _, ctx := range contexts {
					locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired, reason.Suspended}, reason.QuorumLost)
				}
				locktest.WantWithin(t, "end of the contexts", start, locktest.TTL/3)
				for _, lease := range leases {
					if got := lease.Validity(); got > 0 {
						t.Errorf("validity: got %v, want none", got)
					}
				}
				seen.wantStill(t, 15*time.Second)
				seenToo.wantStill(t, 15*time.Second)
				wantMarked(b)
				locktest.WantMatch(t, "Extend", leases[1].Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired, reason.Suspended})
				locktest.WantMatch(t, "Unlock", leases[1].Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Suspended})
				start = time.Now()
				again := b.Lock(l, "b")
				locktest.WantSince(t, "a new lease", start, 0)
				if got := again.Validity(); got != locktest.Validity {
					t.Errorf("validity of a new lease: got %v, want %v", got, locktest.Validity)
				}
				time.Sleep(time.Minute)
				if err := errors.Join(again.Context().Err(), safe.Context().Err()); err != nil {
					t.Errorf("a minute later: got %v, want leases", err)
				}
				seen.wantStill(t, 15*time.Second)
				others.wantStill(t)
				wantMarked(b)
			})
		})
	}
}

// A lease that has more validity left than the standstill took is shortened by exactly that, and
// goes on.
//
// Source: ALGORITHM section 9 ("Add the median step to the elapsed time of all leases").
func TestWatchShortStandstill(t *testing.T) {
	t.Run("shortened", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			clock := newStillClock()
			var seen clockLog
			l := watching(b, &seen, redlock.WithClock(clock), redlock.WithoutRenewal())
			start := time.Now()
			lease := b.Lock(l, "r")
			ctx := lease.Context()
			time.Sleep(time.Second)
			clock.stand(3 * time.Second)
			if got := lease.Validity(); got != locktest.Validity-time.Second {
				t.Errorf("validity before the first reply: got %v, want %v", got, locktest.Validity-time.Second)
			}
			_, _ = l.TryLock(t.Context(), "s")
			seen.wantStill(t, 3*time.Second)
			if got, want := lease.Validity(), locktest.Validity-4*time.Second; (got - want).Abs() > 6*time.Millisecond {
				t.Errorf("validity: got %v, want %v", got, want)
			}
			locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired})
			if got, want := time.Since(start), locktest.Validity-locktest.Lead; (got - want).Abs() > 6*time.Millisecond {
				t.Errorf("end of the context: got it after %v, want %v", got, want)
			}
			wantMarked(b)
		})
	})
	t.Run("again and again, with renewals", func(t *testing.T) {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			clock := newStillClock()
			var seen clockLog
			l := watching(b, &seen, redlock.WithClock(clock))
			lease := b.Lock(l, "r")
			var want []time.Duration
			for range 20 {
				time.Sleep(locktest.TTL)
				clock.stand(2 * time.Second)
				want = append(want, 2*time.Second)
			}
			time.Sleep(locktest.TTL)
			seen.wantStill(t, want...)
			if err := lease.Context().Err(); err != nil {
				t.Errorf("got %v, want a lease", context.Cause(lease.Context()))
			}
			wantMarked(b)
		})
	})
}

// Replies that were under way during a standstill do not show it. They neither disprove it nor
// blame the nodes whose replies came later.
//
// Source: ALGORITHM section 9 ("Never mark nodes then").
func TestWatchStandstillWithRepliesUnderWay(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for late := range n + 1 {
			t.Run(fmt.Sprintf("%d of %d", late, n), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, n, func(t *testing.T, b *locktest.Bubble) {
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
					if got := lease.Validity(); got > 0 {
						t.Errorf("validity: got %v, want none", got)
					}
					time.Sleep(locktest.TTL)
					seen.wantStill(t, 20*time.Second)
					wantMarked(b)
					b.Lock(l, "t")
					time.Sleep(locktest.TTL)
					seen.wantStill(t, 20*time.Second)
					wantMarked(b)
				})
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
		clock := newStillClock()
		l := watching(b, new(clockLog), redlock.WithClock(clock), redlock.WithoutRenewal())
		rival := watching(b, new(clockLog))
		lease := b.Lock(l, "r")
		b.All(func(n *virtual.Node) { n.Latency(slow, 0) })
		b.Lock(l, "s")
		b.All(func(n *virtual.Node) { n.Latency(0, slow) })
		clock.stand(5 * time.Second)
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

// A node on which keys expired during a standstill has lost nothing, whichever client learns of
// it first.
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

// If a quorum steps forward alike, that counts as a standstill, as it cannot be told apart from
// one. If a quorum steps back, no lease is shortened and no vote is lost.
//
// Source: ALGORITHM section 9.
func TestWatchQuorumSteps(t *testing.T) {
	for _, test := range []struct{ n, step int }{{1, 1}, {2, 2}, {3, 2}, {3, 3}, {4, 3}, {5, 3}, {5, 5}} {
		t.Run(fmt.Sprintf("%d of %d", test.step, test.n), func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, test.n, func(t *testing.T, b *locktest.Bubble) {
				var seen clockLog
				l := watching(b, &seen, redlock.WithoutRenewal())
				lease := b.Lock(l, "r")
				ctx := lease.Context()
				step := func(d time.Duration) {
					_, _ = l.TryLock(t.Context(), "before") // to know the clocks
					time.Sleep(time.Second)
					for _, node := range b.Nodes[:test.step] {
						node.RunClock(1, d)
					}
					_, _ = l.TryLock(t.Context(), fmt.Sprint(d))
					synctest.Wait()
				}
				step(-time.Minute)
				if got := lease.Validity(); got != locktest.Validity-time.Second {
					t.Errorf("validity after a step back: got %v, want %v", got, locktest.Validity-time.Second)
				}
				seen.wantStill(t)
				step(3 * time.Second)
				if got, want := lease.Validity(), locktest.Validity-5*time.Second; (got - want).Abs() > 10*time.Millisecond {
					t.Errorf("validity after a step forward: got %v, want %v", got, want)
				}
				seen.wantStill(t, 3*time.Second)
				step(locktest.TTL)
				if ctx.Err() == nil {
					t.Error("the context goes on, want it to end with the reply that shows the step")
				}
				locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired, reason.Suspended})
				seen.wantStill(t, 3*time.Second, locktest.TTL)
				time.Sleep(time.Minute)
				wantMarked(b)
			})
		})
	}
}

// A node whose clock is far from the others gives no vote until it agrees, and the operator is told
// once.
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
		t.Run(fmt.Sprintf("by %v", off), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				var seen clockLog
				b.Nodes[0].RunClock(1, off)
				l := b.Locker(seen.observer(), redlock.WithLogger(nil))
				// Until all three clocks are known, it is not known which one is off.
				lease, err := l.Lock(t.Context(), "r")
				if err != nil {
					t.Fatalf("Lock: got %v, want a lease", err)
				}
				synctest.Wait()
				b.Nodes[1].Kill()
				for range 5 {
					_, err := l.TryLock(t.Context(), "s")
					locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNoQuorum}, redlock.ErrQuarantine)
					if got := locktest.RefusedBy(b, 0, err); !strings.Contains(got, "from the median of all masters") {
						t.Errorf("the node that is off: got %q, want how far", got)
					}
					time.Sleep(10 * time.Millisecond)
				}
				if err := lease.Extend(t.Context()); err != nil {
					t.Errorf("Extend: got %v, want no error: what the node holds it keeps", err)
				}
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
		})
	}
	t.Run("a little", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			var seen clockLog
			b.Nodes[0].RunClock(1, 5*time.Second) // less than 5.15 s
			l := watching(b, &seen)
			b.Nodes[1].Kill()
			b.Lock(l, "r")
			if got := told(&seen); got != 0 {
				t.Errorf("warnings: got %d, want none", got)
			}
		})
	})
	t.Run("told again when it happens again", func(t *testing.T) {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
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
	})
}

// Clocks that drift by the allowed amount do not count as stepped, however long it goes on. Clocks
// that drift by chrony's default maximum do.
//
// Source: ALGORITHM section 1, A1; section 9, "Why".
func TestWatchDrift(t *testing.T) {
	t.Run("0.4 % for an hour", func(t *testing.T) {
		t.Parallel()
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
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
	})
	for _, rate := range []float64{1.08, 0.92} {
		t.Run(fmt.Sprintf("rate %v", rate), func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
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
		})
	}
}

// With much traffic a clock that runs fast is only a little ahead at each look, and is noticed all
// the same.
//
// Source: ALGORITHM section 1, A1; section 9, "Why".
func TestWatchDriftUnderTraffic(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var seen clockLog
		l := watching(b, &seen)
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

// If the silent nodes could have seen the same step, it may be a step of the node or of the local
// clock. Then leases are shortened, and the node has no vote here for a time. This is decided after
// a node timeout. Until then the node has no vote either.
//
// Source: ALGORITHM section 9.
func TestWatchStepWithNodesDown(t *testing.T) {
	const step = 100 * time.Millisecond
	for _, test := range []struct {
		n, down int
		doubt   bool
	}{{3, 1, true}, {4, 1, false}, {4, 2, true}, {5, 1, false}, {5, 2, true}} {
		for how, fault := range map[string]func(*virtual.Node){"dead": (*virtual.Node).Kill, "hung": (*virtual.Node).Hang} {
			t.Run(fmt.Sprintf("%d of %d %s", test.down, test.n, how), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, test.n, func(t *testing.T, b *locktest.Bubble) {
					var seen clockLog
					l := watching(b, &seen)
					held := b.Lock(l, "held", redlock.WithoutRenewal())
					for _, node := range b.Nodes[test.n-test.down:] {
						fault(node)
					}
					_, _ = l.TryLock(t.Context(), "s")
					time.Sleep(time.Second)
					b.Nodes[0].RunClock(1, step)
					start := time.Now()
					_, _ = admin.Check(t.Context(), l)
					_, err := l.TryLock(t.Context(), "r")
					if votes := test.n - test.down - 1; (err == nil) != (votes > test.n/2) {
						t.Errorf("TryLock with %d of %d votes: got %v", votes, test.n, err)
					}
					synctest.Wait()
					if !test.doubt {
						seen.wantSteps(t, b, step, 0)
						wantMarked(b, 0)
						return
					}
					before := held.Validity()
					time.Sleep(time.Until(start.Add(locktest.MasterTimeout)) - 1)
					seen.wantStill(t)
					time.Sleep(2 * time.Millisecond)
					seen.wantStill(t, step)
					if got, most := held.Validity(), before-step-locktest.MasterTimeout/2; got > most {
						t.Errorf("validity: got %v after %v, want at most %v", got, before, most)
					}
					for _, node := range b.Nodes[test.n-test.down:] {
						node.Heal()
					}
					time.Sleep(2 * time.Second)
					lease := b.Lock(l, "t") // on the nodes that are back
					time.Sleep(locktest.TTL)
					seen.wantStill(t, step)
					wantMarked(b)
					b.Unlock(lease)
				})
			})
		}
	}
}

// A machine was paused, and at first reaches only a minority: its leases are over. When a quorum
// shows the same, no node is to blame, and no lease is shortened again.
//
// Source: ALGORITHM section 9.
func TestWatchStandstillSeenByFew(t *testing.T) {
	for _, n := range []int{3, 5} {
		for back := range n - n/2 + 1 {
			t.Run(fmt.Sprintf("%d nodes, %d back at a time", n, back), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, n, func(t *testing.T, b *locktest.Bubble) {
					clock := newStillClock()
					var seen clockLog
					l := watching(b, &seen, redlock.WithClock(clock))
					lease := b.Lock(l, "r")
					ctx := lease.Context()
					time.Sleep(time.Second)
					away := b.Nodes[n/2:]
					for _, node := range away {
						node.Hang()
					}
					clock.stand(time.Minute)
					start := time.Now()
					locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired, reason.Suspended})
					locktest.WantWithin(t, "end of the context", start, locktest.TTL/3+locktest.MasterTimeout)
					if got := lease.Validity(); got > 0 {
						t.Errorf("validity: got %v, want none", got)
					}
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
			})
		}
	}
}

// If the local clock jumps ahead together with those of the nodes, it has measured the machine's
// suspend itself. If it jumps alone it is wrong, but no node is to blame.
//
// Source: ALGORITHM sections 9 and 11.
func TestWatchLocalJump(t *testing.T) {
	for _, ahead := range []time.Duration{100 * time.Millisecond, 3 * time.Second, time.Hour} {
		for _, nodesToo := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, nodes too: %v", ahead, nodesToo), func(t *testing.T) {
				t.Parallel()
				locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
					clock := locktest.NewJumpClock()
					var seen clockLog
					l := watching(b, &seen, redlock.WithClock(clock))
					lease := b.Lock(l, "r")
					ctx := lease.Context()
					for range 3 {
						time.Sleep(locktest.TTL)
						clock.Jump(ahead)
						if nodesToo {
							b.All(func(n *virtual.Node) { n.RunClock(1, ahead) })
						}
					}
					time.Sleep(locktest.TTL)
					seen.wantStill(t)
					wantMarked(b)
					if over := ctx.Err() != nil; over != (ahead > locktest.TTL) {
						t.Errorf("lease over: got %v: %v", over, context.Cause(ctx))
					}
					_, _ = l.TryLock(t.Context(), "s") // a jump may cost it
					synctest.Wait()
					b.Lock(l, "t")
				})
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

		clock := newStillClock()
		var still clockLog
		l = watching(b, &still, redlock.WithoutRestartGuard(), redlock.WithClock(clock))
		lease = b.Lock(l, "t")
		clock.stand(locktest.TTL)
		locktest.WantDone(t, lease.Context(), []error{reason.Expired, reason.Suspended})
		still.wantStill(t, locktest.TTL)
		b.Unlock(b.Lock(l, "t"))
	})
}

// Every step of a node begins its quarantine anew, even if the last one is not over, and a step
// forward does not end it.
//
// Source: ALGORITHM sections 8 and 9.
func TestWatchStepsInQuarantine(t *testing.T) {
	// voteless checks how long a node has no vote for a new Locker.
	voteless := func(t *testing.T, b *locktest.Bubble, node int, atLeast time.Duration) {
		t.Helper()
		report, err := admin.Check(t.Context(), b.Locker(redlock.WithLogger(nil)))
		if got := report.Masters[node].Quarantine; got < atLeast {
			t.Errorf("quarantine: got %v and %v, want at least %v", got, err, atLeast)
		}
	}
	t.Run("again and again", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			var seen clockLog
			l := watching(b, &seen)
			lease := b.Lock(l, "r")
			var want []int
			for range 10 {
				b.Nodes[1].RunClock(1, 2*time.Second)
				time.Sleep(locktest.TTL / 3)
				want = append(want, 1)
				seen.wantSteps(t, b, 2*time.Second, want...)
				voteless(t, b, 1, locktest.Quarantine-locktest.TTL/3)
			}
			if err := lease.Context().Err(); err != nil {
				t.Errorf("got %v, want a lease", context.Cause(lease.Context()))
			}
		})
	})
	t.Run("there and back", func(t *testing.T) {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			var seen clockLog
			l := watching(b, &seen)
			lease := b.Lock(l, "r")
			for range 10 {
				b.Nodes[1].RunClock(1, time.Hour)
				time.Sleep(locktest.TTL / 3)
				b.Nodes[1].RunClock(1, -time.Hour)
				time.Sleep(locktest.TTL / 3)
				voteless(t, b, 1, locktest.Quarantine-locktest.TTL/3)
			}
			if stepped, _, _ := seen.get(); len(stepped) != 20 {
				t.Errorf("ClockStepped: got %d, want 20", len(stepped))
			}
			if err := lease.Context().Err(); err != nil {
				t.Errorf("got %v, want a lease", context.Cause(lease.Context()))
			}
			wantMarked(b, 1)
		})
	})
	t.Run("of a node that restarted empty", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithLogger(nil))
			lease := b.Lock(l, "r")
			b.Nodes[1].RestartEmpty()
			time.Sleep(locktest.TTL / 3)
			b.Nodes[1].RunClock(1, locktest.TTL) // by its own clock its quarantine is over
			time.Sleep(locktest.TTL / 3)
			voteless(t, b, 1, locktest.Quarantine-locktest.TTL/3)
			if err := lease.Context().Err(); err != nil {
				t.Errorf("got %v, want a lease", context.Cause(lease.Context()))
			}
		})
	})
	for name, restart := range map[string]func(*virtual.Node){
		"with its data": func(n *virtual.Node) { n.Kill(); n.Restart() },
		"empty":         (*virtual.Node).RestartEmpty,
	} {
		for _, step := range []time.Duration{locktest.TTL, -locktest.TTL, time.Hour} {
			t.Run(fmt.Sprintf("with a restart, %s, by %v", name, step), func(t *testing.T) {
				locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
					var seen clockLog
					l := watching(b, &seen)
					lease := b.Lock(l, "r")
					time.Sleep(time.Second)
					restart(b.Nodes[1])
					b.Nodes[1].RunClock(1, step)
					time.Sleep(locktest.TTL / 3)
					voteless(t, b, 1, locktest.Quarantine-locktest.TTL/3)
					time.Sleep(time.Minute)
					if err := lease.Context().Err(); err != nil {
						t.Errorf("got %v, want a lease", context.Cause(lease.Context()))
					}
					wantMarked(b, 1)
				})
			})
		}
	}
}

// Tests on real masters.

// A dead master tells nothing about the clocks any more: the last sample of its clock must not hide
// that another clock is off.
//
// Source: ALGORITHM section 9.
func TestWatchSkewWithANodeDeadForLong(t *testing.T) {
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute, 6 * time.Second} {
		t.Run(off.String(), func(t *testing.T) {
			locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
				b.Nodes[1].RunClock(1, off)
				l := b.WarmLocker(redlock.WithLogger(nil))
				b.Nodes[0].Kill()
				time.Sleep(24 * time.Hour)
				b.Unlock(b.Lock(l, "r")) // on the three that agree
				b.Nodes[2].Kill()
				_, err := l.TryLock(t.Context(), "r")
				locktest.WantMatch(t, "TryLock that needs the vote of the skewed node", err, []error{redlock.ErrNoQuorum})
				if said := locktest.RefusedBy(b, 1, err); !strings.Contains(said, "clock is ") {
					t.Errorf("the master whose clock is off: got %q, want how far", said)
				}
				b.Nodes[1].RunClock(1, -off)
				b.Unlock(mustLock(b, l, "r"))
			})
		})
	}
}

// A Locker that was idle for long looks at the clocks before it asks for votes. A call waits for
// that no longer than for an answer.
//
// Source: ALGORITHM section 9.
func TestWatchClocksAfterIdleTime(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithLogger(nil))
		b.All(func(n *virtual.Node) { n.Latency(5*time.Millisecond, 5*time.Millisecond) })
		time.Sleep(24 * time.Hour)
		began := time.Now()
		lease := b.Lock(l, "never seen before")
		locktest.WantWithin(t, "the lease", began, 25*time.Millisecond) // a look and a round trip
		b.Unlock(lease)
		time.Sleep(24 * time.Hour)
		b.All((*virtual.Node).Hang)
		began = time.Now()
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock with all masters hung", err, []error{redlock.ErrNoQuorum})
		locktest.WantWithin(t, "the error", began, 2*locktest.MasterTimeout) // the clocks are looked at first
		b.All((*virtual.Node).Resume)
		time.Sleep(24 * time.Hour)
		b.All((*virtual.Node).Kill)
		_, _ = l.TryLock(t.Context(), "r") // it finds the skew
		began = time.Now()
		_, err = l.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock with all masters down", err, []error{redlock.ErrNoQuorum})
		locktest.WantSince(t, "the error", began, 0)
	})
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
		t.Run(test.name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
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
		})
	}
}

// mustLock waits for a lease.
func mustLock(b *locktest.Bubble, l *redlock.Locker, resource string) *redlock.Lease {
	b.T.Helper()
	lease, err := l.Lock(b.T.Context(), resource)
	if err != nil {
		b.T.Fatalf("Lock(%q): got %v, want a lease", resource, err)
	}
	return lease
}

// However far a node's clock jumps, the leases end: as the other nodes are silent, the local clock
// may have stood still.
//
// Source: ALGORITHM section 9.
func TestWatchAbsurdTimes(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, jump := range []time.Duration{100 * year, 250 * year, 290 * year} {
		t.Run(fmt.Sprint(int(jump/year), " years"), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				var seen clockLog
				l := watching(b, &seen)
				lease := b.Lock(l, "r")
				b.Each((*virtual.Node).Hang, 1, 2)
				b.Nodes[0].RunClock(1, jump)
				for range 4 { // each time as far again
					_, _ = l.TryLock(t.Context(), "s")
					time.Sleep(time.Second)
					b.Nodes[0].RunClock(1, -jump)
					_, _ = l.TryLock(t.Context(), "s")
					time.Sleep(time.Second)
					b.Nodes[0].RunClock(1, jump)
				}
				if got := lease.Validity(); got > locktest.TTL {
					t.Errorf("validity: got %v, want no more than the TTL", got)
				}
				locktest.WantDone(t, lease.Context(), []error{redlock.ErrLost})
				b.All((*virtual.Node).Heal)
				b.Nodes[0].RunClock(1, -jump)
				time.Sleep(time.Minute)
				again := mustLock(b, l, "r")
				if got := again.Validity(); got <= 0 || got > locktest.TTL {
					t.Errorf("validity of the next lease: got %v, want some", got)
				}
				b.Unlock(again)
			})
		})
	}
}

// skewedCluster starts N masters whose wall clocks can be moved.
func skewedCluster(t *testing.T, n int) *locktest.Cluster {
	t.Helper()
	return locktest.NewCluster(t, redistest.Skewed(t, n))
}

// steppedBy waits for the event that a master's clock stepped, and checks by how much.
func (c *clockLog) steppedBy(t *testing.T, node string, least, most time.Duration) {
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
func TestClockOfAMaster(t *testing.T) {
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
		t.Run(test.name, func(t *testing.T) {
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
			if err := ctx.Err(); err != nil {
				t.Errorf("got %v, want a lease", context.Cause(ctx))
			}
			if _, still, _ := seen.get(); len(still) > 0 {
				t.Errorf("got %d StoodStill, want none", len(still))
			}
			locktest.Must(t, le.Unlock(t.Context()))
			c.Empty(t, "redlock:r")
		})
	}
}

// A master whose clock was an hour off from the start gives no vote, and the error names it.
func TestSkewedMaster(t *testing.T) {
	c := skewedCluster(t, 3)
	locktest.Must(t, c.Procs[0].StepClock(time.Hour))
	const ttl = time.Second
	var seen clockLog
	l := locktest.Open(t, c.Addrs, redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl/4), redlock.WithLogger(nil), seen.observer())
	_ = locktest.Lock(t, l, "r").Unlock(t.Context()) // on the others
	var report admin.Report
	redistest.Eventually(t, 10*time.Second, func() (alone bool) {
		var q *redlock.QuorumError
		var err error
		report, err = admin.Check(t.Context(), l)
		return errors.As(err, &q) && len(q.Masters) == 1 && q.Masters[0].Master == c.Addrs[0] && report.Voting == 2
	}, "the error of Check names "+c.Addrs[0]+" alone")
	if off := report.Masters[0].Clock; (off - time.Hour).Abs() > time.Second {
		t.Errorf("clock: got %v from the others, want an hour", off)
	}
	locktest.Must(t, c.Procs[1].Kill())
	_, err := l.TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrNoQuorum)
	locktest.Must(t, c.Procs[1].Restart())
	locktest.Must(t, c.Procs[0].StepClock(-time.Hour))
	redistest.Eventually(t, 10*time.Second, func() bool {
		report, _ := admin.Check(t.Context(), l)
		return report.Voting == 3
	}, "all have a vote again")
	locktest.Must(t, c.Procs[2].Kill())
	locktest.Must(t, locktest.Lock(t, l, "s").Unlock(t.Context())) // needs the vote of the corrected master
}

// A master that steps forward is the first to know: requests that are timed by its old clock come
// too late, and leave no key behind.
//
// Source: ALGORITHM section 9 ("answers LATE before granting").
func TestSteppedMasterAnswersLate(t *testing.T) {
	c := skewedCluster(t, 3)
	l := locktest.Open(t, c.Addrs, redlock.WithMasterTimeout(time.Second), redlock.WithLogger(nil))
	c.Warm(t, l)
	locktest.Must(t, c.Procs[2].Kill())
	redistest.Eventually(t, 10*time.Second, func() bool {
		le, err := l.TryLock(t.Context(), "s")
		if err == nil {
			locktest.Unlock(t, le)
		}
		return err == nil
	}, "two of three are enough")
	locktest.Must(t, c.Procs[0].StepClock(5*time.Second))
	_, err := l.TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
	var q *redlock.QuorumError
	if !errors.As(err, &q) || !slices.ContainsFunc(q.Masters, func(n *redlock.MasterError) bool {
		return n.Master == c.Addrs[0] && strings.Contains(n.Err.Error(), "arrived after its time")
	}) {
		t.Errorf("got %v, want it late for %s", err, c.Addrs[0])
	}
	if got := c.Nodes[0].Exists(t.Context(), "redlock:r").Val(); got != 0 {
		t.Error("the key is there")
	}
	c.Empty(t, "redlock:r")
	redistest.Eventually(t, 5*time.Second, func() bool {
		_, err := l.TryLock(t.Context(), "r")
		return errors.Is(err, redlock.ErrQuarantine)
	}, "the master has no vote for a time")
}
