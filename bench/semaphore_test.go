package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
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
				slices.Sort(waits)
				b.ReportMetric(float64(b.N)*float64(hold)/float64(permits)/float64(time.Since(start)), "used")
				b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
			})
		}
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
