package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/semaphore"
)

// BenchmarkSemaphore measures one caller of a semaphore with 10 permits, beside one caller of Lock, and
// 100 workers of 1 and of 4 Lockers that hold a permit for a while. used is the part of the permits' time
// in which they were held.
func BenchmarkSemaphore(b *testing.B) {
	const permits, workers = 10, 100
	lockers := newLockers(b, 4)
	b.Run("alone/how=Lock", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			visit(b, lockers[0], 0)
		}
	})
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("alone/how=Acquire/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			s := newSemaphore(b, lockers[0], permits)
			for range b.N {
				use(b, s, n, 0)
			}
		})
	}
	for _, of := range []int{1, 4} {
		for _, hold := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
			b.Run(fmt.Sprintf("workers=%d/lockers=%d/hold=%v", workers, of, hold), func(b *testing.B) {
				left := make(chan int, b.N)
				for i := range b.N {
					left <- i
				}
				close(left)
				var working sync.WaitGroup
				var mu sync.Mutex
				var waits []time.Duration
				start := time.Now()
				var semaphores []*semaphore.Semaphore
				for _, l := range lockers[:of] {
					semaphores = append(semaphores, newSemaphore(b, l, permits))
				}
				for i := range workers {
					s := semaphores[i%of]
					working.Go(func() {
						for range left {
							wait := use(b, s, 1, hold)
							mu.Lock()
							waits = append(waits, wait)
							mu.Unlock()
						}
					})
				}
				working.Wait()
				b.ReportMetric(float64(b.N)*float64(hold)/float64(permits)/float64(time.Since(start)), "used")
				reportWaits(b, waits)
			})
		}
	}
}

// BenchmarkPermits measures what a caller waits for one of K permits, all of which another Locker has but for
// those that are said: how=back, until the other one has given one back; how=free, for the only free one. idle
// is the part of a core that the three masters need together while a caller waits and nothing happens.
func BenchmarkPermits(b *testing.B) {
	for _, trip := range []time.Duration{0, 5 * time.Millisecond} {
		for _, permits := range []int{2, 8, 9, 100, 500, 1000} {
			b.Run(fmt.Sprintf("trip=%v/K=%d", trip, permits), func(b *testing.B) {
				procs := votingMasters(b)
				all, s := newSemaphore(b, over(b, procs, 0), permits), newSemaphore(b, over(b, procs, trip), permits)
				held, err := all.Acquire(b.Context(), permits)
				if err != nil {
					b.Fatal(err)
				}
				parts := held.Parts()
				giveBack := func() time.Time {
					if err := parts[0].Unlock(b.Context()); err != nil {
						b.Fatal(err)
					}
					parts = parts[1:]
					return time.Now()
				}
				takeBack := func(lease *semaphore.Lease) {
					if err := lease.Unlock(b.Context()); err != nil {
						b.Fatal(err)
					}
					again, err := all.Acquire(b.Context(), 1)
					if err != nil {
						b.Fatal(err)
					}
					parts = append(parts, again.Parts()...)
				}
				b.Run("how=back", func(b *testing.B) {
					var took []time.Duration
					for range b.N {
						waits := make(chan time.Time)
						var lease *semaphore.Lease
						go func() {
							lease, err = s.Acquire(b.Context(), 1)
							waits <- time.Now()
						}()
						b.StopTimer()
						time.Sleep(150*time.Millisecond + rand.N(100*time.Millisecond))
						b.StartTimer()
						began := giveBack()
						took = append(took, (<-waits).Sub(began))
						if err != nil {
							b.Fatal(err)
						}
						b.StopTimer()
						takeBack(lease)
						b.StartTimer()
					}
					reportWaits(b, took)
				})
				b.Run("how=free", func(b *testing.B) {
					var took []time.Duration
					for range b.N {
						b.StopTimer()
						giveBack()
						b.StartTimer()
						began := time.Now()
						lease, err := s.Acquire(b.Context(), 1)
						took = append(took, time.Since(began))
						b.StopTimer()
						if err != nil {
							b.Fatal(err)
						}
						takeBack(lease)
						b.StartTimer()
					}
					reportWaits(b, took)
				})
				b.Run("how=idle", func(b *testing.B) {
					servers, err := measure.NewServers(b.Context(), redistest.Addrs(procs))
					if err != nil {
						b.Fatal(err)
					}
					defer servers.Close()
					idle := func(waits bool) time.Duration {
						ctx, cancel := context.WithTimeout(b.Context(), 6*time.Second)
						defer cancel()
						if waits {
							go func() { _, _ = s.Acquire(ctx, 1) }()
						}
						time.Sleep(2 * time.Second)
						u, err := servers.During(b.Context(), nil, func() error { <-ctx.Done(); return nil })
						if err != nil {
							b.Fatal(err)
						}
						return u.CPU
					}
					alone := idle(false)
					b.ReportMetric(100*(idle(true)-alone).Seconds()/4, "%core")
					b.ReportMetric(100*alone.Seconds()/4, "%core-held")
				})
			})
		}
	}
	for _, permits := range []int{3, 10} {
		for _, lockers := range []int{1, 5} {
			for _, hold := range []time.Duration{0, time.Millisecond} {
				b.Run(fmt.Sprintf("callers=8/K=%d/lockers=%d/hold=%v", permits, lockers, hold), func(b *testing.B) {
					left := make(chan int, b.N)
					for i := range b.N {
						left <- i
					}
					close(left)
					var working sync.WaitGroup
					var mu sync.Mutex
					var waits []time.Duration
					for _, l := range newLockers(b, lockers) {
						s := newSemaphore(b, l, permits)
						for range 8 {
							working.Go(func() {
								for range left {
									wait := use(b, s, 1, hold)
									mu.Lock()
									waits = append(waits, wait)
									mu.Unlock()
								}
							})
						}
					}
					b.ResetTimer()
					working.Wait()
					reportWaits(b, waits)
				})
			}
		}
	}
}

// reportWaits reports how long calls waited.
func reportWaits(b *testing.B, waits []time.Duration) {
	slices.Sort(waits)
	for name, at := range map[string]int{"p50-ms": len(waits) / 2, "p99-ms": len(waits) * 99 / 100, "max-ms": len(waits) - 1} {
		b.ReportMetric(float64(waits[at].Microseconds())/1000, name)
	}
}

func newSemaphore(b *testing.B, l *redlock.Locker, permits int) *semaphore.Semaphore {
	b.Helper()
	s, err := semaphore.New(l, "s", permits)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// use holds permits for a while, and returns how long it waited for them.
func use(b *testing.B, s *semaphore.Semaphore, n int, hold time.Duration) (wait time.Duration) {
	began := time.Now()
	m, err := s.Acquire(b.Context(), n)
	wait = time.Since(began)
	if err == nil {
		time.Sleep(hold)
		err = m.Unlock(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
	return wait
}
