package several_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/several"
)

func write(names ...string) several.Names { return several.Names{Write: names} }

// table has callers take two neighbouring forks of a round table each, by a way of locking, and returns
// how many meals there were within a few seconds.
func table(t *testing.T, lock func(ctx context.Context, l *redlock.Locker, left, right string) (unlock func(), err error)) (meals int) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(redistest.Rounds(2, 20))*time.Second)
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
	if meals < redistest.Rounds(40, 500) {
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
