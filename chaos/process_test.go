package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// watch sees who holds what, and with which fencing token.
type watch struct {
	mu         sync.Mutex
	inside     map[string]int   // guarded by mu; holders of a resource
	fence      map[string]int64 // guarded by mu; the last token of a resource
	sections   int
	violations []string
}

func (w *watch) enter(resource string, fence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sections++
	w.inside[resource]++
	if n := w.inside[resource]; n > 1 {
		w.violations = append(w.violations, fmt.Sprintf("%s: %d holders", resource, n))
	}
	if last := w.fence[resource]; fence <= last {
		w.violations = append(w.violations, fmt.Sprintf("%s: fence %d after %d", resource, fence, last))
	}
	w.fence[resource] = fence
}

func (w *watch) leave(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside[resource]--
}

// contend has goroutines of each Locker take three resources in turn until ctx ends,
// and returns what was seen.
func contend(t *testing.T, ctx context.Context, lockers []*redlock.Locker) *watch {
	t.Helper()
	w := &watch{inside: make(map[string]int), fence: make(map[string]int64)}
	var workers sync.WaitGroup
	for _, l := range lockers {
		for g := range 6 {
			workers.Go(func() {
				for i := g; ctx.Err() == nil; i++ {
					resource := fmt.Sprint("r", i%3)
					err := l.Do(ctx, resource, func(ctx context.Context, lease *redlock.Lease) error {
						w.enter(resource, lease.Fence())
						defer w.leave(resource)
						select { // the work
						case <-ctx.Done():
						case <-time.After(200 * time.Microsecond):
						}
						return nil
					})
					switch {
					case err == nil, ctx.Err() != nil, errors.Is(err, redlock.ErrLost), errors.Is(err, redlock.ErrNoQuorum):
					default:
						t.Error(err)
					}
				}
			})
		}
	}
	workers.Wait()
	return w
}

// Masters that keep their data are killed, or paused for longer than a TTL, one after
// the other without a break, under three Lockers with six goroutines each.
func TestProcessesUnderFaults(t *testing.T) {
	const ttl = 500 * time.Millisecond
	for _, fault := range []struct {
		name         string
		inject, heal func(*masters.Process) error
	}{
		{"killed", (*masters.Process).Kill, (*masters.Process).Restart},
		{"paused", (*masters.Process).Pause, (*masters.Process).Resume},
	} {
		t.Run(fault.name, func(t *testing.T) {
			nodes := redistest.Masters(t, 5, "--appendonly", "yes")
			bootstrap(t, redistest.Addrs(nodes), redlock.WithMaxTTL(ttl), redlock.WithTTL(ttl))
			var lockers []*redlock.Locker
			for range 3 {
				lockers = append(lockers, open(t, redistest.Addrs(nodes), redlock.WithMaxTTL(ttl), redlock.WithTTL(ttl)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var nemesis sync.WaitGroup
			nemesis.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					node := nodes[i%len(nodes)]
					if err := errors.Join(fault.inject(node), pause(ctx.Done(), ttl*6/5), fault.heal(node)); err != nil {
						t.Error(err)
					}
				}
			})
			w := contend(t, ctx, lockers)
			nemesis.Wait()
			if len(w.violations) > 0 || w.sections < 500 {
				t.Errorf("got violations %q in %d sections, want none in at least 500", w.violations, w.sections)
			}
			for _, n := range nodes {
				client := redistest.Client(t, n.Addr())
				redistest.Eventually(t, 10*time.Second, func() bool {
					return client.Exists(context.Background(), "redlock:r0", "redlock:r1", "redlock:r2").Val() == 0
				}, "no key is left on "+n.Addr())
			}
		})
	}
}

// The watch sees two holders, and tokens that do not rise, where nothing keeps Lockers
// apart.
func TestProcessesControlViolationsAreSeen(t *testing.T) {
	addrs := redistest.Addrs(redistest.Masters(t, 3))
	other := redlock.WithKeyPrefix("other:")
	bootstrap(t, addrs)
	bootstrap(t, addrs, other)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w := contend(t, ctx, []*redlock.Locker{open(t, addrs), open(t, addrs, other)})
	if len(w.violations) == 0 {
		t.Errorf("got no violation in %d sections of Lockers with different keys", w.sections)
	}
}
