package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// After Detach nothing is renewed or released. The keys expire with their TTL, and then a
// waiting caller gets the lock.
func TestDetachedLeaseEndsByItself(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		began := time.Now()
		le := b.Lock(l, moved)
		waiting := make(chan *redlock.Lease)
		go func() { // in the same process, which hands nothing over
			next, err := l.Lock(t.Context(), moved)
			if err != nil {
				t.Errorf("Lock: got %v, want a lease", err)
			}
			waiting <- next
		}()
		synctest.Wait()
		locktest.Must(t, le.Detach())
		time.Sleep(9900 * time.Millisecond)
		b.WantHolding(moved, 0, 1, 2)
		for i, n := range b.Nodes {
			for _, c := range append(n.CallsOf("extend", moved), n.CallsOf("release", moved)...) {
				if c.ID == le.Token() { // and not an acquire of the waiting caller
					t.Errorf("node %d: got a call of %s, want none", i, c.Op)
				}
			}
		}
		next := <-waiting
		if next == nil {
			t.FailNow()
		}
		if took := time.Since(began); took < 10*time.Second || took > 11500*time.Millisecond {
			t.Errorf("got the next lease after %v, want it when the TTL of 10s is over", took)
		}
		if next.Fence() <= le.Fence() {
			t.Errorf("got fence %d after %d, want a larger fence", next.Fence(), le.Fence())
		}
	})
}

// The validity counts from before the round that extended the keys.
func TestAdoptedValidity(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := locktest.HandOn(b, moved)
		l := b.WarmLocker()
		time.Sleep(5 * time.Second)
		b.All(func(n *virtual.Node) { n.Latency(20*time.Millisecond, 30*time.Millisecond) })
		time.Sleep(time.Second)
		began := time.Now()
		next, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence(), redlock.WithoutRenewal())
		locktest.Must(t, err)
		rounds := time.Since(began) / (50 * time.Millisecond) // the first round may be repeated
		if rounds < 2 || time.Since(began)%(50*time.Millisecond) != 0 {
			t.Errorf("got it after %v, want some round trips", time.Since(began))
		}
		locktest.WantValidity(t, next, 10*time.Second-102*time.Millisecond-50*time.Millisecond)
		locktest.WantDone(t, next.Context(), []error{redlock.ErrLost, reason.Expired})
	})
}

// Keys that have expired since the look are not adopted, and none is set.
func TestAdoptTooLate(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := locktest.HandOn(b, moved, redlock.WithTTL(time.Second))
		l := b.WarmLocker()
		if _, err := admin.Inspect(t.Context(), l, moved); err != nil {
			t.Fatalf("Inspect: got %v, want no error", err)
		}
		b.All(func(n *virtual.Node) { n.Latency(20*time.Millisecond, 40*time.Millisecond) })
		time.Sleep(950 * time.Millisecond) // the look arrives before the end, the second round after it
		_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNotHeld})
		b.WantHolding(moved)
	})
}

// An adoption that no quorum carries out leaves the former holder's lease as it is. The next one is
// successful, and fills the other nodes.
func TestAdoptFails(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		former := b.WarmLocker()
		le := b.Lock(former, moved)
		l := b.WarmLocker()
		locktest.BetweenRounds(b, func() { b.Each(func(n *virtual.Node) { n.Refuse("OOM command not allowed") }, 1, 2) })
		_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		var failed *redlock.QuorumError
		if errors.As(err, &failed) && slices.ContainsFunc(failed.Masters, func(m *redlock.MasterError) bool { return m.Op != "adopt" }) {
			t.Errorf("got %v, want adopt as the operation of each master", failed.Masters)
		}
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld)
		b.Each(func(n *virtual.Node) { n.Refuse("") }, 1, 2)
		b.All(func(n *virtual.Node) { n.Latency(0, 0) })
		time.Sleep(8 * time.Second)
		locktest.Must(t, le.Err())
		next, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		locktest.Must(t, err)
		time.Sleep(15 * time.Second)
		b.WantHolding(moved, 0, 1, 2)
		locktest.WantDone(t, le.Context(), []error{redlock.ErrDetached, redlock.ErrLost})
		b.Unlock(next)
	})
}

