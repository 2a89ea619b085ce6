package bench

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/internal/redistest"
)

var besideFor = flag.Duration("beside", 2*time.Second, "how long TestBesideRedsync runs each case")

// Callers of this library and of redsync, as it is by default, want one resource. docs/migrating.md has the
// figures.
func TestBesideRedsync(t *testing.T) {
	const callers = 4 // of each library
	for _, test := range []struct {
		name      string
		processes int
		section   time.Duration
	}{
		{"1 process, sections of 1 ms", 1, time.Millisecond},
		{"1 process, sections of 20 ms", 1, 20 * time.Millisecond},
		{"4 processes, sections of 1 ms", 4, time.Millisecond},
		{"4 processes, sections of 20 ms", 4, 20 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, 3))
			theirs := contender.NewRedsync(addrs, redis.Options{})
			defer theirs.Close()
			var ours []*redlock.Locker
			for range test.processes {
				l, err := redlock.New(addrs, redlock.WithKeyPrefix(""), redlock.WithLogger(nil))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters have their votes")
				ours = append(ours, l)
			}
			var turns, failed [2]atomic.Int64 // ours, redsync's
			var running sync.WaitGroup
			ctx, cancel := context.WithTimeout(t.Context(), *besideFor)
			defer cancel()
			work := func(kind int, lock func() (unlock func(), err error)) {
				running.Go(func() {
					for ctx.Err() == nil {
						unlock, err := lock()
						if err != nil {
							if ctx.Err() == nil {
								failed[kind].Add(1)
							}
							continue
						}
						time.Sleep(test.section)
						turns[kind].Add(1)
						unlock()
					}
				})
			}
			for i := range callers {
				l := ours[i%len(ours)]
				work(0, func() (func(), error) {
					lease, err := l.Lock(ctx, "r")
					return func() { _ = lease.Unlock(context.Background()) }, err
				})
				m := theirs.Mutex("r")
				work(1, func() (func(), error) {
					err := m.LockContext(ctx)
					return func() { _, _ = 0, m.Unlock(context.Background()) }, err
				})
			}
			running.Wait()
			t.Logf("turns: ours %d, redsync's %d; errors: ours %d, redsync's %d", turns[0].Load(), turns[1].Load(), failed[0].Load(), failed[1].Load())
			if failed[0].Load() > 0 || turns[0].Load() == 0 {
				t.Errorf("got %d errors and %d turns of ours", failed[0].Load(), turns[0].Load())
			}
		})
	}
}
