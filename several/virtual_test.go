package several_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/several"
)

func write(names ...string) several.Names { return several.Names{Write: names} }

// Free resources take one round trip together, or two. Each part is an ordinary lease: it can be inspected, extended, and
// adopted, which ends the whole.
func TestVirtualFree(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.All(func(n *virtual.Node) { n.Latency(10*time.Millisecond, 10*time.Millisecond) })
		start := time.Now()
		lease, err := several.Lock(t.Context(), l, several.Names{Write: []string{"c", "a", "c"}, Read: []string{"b"}})
		locktest.Must(t, err)
		locktest.WantWithin(t, "Lock", start, 40*time.Millisecond) // with the round that raises a token, if counters differ
		var got []string
		for _, part := range lease.Parts() {
			got = append(got, part.Resource()+" "+string(part.Mode()))
		}
		if want := []string{"a exclusive", "b shared", "c exclusive"}; !slices.Equal(got, want) {
			t.Errorf("got the parts %q, want %q", got, want)
		}
		other := b.WarmLocker()
		if _, err := several.TryLock(t.Context(), other, write("d", "c")); !errors.Is(err, redlock.ErrTaken) {
			t.Errorf("TryLock beside it: got %v, want ErrTaken", err)
		}
		time.Sleep(time.Second)
		b.WantHolding("d") // it was given back
		in, err := admin.Inspect(t.Context(), l, "a")
		locktest.Must(t, err)
		if in.Token != lease.Part("a").Token() || lease.Part("x") != nil {
			t.Errorf("got the holder %q of a, want the part", in.Token)
		}
		locktest.Must(t, lease.Part("a").Extend(t.Context()))
		locktest.Must(t, lease.Extend(t.Context()))
		adopted, err := other.Adopt(t.Context(), "c", lease.Part("c").Token(), lease.Part("c").Fence())
		locktest.Must(t, err)
		if _, err := l.Lock(lease.Context(), "a"); !errors.Is(err, redlock.ErrReentry) {
			t.Errorf("Lock of a part inside: got %v, want ErrReentry", err)
		}
		ctx, cancel := lease.Within(t.Context())
		if _, err := several.Lock(ctx, l, write("z", "c")); !errors.Is(err, redlock.ErrReentry) {
			t.Errorf("Lock of a part inside: got %v, want ErrReentry", err)
		}
		cancel()
		<-lease.Context().Done()
		locktest.WantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrLost, redlock.ErrDetached})
		b.Unlock(adopted)
		time.Sleep(time.Minute) // the holder does not unlock; the other parts are given back all the same
		for _, name := range []string{"a", "b", "c"} {
			b.WantHolding(name)
		}
	})
}

// Parts that are given back one by one do not end the others.
func TestVirtualPartsOneByOne(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease, err := several.Lock(t.Context(), l, write("a", "b", "c"))
		locktest.Must(t, err)
		locktest.Must(t, lease.Part("b").Unlock(t.Context()))
		time.Sleep(time.Minute)
		b.WantHolding("b")
		b.WantHolding("a", 0, 1, 2)
		if err := lease.Err(); err != nil || lease.Context().Err() != nil || lease.Validity() <= 0 {
			t.Errorf("got %v, validity %v, want the others to go on", err, lease.Validity())
		}
		locktest.Must(t, lease.Extend(t.Context()))
		locktest.Must(t, lease.Part("c").Detach())
		locktest.Must(t, lease.Unlock(t.Context()))
		b.WantHolding("a")
		b.WantHolding("c", 0, 1, 2) // it belongs to its token now
		if err := lease.Err(); !errors.Is(err, redlock.ErrReleased) || lease.Validity() != 0 {
			t.Errorf("after Unlock: got %v, validity %v", err, lease.Validity())
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, redlock.ErrReleased) {
			t.Errorf("second Unlock: got %v, want ErrReleased", err)
		}
		both, err := several.Lock(t.Context(), l, write("x", "y"))
		locktest.Must(t, err)
		locktest.Must(t, errors.Join(both.Part("x").Unlock(t.Context()), both.Part("y").Unlock(t.Context())))
		locktest.WantDone(t, both.Context(), []error{redlock.ErrReleased})
		for name, last := range map[string]func(part *redlock.Lease) error{
			"unlocked": func(part *redlock.Lease) error { return part.Unlock(t.Context()) },
			"detached": (*redlock.Lease).Detach,
		} {
			both, err := several.Lock(t.Context(), l, write(name+"/1", name+"/2"))
			locktest.Must(t, err)
			locktest.Must(t, both.Part(name+"/2").Detach())
			locktest.Must(t, last(both.Part(name+"/1")))
			if v, err := both.Validity(), both.Err(); v != 0 || !errors.Is(err, redlock.ErrDetached) || !errors.Is(context.Cause(both.Context()), redlock.ErrDetached) {
				t.Errorf("the last part was %s: got validity %v, %v, cause %v; want ErrDetached", name, v, err, context.Cause(both.Context()))
			}
		}
	})
}

