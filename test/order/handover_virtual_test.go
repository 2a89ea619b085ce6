package order_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// serve lets callers of one Locker wait in line. Each keeps its lease for a time, and then unlocks
// it.
func serve(b *locktest.Bubble, l *redlock.Locker, callers int, hold time.Duration, opts ...redlock.LockOption) (fences func() []int64) {
	var mu sync.Mutex
	var list []int64
	var ended sync.WaitGroup
	for range callers {
		w := b.Wait(context.Background(), l, opts...)
		ended.Go(func() {
			lease := b.Got(w)
			mu.Lock()
			list = append(list, lease.Fence())
			mu.Unlock()
			time.Sleep(hold)
			if err := lease.Unlock(context.Background()); err != nil {
				b.T.Errorf("Unlock: got %v, want no error", err)
			}
		})
	}
	return func() []int64 {
		ended.Wait()
		synctest.Wait()
		return list
	}
}

// A caller of the same Locker gets the lease at the moment of the Unlock, without a message to any
// node.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".
func TestVirtualHandOver(t *testing.T) {
	locktest.Subtest(t, "takes no time and no message", 3, func(t *testing.T, b *locktest.Bubble) {
		var mu sync.Mutex
		var told []string
		note := func(what string) func(redlock.Event) {
			return func(e redlock.Event) {
				if e.Resource == "r" {
					mu.Lock()
					told = append(told, fmt.Sprint(what, " ", e.Fence, " after ", e.Elapsed))
					mu.Unlock()
				}
			}
		}
		l := b.WarmLocker(locktest.On(note("acquired"), redlock.EventAcquired),
			locktest.On(note("released"), redlock.EventReleased),
			locktest.On(note("lost"), redlock.EventLost))
		b.All(func(n *virtual.Node) { n.Latency(5*time.Millisecond, 5*time.Millisecond) })
		lease := b.Lock(l, "r")
		time.Sleep(time.Second)
		told = nil
		const hold = 20 * time.Millisecond
		var want []string
		came := time.Now()
		callers := make([]*locktest.Waiter, 10)
		type number struct{}
		for i := range callers {
			callers[i] = b.Wait(context.WithValue(t.Context(), number{}, i), l)
		}
		first, ctx := lease.Fence(), lease.Context()
		for i, c := range callers {
			time.Sleep(hold)
			held := hold
			if i == 0 {
				held += time.Second
			}
			want = append(want, fmt.Sprint("released ", first+int64(i), " after ", held),
				fmt.Sprint("acquired ", first+int64(i)+1, " after ", time.Since(came)))
			unlocked := time.Now()
			locktest.Must(t, lease.Unlock(t.Context()))
			locktest.WantSince(t, "Unlock", unlocked, 0)
			if lease.Validity() != 0 {
				t.Errorf("validity after Unlock: got %v, want 0", lease.Validity())
			}
			locktest.WantMatch(t, "cause of its context", context.Cause(ctx), []error{redlock.ErrReleased}, redlock.ErrLost)
			locktest.WantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			next := b.Got(c)
			if !c.At.Equal(unlocked) {
				t.Errorf("the next lease: got it %v after Unlock, want it at once", c.At.Sub(unlocked))
			}
			if next.Fence() != lease.Fence()+1 || next.Validity() < 5*time.Second || next.Context().Err() != nil {
				t.Errorf("the next lease: got fence %d and validity %v, want %d and half a TTL", next.Fence(), next.Validity(), lease.Fence()+1)
			}
			lease, ctx = next, next.Context()
			if got := ctx.Value(number{}); got != i {
				t.Errorf("the context of the next lease: got the value %v, want that of its caller, %d", got, i)
			}
		}
		b.WantCalls("acquire", 1)
		b.WantCalls("release", 0)
		b.WantHolding("r", 0, 1, 2)
		b.Unlock(lease)
		time.Sleep(time.Second)
		b.WantCalls("release", 1)
		b.WantHolding("r")
		want = append(want, fmt.Sprint("released ", lease.Fence(), " after 0s"))
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, want) {
			t.Errorf("events: got %q, want %q", told, want)
		}
	})
	locktest.Subtest(t, "between two Do", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		var fences []int64
		var tokens []string
		var ended sync.WaitGroup
		var last context.Context
		for range 5 {
			ended.Go(func() {
				err := l.Do(t.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error {
					if last != nil && last.Err() == nil {
						t.Error("got the context of the function before still there, want it over")
					}
					last = ctx
					fences, tokens = append(fences, lease.Fence()), append(tokens, lease.Token())
					time.Sleep(time.Second)
					return ctx.Err()
				})
				if err != nil {
					t.Errorf("Do: got %v, want no error", err)
				}
			})
		}
		start := time.Now()
		ended.Wait()
		locktest.WantSince(t, "all of them", start, 5*time.Second)
		if slices.Sort(tokens); len(slices.Compact(tokens)) != 1 || fences[4] != fences[0]+4 {
			t.Errorf("got fences %v by %d grants, want one grant", fences, len(slices.Compact(tokens)))
		}
		b.WantHolding("r")
	})
}

