package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkHandOver measures how long a waiting process still waits when the holder, in
// another process, begins to unlock. The holder has the lock for 20 to 120 ms. Then both
// begin again at once, so that they meet what the round before has left. One operation is
// one hand-over; p99 needs some hundred of them.
func BenchmarkHandOver(b *testing.B) {
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
			addrs := redistest.Addrs(redistest.Masters(b, n))
			for _, name := range []string{"ours", "rueidislock"} {
				c, _ := contender.ByName(name)
				on := addrs
				if c.Needs == contender.Single {
					on = addrs[:1]
				}
				b.Run("who="+name, func(b *testing.B) { benchmarkHandOver(b, c, on) })
			}
		})
	}
}

func benchmarkHandOver(b *testing.B, c contender.Contender, addrs []string) {
	const pairs = 2 // at a time, each with two Lockers and a key of its own
	var mu sync.Mutex
	took, sum, left, failed := measure.NewLatency(), time.Duration(0), b.N, 0
	var running sync.WaitGroup
	for i := range min(pairs, b.N) {
		p := pair{key: fmt.Sprintf("handover:%s:%d", c.Name, i), holder: dial(b, c, addrs), waiter: dial(b, c, addrs)}
		if _, err := p.once(0); err != nil { // this connects
			b.Fatal(err)
		}
		running.Go(func() {
			for {
				mu.Lock()
				left--
				over := left < 0
				mu.Unlock()
				if over {
					return
				}
				d, err := p.once(20*time.Millisecond + rand.N(100*time.Millisecond))
				mu.Lock()
				if err != nil { // the machine was busy for longer than a master timeout
					failed++
					b.Log(err)
				} else {
					took.Record(d)
					sum += d
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	b.ReportMetric(took.Micros(50), "p50-us")
	b.ReportMetric(took.Micros(99), "p99-us")
	b.ReportMetric(took.Micros(100), "max-us")
	b.ReportMetric(float64(sum.Microseconds())/float64(max(took.Count(), 1)), "mean-us")
	b.ReportMetric(float64(failed), "failed")
}

// pair has a process that holds a lock, and a process that waits for it.
type pair struct {
	key            string
	holder, waiter contender.Locker
}

// once makes one hand-over.
func (p pair) once(hold time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	held, err := p.holder.Lock(ctx, p.key)
	if err != nil {
		return 0, fmt.Errorf("lock: %w", err)
	}
	var got time.Time
	next := make(chan error)
	go func() {
		lease, err := p.waiter.Lock(ctx, p.key)
		got = time.Now()
		if err == nil {
			err = lease.Unlock(ctx)
		}
		next <- err
	}()
	time.Sleep(hold) // the waiter waits
	since := time.Now()
	if err = errors.Join(held.Unlock(ctx), <-next); err != nil {
		return 0, fmt.Errorf("hand-over: %w", err)
	}
	return got.Sub(since), nil
}