// A part that is lost while the call waits begins the call again, and a lease ends when a part is lost.
func TestVirtualLoss(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		holder, l := b.WarmLocker(), b.WarmLocker()
		z := b.Lock(holder, "z")
		done := make(chan *several.Lease)
		go func() {
			lease, err := several.Lock(t.Context(), l, write("z", "a"))
			if err != nil {
				t.Error(err)
			}
			done <- lease
		}()
		time.Sleep(time.Second)
		b.WantHolding("a", 0, 1, 2)
		_, err := admin.Break(t.Context(), holder, "a")
		locktest.Must(t, err)
		time.Sleep(30 * time.Second)
		b.WantHolding("a", 0, 1, 2) // again
		b.Unlock(z)
		lease := <-done
		b.All((*virtual.Node).Hang)
		start := time.Now()
		<-lease.Context().Done()
		locktest.WantWithin(t, "the end", start, redlock.DefaultTTL)
		locktest.WantMatch(t, "Err", lease.Err(), []error{redlock.ErrLost})
		b.All((*virtual.Node).Resume)
		time.Sleep(time.Minute)
	})
}

// Without renewal a part that was kept while the call waited is extended, so that at least half of its TTL is left.
func TestVirtualRefresh(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		holder, l := b.WarmLocker(), b.WarmLocker()
		z := b.Lock(holder, "z")
		time.AfterFunc(6*time.Second, func() { b.Unlock(z) })
		lease, err := several.Lock(t.Context(), l, write("a", "z"), redlock.WithoutRenewal())
		locktest.Must(t, err)
		if got := lease.Part("a").Validity(); got < redlock.DefaultTTL/2 {
			t.Errorf("got validity %v of the part that was kept, want half of the TTL at least", got)
		}
		locktest.Must(t, lease.Unlock(t.Context()))
	})
}

// Err looks at the clock: after a suspend it reports the end before the context has ended.
func TestVirtualSuspend(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		clock := locktest.NewJumpClock()
		lease, err := several.Lock(t.Context(), b.WarmLocker(redlock.WithClock(clock)), write("a", "b"))
		locktest.Must(t, err)
		locktest.Must(t, lease.Err())
		synctest.Wait() // only this goroutine sees the clock jump
		clock.Jump(redlock.DefaultTTL)
		if err := lease.Err(); lease.Context().Err() != nil || !errors.Is(err, redlock.ErrLost) {
			t.Errorf("got %v, context %v; want ErrLost, and a context that has not ended yet", err, lease.Context().Err())
		}
		lease, err = several.Lock(t.Context(), b.WarmLocker(redlock.WithClock(clock)), write("c", "d"), redlock.WithMaxHold(redlock.DefaultTTL))
		locktest.Must(t, err)
		time.Sleep(redlock.DefaultTTL / 2)
		synctest.Wait()
		clock.Jump(redlock.DefaultTTL / 2)
		if err := lease.Err(); lease.Context().Err() != nil || !errors.Is(err, redlock.ErrMaxHold) || lease.Validity() > 0 {
			t.Errorf("got %v, validity %v, context %v; want ErrMaxHold, and a context that has not ended yet", err, lease.Validity(), lease.Context().Err())
		}
		start := time.Now()
		<-lease.Context().Done()
		locktest.WantWithin(t, "the end of the context", start, time.Second)
	})
}