// A grant serves as many callers as it has tokens; fewer if other processes wait; and none long after
// it was made.
//
// Source: ALGORITHM section 10, "At most B-1 in a row".
func TestVirtualHandOverBounds(t *testing.T) {
	const trip = 2 * time.Millisecond // there and back
	slow := func(n *virtual.Node) { n.Latency(trip/2, trip/2) }
	wantRising := func(t *testing.T, fences []int64, want int) {
		t.Helper()
		if len(fences) != want {
			t.Fatalf("leases: got %d, want %d", len(fences), want)
		}
		for i := 1; i < len(fences); i++ {
			if fences[i] <= fences[i-1] {
				t.Fatalf("fence of lease %d: got %d after %d, want a larger token", i, fences[i], fences[i-1])
			}
		}
	}
	for _, test := range []struct {
		callers, grants int
	}{{64, 1}, {65, 2}, {128, 2}, {129, 3}} {
		locktest.Subtest(t, fmt.Sprintf("%d callers", test.callers), 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.All(slow)
			start := time.Now()
			fences := serve(b, l, test.callers, 10*time.Millisecond)()
			wantRising(t, fences, test.callers)
			// Each grant takes one round trip, or two where the process rests first. Each node
			// gets the release before it.
			least := time.Duration(test.callers)*10*time.Millisecond + time.Duration(test.grants)*trip
			if got := time.Since(start); got < least || got > least+time.Duration(2*test.grants)*trip {
				t.Errorf("all of them: got it after %v, want from %v to %v", got, least, least+time.Duration(2*test.grants)*trip)
			}
			time.Sleep(time.Second)
			b.WantCalls("acquire", test.grants)
			b.WantCalls("release", test.grants)
			if test.callers > 64 && fences[63] != fences[0]+63 {
				t.Errorf("fence of lease 64: got %d after %d, want the last of the block", fences[63], fences[0])
			}
		})
	}
	locktest.Subtest(t, "while others wait", 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		b.All(slow)
		held := b.Lock(l, "r")
		theirs := b.Wait(t.Context(), other)
		time.Sleep(time.Second) // it is in the queue, which l does not know
		mine := serve(b, l, 63+40, 10*time.Millisecond)
		b.Unlock(held)
		lease := b.Got(theirs)
		first := lease.Fence()
		w := b.Wait(t.Context(), other)
		b.Unlock(lease) // another caller of its own
		lease = b.Got(w)
		w = b.Wait(t.Context(), other)
		time.Sleep(time.Second) // l has now been told that others wait
		b.Unlock(lease)
		again := b.Got(w)
		b.Unlock(again)
		fences := mine()
		wantRising(t, fences, 63+40)
		before := func(fence int64) int {
			n := 0
			for _, f := range fences {
				if f < fence {
					n++
				}
			}
			return n
		}
		if got := before(first); got != 63 {
			t.Errorf("leases handed over by a process that did not know of others: got %d, want 63", got)
		}
		if got := before(again.Fence()) - before(lease.Fence()); got > 17 {
			t.Errorf("leases of l between two of the other: got %d, want at most 17", got)
		}
	})
	locktest.Subtest(t, "while others wait, all in line once", 3, func(t *testing.T, b *locktest.Bubble) {
		lockers := []*redlock.Locker{b.WarmLocker(), b.WarmLocker()}
		b.All(slow)
		var order []int // of the Lockers, by lease; the lock guards it
		var workers sync.WaitGroup
		end := time.Now().Add(5 * time.Second)
		for _, who := range []int{0, 0, 0, 0, 0, 1, 1} {
			workers.Go(func() {
				for time.Now().Before(end) {
					lease, err := lockers[who].Lock(t.Context(), "r")
					if err != nil {
						t.Errorf("Lock: got %v, want a lease", err)
						return
					}
					order = append(order, who)
					time.Sleep(10 * time.Millisecond)
					if err := lease.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock: got %v, want no error", err)
					}
				}
			})
		}
		workers.Wait()
		served, blocks, odd := map[int]int{}, 0, 0
		for i, n := 0, 0; i < len(order)-20; i++ { // at the end some have stopped
			n++
			if order[i] != order[i+1] {
				if want := []int{5, 2}[order[i]]; blocks > 2 && n != want { // once both know of each other
					odd++
					t.Logf("block %d: got %d leases of %d, want %d", blocks, n, order[i], want)
				}
				blocks++
				n = 0
			}
			served[order[i]]++
		}
		// After an attempt that took long, callers may have the lease twice until its time has paid off.
		if odd > blocks/20 {
			t.Errorf("got %d of %d blocks in which not each caller in line had the lease once", odd, blocks)
		}
		if blocks < 50 {
			t.Errorf("got %d blocks of %v leases, want at least 50", blocks, served)
		}
	})
}
