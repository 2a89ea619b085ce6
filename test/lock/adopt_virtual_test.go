package lock_test

import (
	"context"
	"math"
	"slices"
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

// A round that completes only when a quorum of the keys may have expired revives nothing.
func TestAdoptTooLate(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := locktest.HandOn(b, moved, redlock.WithTTL(time.Second))
		l := b.WarmLocker()
		if _, err := admin.Inspect(t.Context(), l, moved); err != nil {
			t.Fatalf("Inspect: got %v, want no error", err)
		}
		b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, 40*time.Millisecond) })
		time.Sleep(920 * time.Millisecond) // the first round is complete before the end, the second arrives but is not answered in time
		_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum})
		if n := b.Nodes[0].Seen("extend", moved); n != 1 {
			t.Errorf("got %d extends, want only the late one", n)
		}
	})
}

// A failed adoption sets the key on no node that lacked it; a successful one does.
func TestAdoptFillsAfterwards(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := locktest.HandOn(b, moved)
		l := b.WarmLocker()
		b.Nodes[2].Put("redlock:"+moved, "", 0)
		locktest.BetweenRounds(b, func() { b.Nodes[1].Hang() })
		_, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence())
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld)
		if n := b.Nodes[0].Seen("extend", moved); n != 1 {
			t.Errorf("got %d extends, want only those of the second round", n)
		}
		b.Nodes[1].Resume()
		time.Sleep(time.Second)
		b.WantHolding(moved, 0, 1)
		locktest.BetweenRounds(b, func() { b.Nodes[1].Hang() })
		ctx, cancel := context.WithTimeout(t.Context(), 160*time.Millisecond)
		defer cancel()
		_, err = l.Adopt(ctx, moved, le.Token(), le.Fence())
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum, context.DeadlineExceeded}, redlock.ErrNotHeld)
		b.Nodes[1].Resume()
		time.Sleep(time.Second)
		b.WantHolding(moved, 0, 1)
		if _, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence()); err != nil {
			t.Fatalf("Adopt: got %v, want a lease", err)
		}
		time.Sleep(60 * time.Millisecond)
		b.WantHolding(moved, 0, 1, 2)
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
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNotHeld, redlock.ErrLost, reason.QuorumLost})
	})
}

// If its process still renews a lease that is adopted, both share it and renew it. No other
// client gets it, and an unlock by one of them is noticed by the other in time.
func TestAdoptWhileItIsRenewed(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(), moved)
		next, err := b.WarmLocker().Adopt(t.Context(), moved, le.Token(), 0)
		if err != nil {
			t.Fatalf("Adopt: got %v, want a lease", err)
		}
		other := b.WarmLocker()
		for range 6 {
			time.Sleep(5 * time.Second)
			_, err := other.TryLock(t.Context(), moved)
			locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrTaken})
			if le.Validity() <= 0 || next.Validity() <= 0 {
				t.Fatalf("got validities of %v and %v, want both", le.Validity(), next.Validity())
			}
		}
		if err := le.Detach(); err != nil {
			t.Errorf("Detach: got %v, want no error", err)
		}
		time.Sleep(30 * time.Second)
		if next.Validity() <= 0 {
			t.Error("got an adopted lease that ended with the first, want it to go on")
		}
		synctest.Wait()
		b.Unlock(next)
		if got := b.Holding(moved); !slices.Equal(got, nil) {
			t.Errorf("got the key on %v, want it nowhere", got)
		}
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
		{name: "as far as can be", ahead: most},
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
					if err != nil || le.Fence() != fence {
						t.Errorf("got %v, want a lease with fence %d", err, fence)
					}
					return
				}
				locktest.WantMatch(t, "Adopt", err, []error{test.want}, redlock.ErrNotHeld)
				synctest.Wait()
				for i, n := range b.Nodes {
					if got := n.Get("redlock:" + moved + "~fence"); got != "" || n.Seen("extend", moved) > 0 || n.Value(moved) != before {
						t.Errorf("node %d: got %q, counter %q, %d extends; want it as it was", i, n.Value(moved), got, n.Seen("extend", moved))
					}
				}
			})
		})
	}
}

// If the two middle clocks disagree, it is not known how far ahead a fencing token may be. A lease
// whose token is known from its counter can still be adopted.
func TestAdoptWithClocksThatDisagree(t *testing.T) {
	locktest.InBubble(t, 4, func(t *testing.T, b *locktest.Bubble) {
		le := locktest.HandOn(b, moved)
		granted := b.Nodes[0].Value(moved)
		b.Each(func(n *virtual.Node) { n.RunClock(1, time.Minute) }, 2, 3)
		l := b.Locker(redlock.WithLogger(nil))
		b.All(func(n *virtual.Node) { n.Put("redlock:unknown", le.Token()+"|0", time.Hour) })
		_, err := l.Adopt(t.Context(), "unknown", le.Token(), le.Fence())
		locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNoQuorum}, redlock.ErrConfig, redlock.ErrNotHeld)
		b.All(func(n *virtual.Node) { n.Put("redlock:"+moved, granted, time.Hour) })
		if _, err := l.Adopt(t.Context(), moved, le.Token(), le.Fence()); err != nil {
			t.Errorf("Adopt: got %v, want a lease", err)
		}
	})
}