// MaxHold counts from when the lease has all parts.
func TestVirtualMaxHold(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		holder, l := b.WarmLocker(), b.WarmLocker()
		z := b.Lock(holder, "z")
		done := make(chan *several.Lease)
		go func() {
			lease, err := several.Lock(t.Context(), l, write("z", "a"), redlock.WithMaxHold(20*time.Second))
			if err != nil {
				t.Error(err)
			}
			done <- lease
		}()
		time.Sleep(time.Minute)
		b.Unlock(z)
		lease := <-done
		start := time.Now()
		time.Sleep(19 * time.Second)
		if got := lease.Validity(); got != time.Second {
			t.Errorf("got validity %v a second before the bound, want 1s", got)
		}
		<-lease.Context().Done()
		locktest.WantSince(t, "the end", start, 20*time.Second)
		locktest.WantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrLost, redlock.ErrMaxHold})
		time.Sleep(lease.Part("a").Validity() / 2)
		b.WantHolding("a", 0, 1, 2) // so that work which has not noticed yet is alone
		time.Sleep(redlock.DefaultTTL + time.Second)
		b.WantHolding("a")
		overdue := []error{redlock.ErrNotHeld, redlock.ErrLost, redlock.ErrMaxHold}
		locktest.WantMatch(t, "Unlock after the parts were given back", lease.Unlock(t.Context()), overdue, redlock.ErrReleased)
		err := several.Do(t.Context(), l, write("z", "a"), func(ctx context.Context, _ *several.Lease) error {
			<-ctx.Done()
			return nil
		}, redlock.WithMaxHold(10*time.Second))
		locktest.WantMatch(t, "Do whose function ends after the bound", err, overdue, redlock.ErrReleased)
	})
}

// table has callers take two neighbouring forks of a round table each, by a way of locking, and returns
// how many meals there were within a few seconds.
func table(t *testing.T, lock func(ctx context.Context, l *redlock.Locker, left, right string) (unlock func(), err error)) (meals int) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(redistest.Rounds(5, 20))*time.Second)
		defer cancel()
		var mu sync.Mutex
		var g sync.WaitGroup
		forks := []string{"a", "b", "c"}
		for i := range forks {
			l := b.WarmLocker()
			g.Go(func() {
				for ctx.Err() == nil {
					unlock, err := lock(ctx, l, forks[i], forks[(i+1)%len(forks)])
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					time.Sleep(time.Duration(1+rand.IntN(5)) * time.Millisecond)
					mu.Lock()
					meals++
					mu.Unlock()
					unlock()
				}
			})
		}
		g.Wait()
		synctest.Wait()
	})
	return meals
}

// Callers at a round table do not wait for each other for ever. The control locks one fork after the other,
// in the order in which the caller names them.
func TestVirtualRoundTable(t *testing.T) {
	redistest.TakesSeconds(t)
	meals := table(t, func(ctx context.Context, l *redlock.Locker, left, right string) (func(), error) {
		lease, err := several.Lock(ctx, l, write(left, right))
		if err != nil {
			return nil, err
		}
		return func() { _ = lease.Unlock(context.Background()) }, nil
	})
	if meals < redistest.Rounds(120, 500) {
		t.Errorf("got %d meals, want more", meals)
	}
	meals = table(t, func(ctx context.Context, l *redlock.Locker, left, right string) (func(), error) {
		first, err := l.Lock(ctx, left)
		if err != nil {
			return nil, err
		}
		time.Sleep(time.Millisecond)
		second, err := l.Lock(ctx, right)
		if err != nil {
			_ = first.Unlock(context.Background())
			return nil, err
		}
		return func() { _, _ = second.Unlock(context.Background()), first.Unlock(context.Background()) }, nil
	})
	if meals > 10 {
		t.Errorf("control: got %d meals one fork after the other, want a circle", meals)
	}
}

