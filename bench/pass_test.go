package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkPass has a worker in each of some Lockers lock and unlock one key without a pause. What counts is
// how often the key changes its owner. rueidislock has three keys on one server, as many as this library
// has masters. One operation is one lock.
func BenchmarkPass(b *testing.B) {
	addrs := redistest.Addrs(redistest.Masters(b, 3))
	ours, _ := contender.ByName("ours")
	if err := ours.Prepare(b.Context(), addrs); err != nil {
		b.Fatal(err)
	}
	for _, lockers := range []int{2, 8} {
		for _, who := range []struct {
			name string
			on   []string
			dial func(masters []string) (contender.Locker, error)
		}{
			{"ours", addrs, ours.Dial},
			{"rueidislock-3", addrs[:1], func(masters []string) (contender.Locker, error) { return contender.DialRueidislock(masters, 2) }},
		} {
			b.Run(fmt.Sprintf("lockers=%d/who=%s", lockers, who.name), func(b *testing.B) {
				servers, err := measure.NewServers(b.Context(), who.on)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(servers.Close)
				all := make([]contender.Locker, lockers)
				for i := range all {
					if all[i], err = who.dial(who.on); err != nil {
						b.Fatal(err)
					}
					defer all[i].Close()
				}
				pass(b, all, lockers*20, "warm") // connects, and subscribes
				var changes int
				var took, cpu time.Duration
				used, err := servers.During(b.Context(), nil, func() error {
					began, before := time.Now(), measure.CPUTime()
					changes = pass(b, all, b.N, "pass")
					took, cpu = time.Since(began), measure.CPUTime()-before
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(changes)/took.Seconds(), "changes/s")
				b.ReportMetric(float64(used.Commands)/float64(b.N), "commands/op")
				b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "client-cpu-us/op")
			})
		}
	}
}

// pass makes so many locks, and returns how often the key changed its owner.
func pass(b *testing.B, lockers []contender.Locker, locks int, key string) (changes int) {
	var mu sync.Mutex
	owner, left := -1, locks
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var workers sync.WaitGroup
	for i, l := range lockers {
		workers.Go(func() {
			for {
				lease, err := l.Lock(ctx, key)
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				mu.Lock()
				left--
				over := left <= 0
				if owner != i {
					owner, changes = i, changes+1
				}
				mu.Unlock()
				if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
					b.Error(err)
				}
				if over {
					cancel()
					return
				}
			}
		})
	}
	workers.Wait()
	return changes
}