// An adoption whose votes are lost releases nothing: until the former holder hears of it, it believes in its lease.
func TestAdoptWhoseVotesAreLost(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(), moved, redlock.WithoutRenewal())
		l := b.WarmLocker()
		locktest.BetweenRounds(b, func() { b.All(func(n *virtual.Node) { n.LoseReplies() }) })
		_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld)
		b.All(func(n *virtual.Node) { n.Heal(); n.Latency(0, 0) })
		time.Sleep(5 * time.Second)
		b.WantHolding(moved, 0, 1, 2)
		locktest.Must(t, le.Err())
	})
}

// A lease is not adopted if another holder may have had the resource since, and nothing is written. A late acquire of the former holder,
// with a larger counter, is no grant of its lease.
func TestAdoptWhatAnotherHad(t *testing.T) {
	const fill = true
	type held struct {
		blocks int64 // of the counter, behind that of the lease
		fill   bool
	}
	for name, nodes := range map[string][3]held{
		"the keys were filled":  {{1, fill}, {1, fill}, {1, fill}},
		"an acquire comes late": {{0, !fill}, {1, fill}, {2, !fill}},
	} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			le := locktest.HandOn(b, moved)
			l := b.WarmLocker()
			var before [3]string
			for i, n := range b.Nodes {
				counter := le.Fence() + 63 + 64*nodes[i].blocks
				before[i] = fmt.Sprintf("%s|%d", le.Token(), counter)
				if nodes[i].fill {
					before[i] = le.Token() + "|0"
				}
				n.Put("redlock:"+moved, before[i], time.Minute)
				n.Put("redlock:"+moved+"~fence", strconv.FormatInt(counter, 10), time.Minute)
			}
			_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
			locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum)
			for i, n := range b.Nodes {
				if got := n.Value(moved); got != before[i] {
					t.Errorf("node %d: got %q, want %q as before", i, got, before[i])
				}
			}
		})
	}
}

// A node that another client takes between the two rounds does not count. Another holder that came and went after the look
// shows in the counters of the votes, although fills of the former holder hide it.
func TestAdoptWhatIsTakenMeanwhile(t *testing.T) {
	const key = "redlock:" + moved
	for _, test := range []struct {
		name      string
		filled    bool // the keys
		meanwhile func(n *virtual.Node, last int64)
		want      error
	}{
		{"nothing", true, func(*virtual.Node, int64) {}, nil},
		{"another has it", false, func(n *virtual.Node, _ int64) { n.Put(key, "another|6400", time.Minute) }, redlock.ErrNotHeld},
		{"another had it", true, func(n *virtual.Node, last int64) {
			n.Put(key+"~fence", strconv.FormatInt(last+64, 10), time.Minute)
		}, redlock.ErrNoQuorum},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			le := locktest.HandOn(b, moved)
			l := b.WarmLocker()
			if test.filled {
				b.All(func(n *virtual.Node) { n.Put(key, le.Token()+"|0", time.Minute) })
			}
			locktest.BetweenRounds(b, func() { b.Each(func(n *virtual.Node) { test.meanwhile(n, le.Fence()+63) }, 0, 1) })
			began := time.Now()
			_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
			if !errors.Is(err, test.want) || errors.Is(err, redlock.ErrNotHeld) && errors.Is(err, redlock.ErrNoQuorum) {
				t.Errorf("Adopt: got %v, want %v", err, test.want)
			}
			if test.want == redlock.ErrNotHeld {
				locktest.WantSince(t, "the error", began, 100*time.Millisecond) // without waiting
			}
		})
	}
}

// A former holder that renews its lease, as all do, hears at once of an adoption by the masters' message. What
// it sent before it heard changes nothing.
func TestAdoptedIsTold(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(), moved)
		time.Sleep(4 * time.Second) // it listens from its first renewal on
		next, err := b.WarmLocker().Adopt(t.Context(), moved, le.Token(), le.Fence())
		locktest.Must(t, err)
		time.Sleep(10 * time.Millisecond)
		locktest.WantDone(t, le.Context(), []error{redlock.ErrDetached, redlock.ErrLost})
		b.Unlock(next)
		b.WantHolding(moved)
		time.Sleep(20 * time.Second)
		b.WantHolding(moved)
		b.Unlock(b.Lock(b.Locker(), moved))
	})
}

