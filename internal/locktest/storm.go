package locktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/virtual"
)

// EachSeed runs a test with the seeds from 0 on, in parallel, and expects no problems.
func EachSeed(t *testing.T, seeds int, run func(t *testing.T, seed uint64) (problems []string)) {
	t.Helper()
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if problems := run(t, seed); len(problems) > 0 {
					t.Errorf("seed %d: got %d problems, %q first, want none", seed, len(problems), problems[0])
				}
			})
		}
	})
}

// Storm lets three Lockers contend for one resource during a seeded schedule of faults of the
// nodes, and returns what their clients saw.
func Storm(t *testing.T, seed uint64, during time.Duration, prefix func(i int) string, harm func(*rand.Rand, *virtual.Node), opts ...redlock.Option) *Book {
	c := NewBook()
	InBubble(t, 5, func(t *testing.T, b *Bubble) {
		ctx, stop := context.WithTimeout(t.Context(), during)
		defer stop()
		var ended sync.WaitGroup
		for i := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			l := b.Locker(append(opts, redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithKeyPrefix(prefix(i)))...)
			ended.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
					lease, err := c.Take("r", false, func() (*redlock.Lease, error) { return l.TryLock(ctx, "r") })
					if err != nil {
						continue
					}
					work := time.NewTimer(time.Duration(rng.IntN(1500)) * time.Millisecond)
					if rng.IntN(2) == 0 {
						<-work.C // it works on, even if the lease is lost
					} else {
						select {
						case <-work.C:
						case <-lease.Context().Done():
						}
						work.Stop()
					}
					_ = c.Free(ctx, lease)
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed, 99))
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			harm(rng, b.Nodes[rng.IntN(5)])
			for range 2 {
				n := b.Nodes[rng.IntN(5)]
				n.Heal()
				n.Latency(time.Duration(rng.IntN(5))*time.Millisecond, time.Duration(rng.IntN(5))*time.Millisecond)
			}
			c.Look()
		}
		b.All((*virtual.Node).Heal)
		ended.Wait()
	})
	return c
}
