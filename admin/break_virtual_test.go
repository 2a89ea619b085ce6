package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// nextHolder is the caller that waits for stuck, and the time at which it got it.
type nextHolder struct {
	lease *redlock.Lease
	at    time.Time
}

// nextOf makes a caller wait for stuck. It must not get it while the lease before is valid.
func nextOf(b *locktest.Bubble, l *redlock.Locker, before *redlock.Lease) <-chan nextHolder {
	b.T.Helper()
	got := make(chan nextHolder, 1)
	go func() {
		le, err := l.Lock(b.T.Context(), stuck)
		if err != nil {
			b.T.Errorf("Lock: got %v, want a lease", err)
		}
		if before.Context().Err() == nil || before.Validity() > 0 {
			b.T.Error("got a lease while the broken one is valid")
		}
		got <- nextHolder{le, time.Now()}
	}()
	return got
}

// doneAt returns the time at which a context ended.
func doneAt(ctx context.Context) <-chan time.Time {
	at := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { at <- time.Now() })
	return at
}

// broken breaks stuck, on a quorum of nodes at least.
func broken(b *locktest.Bubble, l *redlock.Locker) {
	b.T.Helper()
	if _, err := admin.Break(b.T.Context(), l, stuck); err != nil {
		b.T.Fatalf("Break: got %v, want no error", err)
	}
}

// Readers of the Locker that breaks lose their leases at once, like a holder.
//
// Source: ALGORITHM section 5, "Break".
func TestBreakOfReadersOfTheLocker(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		reader := b.Lock(l, stuck, redlock.Shared())
		other := b.Lock(l, "other", redlock.Shared())
		synctest.Wait()
		broken(b, l)
		if err := reader.Err(); !errors.Is(err, redlock.ErrBroken) {
			t.Errorf("the reader: got %v, want ErrBroken", err)
		}
		if err := other.Err(); err != nil {
			t.Errorf("a reader of another resource: got %v, want it held", err)
		}
	})
}

// A live holder learns that its lock was broken. When it has ended its lease, it releases the
// placeholders of its keys: the next holder need not wait for the TTL.
//
// Source: ALGORITHM section 5, "Break".
func TestBreakIsToldToTheHolder(t *testing.T) {
	const way, roundTrip = 10 * time.Millisecond, 20 * time.Millisecond
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		here    bool // the holder's own Locker breaks it
		local   bool // the waiting caller is in the holder's process
		young   bool // the holder has not renewed it yet
		unlocks bool
		told    time.Duration // at the latest so long after the call of Break the holder knows
		next    time.Duration // at the latest so long after that the next holder has it
	}{
		{name: "by another process", told: 200 * ms, next: 300 * ms},
		{name: "by another process, a caller of the holder's process waits", local: true, told: 200 * ms, next: 300 * ms},
		{name: "by its own process", here: true, young: true, told: 100 * ms, next: 300 * ms},
		{name: "by its own process, which waits", here: true, local: true, told: 100 * ms, next: 300 * ms},
		{name: "which has not renewed yet", young: true, told: 3 * time.Second, next: 300 * ms},
		{name: "which unlocks at once", unlocks: true, told: 200 * ms, next: 100 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				holder := b.Locker()
				breaker, waiter := b.WarmLocker(), b.WarmLocker()
				if test.here {
					breaker = holder
				}
				if test.local {
					waiter = holder
				}
				b.All(func(n *virtual.Node) { n.Latency(way, way) })
				le := b.Lock(holder, stuck)
				ended := doneAt(le.Context())
				got := nextOf(b, waiter, le)
				time.Sleep(time.Second)
				if !test.young {
					time.Sleep(3 * time.Second) // it is renewed after a third of the TTL
				}
				if test.unlocks {
					context.AfterFunc(le.Context(), func() { _ = le.Unlock(t.Context()) })
				}
				began := time.Now()
				broken(b, breaker)
				learned := <-ended
				if d := learned.Sub(began); d > test.told {
					t.Errorf("got a holder that knew after %v, want at most %v", d, test.told)
				}
				locktest.WantMatch(t, "cause of the context", context.Cause(le.Context()), []error{redlock.ErrLost, reason.QuorumLost, redlock.ErrBroken}, reason.Expired)
				next := <-got
				if d := next.at.Sub(learned); d > test.next || !test.unlocks && d < 200*ms {
					t.Errorf("got it %v after the holder knew, want at most %v, and 200ms for the holder to wind down", d, test.next)
				}
				if next.lease.Fence() <= le.Fence() {
					t.Errorf("got fence %d after %d, want a larger fence", next.lease.Fence(), le.Fence())
				}
				_ = le.Unlock(t.Context()) // late, without effect on the next holder
				time.Sleep(time.Second)
				if next.lease.Validity() <= 0 {
					t.Error("got a next lease that is over")
				}
				b.Unlock(next.lease)
				b.WantHolding(stuck)
			})
		})
	}
}