// A fencing token that no lease can have is refused before it is written anywhere. The clocks of
// the nodes decide that, not the local clock.
//
// Source: ALGORITHM section 4, "MaxAhead", and section 6.
func TestAdoptWithAFenceFromTheFuture(t *testing.T) {
	const most = 6150 * time.Millisecond // MaxSkew, half a quarantine of 10.3 s, plus 1 s
	for _, test := range []struct {
		name  string
		ahead time.Duration // of the median clock
		step  time.Duration // of one node's clock
		want  error
	}{
		{name: "as far as can be", ahead: most - time.Millisecond},
		{name: "further", ahead: most + 10*time.Millisecond, want: redlock.ErrConfig},
		{name: "a year", ahead: 365 * 24 * time.Hour, want: redlock.ErrConfig},
		{name: "292 years", ahead: math.MaxInt64, want: redlock.ErrConfig},
		{name: "a day, and one node's clock is there", ahead: 24 * time.Hour, step: 24 * time.Hour, want: redlock.ErrConfig},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			b.Nodes[2].RunClock(1, test.step)
			token := locktest.NewID()
			before := token + "|0" // filled: the counter is not known from it
			l := b.Locker()
			b.All(func(n *virtual.Node) { n.Put("redlock:"+moved, before, time.Minute) })
			fence := time.Now().UnixMicro() + min(test.ahead.Microseconds(), math.MaxInt64-time.Now().UnixMicro())
			le, err := l.Adopt(t.Context(), moved, token, fence)
			if test.want == nil {
				if err != nil || le.Fence() <= fence {
					t.Errorf("got %v, want a lease with a fence behind %d", err, fence)
				}
				return
			}
			locktest.WantMatch(t, "Adopt", err, []error{test.want}, redlock.ErrNotHeld)
			synctest.Wait()
			for i, n := range b.Nodes {
				if got := n.Get("redlock:" + moved + "~fence"); got != "" || n.Seen("adopt", moved) > 0 || n.Value(moved) != before {
					t.Errorf("node %d: got %q, counter %q, %d adopts; want it as it was", i, n.Value(moved), got, n.Seen("adopt", moved))
				}
			}
		})
	}
}

// If the two middle clocks disagree, no lease is granted or adopted, and the former holder keeps its keys.
func TestAdoptWithClocksThatDisagree(t *testing.T) {
	locktest.InBubble(t, 4, func(t *testing.T, b *locktest.Bubble) {
		le := locktest.HandOn(b, moved)
		granted := b.Nodes[0].Value(moved)
		b.Each(func(n *virtual.Node) { n.RunClock(1, time.Minute) }, 2, 3)
		l := b.Locker(redlock.WithLogger(nil))
		for _, value := range []string{granted, le.Token() + "|0"} {
			b.All(func(n *virtual.Node) { n.Put("redlock:"+moved, value, time.Hour) })
			_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
			locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum}, redlock.ErrConfig, redlock.ErrNotHeld)
			if got := b.Nodes[0].Value(moved); got != value {
				t.Errorf("got %q, want %q as before", got, value)
			}
		}
	})
}

// A lease on any of several resources is adopted by the resource that it has, and a waiting caller is served after it.
func TestAdoptOneOfSeveral(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		former := b.WarmLocker()
		le, err := former.LockAny(t.Context(), "pool", 1)
		locktest.Must(t, err)
		next, err := b.WarmLocker().Adopt(t.Context(), le.Resource(), le.Token(), le.Fence())
		locktest.Must(t, err)
		other, waited := b.WarmLocker(), make(chan *redlock.Lease)
		go func() {
			lease, err := other.LockAny(t.Context(), "pool", 1)
			locktest.Must(t, err)
			waited <- lease
		}()
		time.Sleep(time.Second)
		_ = le.Unlock(t.Context()) // too late: returns ErrNotHeld
		time.Sleep(15 * time.Second)
		if len(waited) > 0 || next.Err() != nil {
			t.Fatalf("got the permit beside the adopter, whose lease is %v; want it to wait", next.Err())
		}
		began := time.Now()
		b.Unlock(next)
		b.Unlock(<-waited)
		locktest.WantWithin(t, "the waiting caller", began, 100*time.Millisecond)
	})
}

