package lock_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
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
		if err := le.Detach(); err != nil {
			t.Fatalf("Detach: got %v, want no error", err)
		}
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
		if err != nil {
			t.Fatalf("Adopt: got %v, want a lease", err)
		}
		rounds := time.Since(began) / (50 * time.Millisecond) // the first round may be repeated
		if rounds < 2 || time.Since(began)%(50*time.Millisecond) != 0 {
			t.Errorf("got it after %v, want some round trips", time.Since(began))
		}
		if got, want := next.Validity(), 10*time.Second-102*time.Millisecond-50*time.Millisecond; got != want {
			t.Errorf("got a validity of %v, want %v", got, want)
		}
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
		if err := le.Err(); err != nil {
			t.Fatalf("the former lease: got %v, want it to stand", err)
		}
		next, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		if err != nil {
			t.Fatalf("Adopt: got %v, want a lease", err)
		}
		time.Sleep(15 * time.Second)
		b.WantHolding(moved, 0, 1, 2)
		locktest.WantDone(t, le.Context(), []error{redlock.ErrDetached, redlock.ErrLost})
		b.Unlock(next)
	})
}

// A node that another client takes between the two rounds does not count.
func TestAdoptWhatIsTakenMeanwhile(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := locktest.HandOn(b, moved)
		l := b.WarmLocker()
		locktest.BetweenRounds(b, func() {
			for _, n := range b.Nodes[:2] {
				n.Put("redlock:"+moved, "another|6400", time.Minute)
			}
		})
		began := time.Now()
		_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		locktest.WantSince(t, "the error", began, 100*time.Millisecond) // without waiting
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum)
	})
}

// A process that still renews a lease that is adopted hears of it at its next renewal, and the adopter goes on.
func TestAdoptWhileItIsRenewed(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		former := b.WarmLocker()
		le := b.Lock(former, moved)
		next, err := b.WarmLocker().Adopt(t.Context(), moved, le.Token(), 0)
		if err != nil {
			t.Fatalf("Adopt: got %v, want a lease", err)
		}
		time.Sleep(3334 * time.Millisecond)
		locktest.WantDone(t, le.Context(), []error{redlock.ErrDetached, redlock.ErrLost})
		other := b.WarmLocker()
		for range 6 {
			time.Sleep(5 * time.Second)
			_, err := other.TryLock(t.Context(), moved)
			locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrTaken})
			if next.Validity() <= 0 {
				t.Fatal("got an adopted lease that has ended, want it to go on")
			}
		}
		locktest.Must(t, former.Close())
		synctest.Wait()
		b.Unlock(next)
		if got := b.Holding(moved); !slices.Equal(got, nil) {
			t.Errorf("got the key on %v, want it nowhere", got)
		}
	})
}

// A former holder that renews its lease, as all do, hears at once of an adoption by the masters' message. What
// it sent before it heard changes nothing.
func TestAdoptedIsTold(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(), moved)
		time.Sleep(4 * time.Second) // it listens from its first renewal on
		next, err := b.WarmLocker().Adopt(t.Context(), moved, le.Token(), le.Fence())
		if err != nil {
			t.Fatalf("Adopt: got %v, want a lease", err)
		}
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
		t.Run(test.name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
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

// Another holder that came and went after the look shows in the counters of the votes, although fills of the former
// holder hide it.
func TestAdoptAfterAnotherHolder(t *testing.T) {
	for _, changed := range []bool{false, true} {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			le := locktest.HandOn(b, moved)
			l := b.WarmLocker()
			b.All(func(n *virtual.Node) { n.Put("redlock:"+moved, le.Token()+"|0", time.Minute) })
			locktest.BetweenRounds(b, func() {
				if changed {
					b.Each(func(n *virtual.Node) {
						n.Put("redlock:"+moved+"~fence", strconv.FormatInt(le.Fence()+63+64, 10), time.Minute)
					}, 0, 1)
				}
			})
			_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
			switch {
			case changed:
				locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld)
			case err != nil:
				t.Errorf("got %v, want a lease", err)
			}
		})
	}
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
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				do(t, b, b.Lock(b.WarmLocker(), moved))
				in, err := admin.Inspect(t.Context(), b.WarmLocker(), moved)
				locktest.Must(t, err)
				for _, m := range in.Masters {
					if m.Quarantine > 0 {
						t.Errorf("got %s in quarantine", m.Master)
					}
				}
			})
		})
	}
}

// The function of Do hears that its lease was adopted, and Do returns that the lease was lost.
func TestDoWhoseLeaseIsAdopted(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		other := b.WarmLocker()
		err := b.WarmLocker().Do(t.Context(), moved, func(ctx context.Context, lease *redlock.Lease) error {
			next, err := other.Adopt(t.Context(), moved, lease.Token(), lease.Fence())
			locktest.Must(t, err)
			<-ctx.Done()
			b.Unlock(next)
			return nil
		})
		locktest.WantMatch(t, "Do", err, []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrDetached})
	})
}
