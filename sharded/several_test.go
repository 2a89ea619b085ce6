package sharded_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
	"github.com/d0720281/redlock/sharded"
)

// onePerGroup returns a resource of the first group and one of the second, in the order of their names.
func onePerGroup(l *sharded.Locker) (first, second string) {
	for i := 0; first == "" || l.GroupOf(first) != l.Groups()[0]; i++ {
		first = fmt.Sprint("a", i)
	}
	for i := 0; second == "" || l.GroupOf(second) != l.Groups()[1]; i++ {
		second = fmt.Sprint("b", i)
	}
	return first, second
}

// waitForBoth has calls of two Lockers wait for a lease on several resources. The result waits until each has
// had it, or the context has ended.
func waitForBoth(t *testing.T, ctx context.Context, lockers []*sharded.Locker, names ...string) (served func() int) {
	var waits sync.WaitGroup
	var mu sync.Mutex
	got := 0
	for _, l := range lockers {
		for range 5 {
			waits.Go(func() {
				lease, err := several.Lock(ctx, l, several.Names{Write: names})
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("several.Lock: got %v, want a lease", err)
					}
					return
				}
				mu.Lock()
				got++
				mu.Unlock()
				locktest.Must(t, lease.Unlock(context.Background()))
			})
		}
	}
	return func() int { waits.Wait(); return got }
}

// While a group has no quorum, calls that wait for a resource of it keep nothing that belongs to another
// group: its resources can be locked. When the group is back, the calls are served.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupOfAPart(t *testing.T) {
	for name, fail := range map[string]func(n *virtual.Node){
		"no answer":     (*virtual.Node).Blackhole,
		"no connection": (*virtual.Node).Kill,
		"quarantine":    (*virtual.Node).RestartEmpty,
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 6, func(t *testing.T, b *locktest.Bubble) {
				lockers := []*sharded.Locker{open(b, groupsAB), open(b, groupsAB)}
				plain := open(b, groupsAB)
				well, cut := onePerGroup(plain)
				for _, l := range append(lockers, plain) {
					for _, r := range []string{well, cut} {
						b.Unlock(lock(b, l, r))
					}
				}
				b.Each(fail, 4, 5)
				served := waitForBoth(t, t.Context(), lockers, well, cut)
				time.Sleep(5 * time.Second)
				free, looks := 0, 8
				for range looks { // in a quarantine, which is 10.3 s
					if lease, err := plain.TryLock(t.Context(), well); err == nil {
						free++
						b.Unlock(lease)
					}
					time.Sleep(500 * time.Millisecond)
				}
				if free != looks {
					t.Errorf("the resource of the group that is well was free at %d of %d looks, want all", free, looks)
				}
				b.Each((*virtual.Node).Heal, 4, 5)
				back := time.Now()
				if got := served(); got != 10 {
					t.Errorf("got %d calls served, want 10", got)
				}
				locktest.WantWithin(t, "the calls, when the group is back", back, 20*time.Second)
				synctest.Wait()
				b.WantHolding(well)
				b.WantHolding(cut)
			})
		})
	}
}

// A semaphore has all permits in one group, and the turn of the callers that want several of them perhaps in
// another one. While that has no quorum, such callers hold no permit, and the others go on.
func TestVirtualGroupOfATurn(t *testing.T) {
	locktest.InBubble(t, 6, func(t *testing.T, b *locktest.Bubble) {
		l, other := open(b, groupsAB), open(b, groupsAB)
		name := "s"
		for i := 0; l.GroupOf(name+"~1") != l.Groups()[0] || l.GroupOf(name+"/turn") != l.Groups()[1]; i++ {
			name = fmt.Sprint("s", i)
		}
		one, err := semaphore.New(other, name, 2)
		locktest.Must(t, err)
		two, err := semaphore.New(l, name, 2)
		locktest.Must(t, err)
		held, err := one.Acquire(t.Context(), 1)
		locktest.Must(t, err)
		b.Unlock(lock(b, l, name+"/turn"))
		b.Each((*virtual.Node).Blackhole, 4, 5)
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			lease, err := two.Acquire(ctx, 2)
			if err == nil {
				err = lease.Unlock(ctx)
			}
			done <- err
		}()
		synctest.Wait()
		for range 20 {
			time.Sleep(time.Second)
			lease, err := one.TryAcquire(t.Context(), 1)
			if err != nil {
				t.Fatalf("TryAcquire beside a caller that waits for its turn: got %v, want a permit", err)
			}
			locktest.Must(t, lease.Unlock(t.Context()))
		}
		cancel()
		locktest.WantMatch(t, "Acquire of two", <-done, []error{context.Canceled, redlock.ErrNoQuorum})
		locktest.Must(t, held.Unlock(t.Context()))
	})
}

// On real masters, of which a group is stopped (SIGSTOP) while callers wait for a resource of each group, the
// resource of the other group is free again.
func TestGroupOfAPartStopped(t *testing.T) {
	redistest.TakesSeconds(t)
	procs := locktest.Masters(t, 6)
	addrs := redistest.Addrs(procs)
	groups := [][]string{addrs[:3], addrs[3:]}
	openReal := func() *sharded.Locker {
		l, err := sharded.New(groups, redlock.WithLogger(nil))
		locktest.Must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	l, plain := openReal(), openReal()
	well, cut := onePerGroup(plain)
	for _, l := range []*sharded.Locker{l, plain} {
		for _, r := range []string{well, cut} {
			lease, err := l.Lock(t.Context(), r)
			locktest.Must(t, err)
			locktest.Must(t, lease.Unlock(t.Context()))
		}
	}
	each := func(do func(*masters.Process) error) {
		for _, p := range procs[3:] {
			locktest.Must(t, do(p))
		}
	}
	each((*masters.Process).Pause)
	served := waitForBoth(t, t.Context(), []*sharded.Locker{l}, well, cut)
	time.Sleep(3 * time.Second) // the first call keeps the part for a second
	free := 0
	redistest.Eventually(t, 30*time.Second, func() bool {
		lease, err := plain.TryLock(t.Context(), well)
		if err != nil {
			free = 0
			return false
		}
		locktest.Must(t, lease.Unlock(t.Context()))
		free++
		return free == 10
	}, "the resource of the group that is well is free at ten looks, one after the other")
	each((*masters.Process).Resume)
	if got := served(); got != 5 {
		t.Errorf("got %d calls served, want 5", got)
	}
}