// A call whose context ends returns the error of the resource that it waited for, and leaves nothing.
func TestVirtualGivesUp(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		holder, l := b.WarmLocker(), b.WarmLocker()
		b.Lock(holder, "m")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := several.Lock(ctx, l, write("z", "m", "a"), redlock.WithMinHold(time.Minute))
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.DeadlineExceeded})
		var refused *redlock.QuorumError
		if !errors.As(err, &refused) || refused.Resource != "m" {
			t.Errorf("got %v, want the error of m", err)
		}
		time.Sleep(time.Second)
		b.WantHolding("a")
		b.WantHolding("z")
	})
}

// Close keeps the parts while work is done under the lease, as it does for a single lease.
func TestVirtualCloseKeepsParts(t *testing.T) {
	const bound, soon = 10 * time.Second, 3 * time.Second
	short := redlock.WithTTL(time.Second)
	over := []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed}
	for _, test := range []struct {
		name         string
		winds, keeps time.Duration // from the end of its context to the end of the work; the parts, from Close
		opts         []redlock.LockOption
		want         []error // of Do
	}{
		{"work that takes many TTLs to end", soon, soon, []redlock.LockOption{short}, nil},
		{"with a minimum hold", soon, soon, []redlock.LockOption{short, redlock.WithMinHold(time.Minute)}, nil},
		{"work that goes on", time.Minute, bound, nil, over},
		{
			"without renewal", time.Minute, time.Second - 32*time.Millisecond,
			[]redlock.LockOption{short, redlock.WithoutRenewal()}, []error{redlock.ErrLost},
		},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			l, other := b.WarmLocker(), b.WarmLocker()
			done := make(chan error, 1)
			go func() {
				done <- several.Do(context.Background(), l, write("a", "b"), func(ctx context.Context, _ *several.Lease) error {
					<-ctx.Done()
					locktest.WantMatch(t, "cause of the work's end", context.Cause(ctx), []error{redlock.ErrReleased, redlock.ErrClosed})
					time.Sleep(test.winds)
					return nil
				}, test.opts...)
			}()
			synctest.Wait()
			closed := time.Now()
			go func() { locktest.Must(t, l.Close()) }()
			_, err := other.Lock(t.Context(), "b")
			locktest.Must(t, err)
			if got := time.Since(closed); got < test.keeps || got > test.keeps+100*time.Millisecond {
				t.Errorf("the next holder: got a part %v after Close, want %v", got, test.keeps)
			}
			err = <-done
			if len(test.want) == 0 && err != nil {
				t.Errorf("Do: got %v, want no error", err)
			}
			locktest.WantMatch(t, "Do", err, test.want)
		})
	}
}

// The error of Unlock of a lost lease tells of the loss, and not of another part's release that no quorum confirmed.
func TestVirtualReasonOfALoss(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		a := b.Lock(l, "a")
		time.Sleep(time.Second)
		lease := several.Join(t.Context(), a, b.Lock(l, "b"))
		b.All((*virtual.Node).Hang)
		<-lease.Context().Done()
		err := lease.Unlock(t.Context())
		locktest.WantMatch(t, "Unlock", err, []error{redlock.ErrNotHeld, redlock.ErrLost}, redlock.ErrNoQuorum)
		if got := redlock.Reason(err); got != "expired" {
			t.Errorf("Reason: got %q, want %q", got, "expired")
		}
		b.All((*virtual.Node).Resume)
	})
}