// What a former holder or a process with the token alone sends after the key is gone is no evidence against a master.
func TestNoEvidenceWithoutTheLease(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, b *locktest.Bubble, le *redlock.Lease){
		"released between the two rounds of ExtendToken": func(t *testing.T, b *locktest.Bubble, le *redlock.Lease) {
			locktest.Must(t, le.Detach())
			l := b.WarmLocker()
			locktest.BetweenRounds(b, func() { b.All(func(n *virtual.Node) { n.Put("redlock:"+moved, "", 0) }) })
			_, _, err := l.ExtendToken(t.Context(), moved, le.Token())
			locktest.WantMatch(t, "ExtendToken", err, []error{redlock.ErrNotHeld})
		},
		"downgraded after the adopter's Unlock": func(t *testing.T, b *locktest.Bubble, le *redlock.Lease) {
			next, err := b.WarmLocker().Adopt(t.Context(), moved, le.Token(), le.Fence())
			locktest.Must(t, err)
			time.Sleep(100 * time.Millisecond) // the adoption reaches all nodes
			b.Unlock(next)
			locktest.WantMatch(t, "Downgrade", le.Downgrade(t.Context()), []error{redlock.ErrDetached})
			b.WantHolding(moved)
		},
	} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			do(t, b, b.Lock(b.WarmLocker(), moved))
			in, err := admin.Inspect(t.Context(), b.WarmLocker(), moved)
			locktest.Must(t, err)
			for _, m := range in.Masters {
				if m.Quarantine > 0 {
					t.Errorf("got %s in quarantine", m.Master)
				}
			}
		})
	}
}

// Detach ends all handles of a lease. The process's callers wait for it as for that of another process; and a lease that
// was handed over before has a larger fencing token when it is adopted, too.
func TestDetachWithHandlesAndWaiters(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithReentry())
		first := b.Lock(l, moved)
		w := b.WaitFor(t.Context(), l, moved)
		b.Unlock(first)
		outer := b.Got(w)
		inner, err := l.TryLock(outer.Context(), moved)
		locktest.Must(t, err)
		w = b.WaitFor(t.Context(), l, moved)
		locktest.Must(t, inner.Detach())
		wantEnded(t, inner, redlock.ErrDetached)
		wantEnded(t, outer, redlock.ErrDetached)
		adopted, err := l.Adopt(t.Context(), moved, outer.Token(), outer.Fence())
		locktest.Must(t, err)
		if outer.Token() != first.Token() || outer.Fence() <= first.Fence() || adopted.Fence() <= outer.Fence() {
			t.Errorf("got fences %d, %d and %d, want each larger, the second handed over", first.Fence(), outer.Fence(), adopted.Fence())
		}
		if in, err := admin.Inspect(t.Context(), l, moved); err != nil || in.Fence != adopted.Fence() || !w.Waits() {
			t.Errorf("got %+v, %v; want the fencing token %d, and a caller that waits", in, err, adopted.Fence())
		}
		b.Unlock(adopted)
		if last := b.Got(w); last.Fence() <= adopted.Fence() {
			t.Errorf("got fence %d after %d, want a larger fence", last.Fence(), adopted.Fence())
		}
	})
}

// A holder that still renews a lease that is released by its token hears of that, and takes no master for one that
// lost data: the resource can be had at once, before and after.
//
// Source: ALGORITHM section 6, "By token".
func TestReleasedByTokenWithoutDetach(t *testing.T) {
	for name, wait := range map[string]time.Duration{"told": 4 * time.Second, "at its first renewal": 0} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			former, third := b.WarmLocker(), b.WarmLocker()
			le := b.Lock(former, moved)
			time.Sleep(wait) // the first renewal has the masters know of the holder
			locktest.Must(t, b.WarmLocker().ReleaseToken(t.Context(), moved, le.Token()))
			synctest.Wait()
			b.Unlock(b.Lock(third, moved))
			locktest.WantDone(t, le.Context(), []error{redlock.ErrDetached, redlock.ErrLost})
			synctest.Wait()
			b.Unlock(b.Lock(third, moved))
			b.Unlock(b.Lock(former, moved))
		})
	}
}

