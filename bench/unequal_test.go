package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkUnequal has processes with two callers each lock one key, and hold it for 2 to 4 ms, while one of three
// masters is farther away than the others, or while no master can call the first process: its user has no
// right to subscribe. One operation is one lock. What counts is the longest wait, and the shares.
func BenchmarkUnequal(b *testing.B) {
	const key = "unequal"
	for _, test := range []struct {
		lockers, callers int
		trip             time.Duration
		mute             bool
	}{
		{2, 2, 0, false}, {6, 2, 0, false}, {2, 2, 10 * time.Millisecond, false}, {6, 2, 10 * time.Millisecond, false}, {3, 1, 0, true},
	} {
		b.Run(fmt.Sprintf("lockers=%d/callers=%d/trip=%v/mute=%v", test.lockers, test.callers, test.trip, test.mute), func(b *testing.B) {
			procs := redistest.Masters(b, 3)
			proxies := redistest.Proxied(b, procs)
			addrs := redistest.Addrs(proxies)
			ours, _ := contender.ByName("ours")
			if err := ours.Prepare(b.Context(), addrs); err != nil {
				b.Fatal(err)
			}
			for _, addr := range redistest.Addrs(procs) {
				c := redis.NewClient(&redis.Options{Addr: addr})
				if err := c.Do(b.Context(), "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-subscribe").Err(); err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
			lockers := make([]*redlock.Locker, test.lockers)
			for i := range lockers {
				list := make([]string, len(addrs))
				for k, addr := range addrs {
					list[k] = addr
					if test.mute && i == 0 {
						list[k] = "redis://mute:any@" + addr
					}
				}
				var err error
				if lockers[i], err = redlock.New(list, redlock.WithTTL(contender.TTL), redlock.WithLogger(nil)); err != nil {
					b.Fatal(err)
				}
				defer lockers[i].Close()
				if err := lockers[i].Do(b.Context(), "warm", func(context.Context, *redlock.Lease) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			proxies[0].Latency(test.trip/2, test.trip/2)
			name := key // of which the far master keeps the queue
			for door.Look(lockers[0]).QueueNode(name) != 0 {
				name += "+"
			}
			var mu sync.Mutex
			left, longest, above := b.N, time.Duration(0), 0
			turns := make([]int, test.lockers)
			b.ResetTimer()
			var workers sync.WaitGroup
			for i, l := range lockers {
				for range test.callers {
					workers.Go(func() {
						for {
							asked := time.Now()
							lease, err := l.Lock(b.Context(), name)
							if err != nil {
								b.Error(err)
								return
							}
							waited := time.Since(asked)
							mu.Lock()
							left--
							turns[i]++
							longest = max(longest, waited)
							if waited > time.Second {
								above++
							}
							over := left <= 0
							mu.Unlock()
							time.Sleep(2*time.Millisecond + rand.N(2*time.Millisecond))
							_ = lease.Unlock(b.Context())
							if over {
								return
							}
						}
					})
				}
			}
			workers.Wait()
			least, most := turns[0], turns[0]
			for _, n := range turns {
				least, most = min(least, n), max(most, n)
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			b.ReportMetric(float64(above), "above-1s")
			b.ReportMetric(float64(turns[0])/float64(most), "share-of-first")
			b.ReportMetric(float64(least)/float64(most), "least-share")
		})
	}
}