// Break respects the grace, which separates the holder's late messages from the next holder.
func TestBreakLeavesTheGrace(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(redlock.WithGrace(time.Second)), stuck)
		ended := doneAt(le.Context())
		got := nextOf(b, b.WarmLocker(), le)
		time.Sleep(4 * time.Second)
		broken(b, b.WarmLocker())
		learned := <-ended
		next := <-got
		if d := next.at.Sub(learned); d < 1200*time.Millisecond || d > 1300*time.Millisecond {
			t.Errorf("got it %v after the holder knew, want 1s of grace and 200ms", d)
		}
	})
}

// A lease that was adopted is broken as any other: its holder removes the placeholders when it has wound down.
func TestBreakOfAnAdoptedLease(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		first := locktest.HandOn(b, moved)
		le, err := b.WarmLocker().Adopt(t.Context(), first.Handle())
		if err != nil {
			t.Fatalf("Adopt: got %v, want a lease", err)
		}
		time.Sleep(4 * time.Second)
		l := b.WarmLocker()
		in, err := admin.Break(t.Context(), l, moved)
		if err != nil {
			t.Fatalf("Break: got %v, want no error", err)
		}
		broken := time.Now()
		locktest.WantDone(t, le.Context(), []error{redlock.ErrBroken})
		locktest.WantWithin(t, "the end of the lease", broken, 100*time.Millisecond)
		if _, err := l.Lock(t.Context(), moved); err != nil || time.Since(broken) > in.FreeIn()/2 {
			t.Errorf("got %v after %v, want a lease before %v", err, time.Since(broken), in.FreeIn())
		}
	})
}

// A forged message only makes the holder ask the nodes.
func TestBreakIsNotBelieved(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(), stuck)
		manual := b.Lock(b.WarmLocker(), "manual", redlock.WithoutRenewal())
		time.Sleep(4 * time.Second)
		b.All(func(n *virtual.Node) { n.ForgetCalls() })
		for _, key := range []string{stuck, "manual", "nobody"} {
			b.All(func(n *virtual.Node) {
				n.Inside(func(r *miniredis.Miniredis, _ time.Time) { r.Publish("redlock:~broken", "redlock:"+key) })
			})
		}
		synctest.Wait()
		if n := b.Nodes[0].Seen("extend", stuck); n == 0 {
			t.Error("got no extend, want the holder to ask")
		}
		if n := b.Nodes[0].Seen("extend", "manual"); n != 0 {
			t.Errorf("got %d extends of a lease without renewal, want none", n)
		}
		time.Sleep(time.Minute)
		if le.Validity() <= 0 || le.Context().Err() != nil {
			t.Error("got a lease that is over, want it to go on")
		}
		locktest.WantDone(t, manual.Context(), []error{reason.Expired})
	})
}