// A former holder that forgot Detach changes nothing after its lease was adopted, whatever it does and
// whenever the adopter unlocks; and it hears of it. Nor does a process that has the former token.
//
// Source: ALGORITHM section 6, "The former holder".
func TestAdoptedWithoutDetach(t *testing.T) {
	detached := []error{redlock.ErrDetached, redlock.ErrLost}
	for name, do := range map[string]func(t *testing.T, l *redlock.Locker, le *redlock.Lease){
		"Close": func(_ *testing.T, l *redlock.Locker, _ *redlock.Lease) { _ = l.Close() },
		"Unlock": func(t *testing.T, _ *redlock.Locker, le *redlock.Lease) {
			locktest.WantMatch(t, "Unlock", le.Unlock(t.Context()), detached)
		},
		"Extend": func(t *testing.T, _ *redlock.Locker, le *redlock.Lease) {
			locktest.WantMatch(t, "Extend", le.Extend(t.Context()), detached)
		},
		"TryLock": func(t *testing.T, l *redlock.Locker, _ *redlock.Lease) {
			_, err := l.TryLock(t.Context(), moved)
			locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrTaken})
		},
		"renewal": func(t *testing.T, _ *redlock.Locker, le *redlock.Lease) {
			locktest.WantDone(t, le.Context(), detached)
			locktest.WantMatch(t, "Unlock", le.Unlock(t.Context()), detached)
		},
		"the token": func(t *testing.T, l *redlock.Locker, le *redlock.Lease) {
			_, _, err := l.ExtendToken(t.Context(), moved, le.Token())
			locktest.WantMatch(t, "ExtendToken", err, []error{redlock.ErrNotHeld})
			locktest.WantMatch(t, "ReleaseToken", l.ReleaseToken(t.Context(), moved, le.Token()), []error{redlock.ErrNotHeld})
			_, err = l.Adopt(t.Context(), moved, le.Token(), 0)
			locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNotHeld})
		},
	} {
		for _, released := range []bool{false, true} {
			locktest.Subtest(t, fmt.Sprintf("%s, released first %v", name, released), 3, func(t *testing.T, b *locktest.Bubble) {
				former, third := b.WarmLocker(), b.WarmLocker()
				le := b.Lock(former, moved)
				next, err := b.WarmLocker().Adopt(t.Context(), moved, le.Token(), 0)
				locktest.Must(t, err)
				synctest.Wait()
				if released {
					b.Unlock(next)
					if name == "TryLock" { // the resource is free
						return
					}
				}
				do(t, former, le)
				synctest.Wait()
				_, err = third.TryLock(t.Context(), moved)
				if released {
					locktest.Must(t, err) // at once: no master is in quarantine
					return
				}
				locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrTaken})
				locktest.Must(t, next.Extend(t.Context()))
				synctest.Wait()
				for i, n := range b.Nodes {
					if got := n.Value(moved); !strings.HasPrefix(got, next.Token()) {
						t.Errorf("node %d: got %q, want the key of %s", i, got, next.Token())
					}
				}
			})
		}
	}
}

// The function of Do hears that its lease was adopted, and Do returns that the lease was lost. A lease that was detached
// inside Do is neither lost nor unlocked.
func TestDoWhoseLeaseIsAdopted(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		err := l.Do(t.Context(), moved, func(ctx context.Context, lease *redlock.Lease) error {
			next, err := other.Adopt(t.Context(), moved, lease.Token(), lease.Fence())
			locktest.Must(t, err)
			<-ctx.Done()
			b.Unlock(next)
			return nil
		})
		locktest.WantMatch(t, "Do", err, []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrDetached})
		locktest.Must(t, l.Do(t.Context(), moved, func(ctx context.Context, lease *redlock.Lease) error {
			locktest.Must(t, lease.Detach())
			locktest.WantDone(t, ctx, []error{redlock.ErrDetached}, redlock.ErrLost)
			return nil
		}))
		b.WantHolding(moved, 0, 1, 2)
	})
}