// A placeholder is no lease: it cannot be adopted or extended, and Inspect shows it as broken, with
// the time at which the resource is free.
func TestBreakLeavesNoLease(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(), stuck, redlock.WithoutRenewal())
		time.Sleep(4 * time.Second)
		l := b.WarmLocker()
		broken(b, l)
		if le.Validity() <= 0 {
			t.Fatal("got a holder that knows, want a holder that has not looked")
		}
		in, err := admin.Inspect(t.Context(), l, stuck)
		wantVerdict(t, in, err, admin.VerdictBroken)
		if in.Token != le.Token() || in.Fence != 0 || in.FreeIn() != 6*time.Second {
			t.Errorf("got %+v, free in %v; want the token of the holder, and 6s", in, in.FreeIn())
		}
		var shown string
		for i, n := range in.Masters {
			if !n.Broken || n.Token != le.Token() || n.TTL != 6*time.Second {
				t.Errorf("got %+v, want a placeholder", n)
			}
			shown, _, _ = strings.Cut(b.Nodes[i].Value(stuck), "|")
		}
		_, err = l.Adopt(t.Context(), le.Handle())
		locktest.WantMatch(t, "Adopt of the holder's lease", err, []error{redlock.ErrNotHeld, redlock.ErrBroken}, redlock.ErrNoQuorum)
		for i, n := range b.Nodes {
			if got := n.Value(stuck); got != shown+"|0" {
				t.Errorf("node %d: got %q, want the placeholder as it was", i, got)
			}
		}

		broken(b, l) // a second time: that changes nothing
		if again, err := admin.Inspect(t.Context(), l, stuck); err != nil || again.FreeIn() != 6*time.Second || again.Token != le.Token() {
			t.Errorf("got %+v, %v; want it as before", again, err)
		}
		locktest.WantMatch(t, "Extend", le.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrBroken})
		time.Sleep(250 * time.Millisecond)
		b.WantHolding(stuck) // the holder knows now
		in, err = admin.Inspect(t.Context(), l, stuck)
		wantVerdict(t, in, err, admin.VerdictFree)
	})
}

// Two Lockers that break a lock at the same time agree, in whatever order they reach the nodes.
func TestBreakTwiceAtOnce(t *testing.T) {
	for shift := range 4 {
		t.Run(fmt.Sprint(shift), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				le := b.Lock(b.WarmLocker(), stuck)
				time.Sleep(4 * time.Second)
				lockers := []*redlock.Locker{b.WarmLocker(), b.WarmLocker()}
				for i, n := range b.Nodes {
					n.Latency(time.Duration(1+i*shift)*10*time.Millisecond, time.Duration(3-i)*10*time.Millisecond)
				}
				ended := doneAt(le.Context())
				got := nextOf(b, b.WarmLocker(), le)
				done := make(chan bool, 2)
				for i, l := range lockers {
					go func() {
						time.Sleep(time.Duration(i*shift) * 15 * time.Millisecond)
						if _, err := admin.Break(t.Context(), l, stuck); err != nil {
							t.Errorf("Break %d: got %v, want no error", i, err)
						}
						done <- true
					}()
				}
				<-done
				<-done
				learned, next := <-ended, <-got
				if d := next.at.Sub(learned); d > 500*time.Millisecond {
					t.Errorf("got it %v after the holder knew, want at most 500ms", d)
				}
				b.Unlock(next.lease)
				time.Sleep(500 * time.Millisecond)
				b.WantHolding(stuck)
			})
		})
	}
}

// Callers that wait in the holder's process keep the place in the queue that they took when the
// lease was lost, no matter when its keys are released.
func TestBreakLeavesTheQueueAsItIs(t *testing.T) {
	for _, unlocks := range []time.Duration{0, 100 * time.Millisecond, time.Second} { // 0: the holder does not unlock
		t.Run(fmt.Sprint(unlocks), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				holder, other, breaker := b.WarmLocker(), b.WarmLocker(), b.WarmLocker()
				le, err := holder.Lock(t.Context(), stuck)
				if err != nil {
					t.Fatalf("Lock: got %v, want a lease", err)
				}
				ended := doneAt(le.Context())
				first := nextOf(b, holder, le)
				time.Sleep(4 * time.Second)
				broken(b, breaker)
				<-ended
				time.Sleep(20 * time.Millisecond) // the first has asked
				second := nextOf(b, other, le)
				if unlocks > 0 {
					time.AfterFunc(unlocks, func() { _ = le.Unlock(t.Context()) })
				}
				select {
				case got := <-first:
					b.Unlock(got.lease)
				case <-second:
					t.Fatal("got the resource for a later caller")
				}
				b.Unlock((<-second).lease)
			})
		})
	}
}
