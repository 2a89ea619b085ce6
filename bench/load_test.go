package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkLoad measures, for several round-trip times to the masters: how many sections a
// second callers get through, each on resources of its own; how many calls fail; and how many
// of twenty leases that the same Locker holds meanwhile are lost. The masters are real, and a
// proxy in front of each delays the traffic by half of the round trip each way. One operation
// takes two seconds:
//
//	go test -run '^$' -bench Load -benchtime 1x .
func BenchmarkLoad(b *testing.B) {
	procs := votingMasters(b)
	for _, roundTrip := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		for _, callers := range []int{250, 1000, 4000} {
			b.Run(fmt.Sprintf("rtt=%v/callers=%d", roundTrip, callers), func(b *testing.B) {
				l := over(b, procs, roundTrip)
				held := make([]*redlock.Lease, 20)
				var err error
				for i := range held {
					if held[i], err = l.Lock(b.Context(), fmt.Sprintf("held:%d:%v:%d", i, roundTrip, callers), redlock.WithTTL(3*time.Second)); err != nil {
						b.Fatal(err)
					}
				}
				b.ResetTimer()
				var sections, failed int64
				for range b.N {
					s, f := load(b.Context(), l, callers, 2*time.Second)
					sections, failed = sections+s, failed+f
				}
				b.StopTimer()
				lost := 0
				for _, lease := range held {
					if lease.Context().Err() != nil {
						lost++
					}
					_ = lease.Unlock(context.Background()) // fails if the lease is lost
				}
				b.ReportMetric(float64(sections)/b.Elapsed().Seconds(), "sections/s")
				b.ReportMetric(float64(failed), "failed")
				b.ReportMetric(float64(lost), "lost")
			})
		}
	}
}

// votingMasters starts three masters that have their votes.
func votingMasters(b *testing.B) []*masters.Process {
	b.Helper()
	procs := redistest.Masters(b, 3)
	l, err := redlock.New(redistest.Addrs(procs))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if err := admin.Bootstrap(b.Context(), l); err != nil {
		b.Fatal(err)
	}
	return procs
}

// over returns a Locker with a round-trip time to masters, which proxies add.
func over(b *testing.B, procs []*masters.Process, roundTrip time.Duration) *redlock.Locker {
	b.Helper()
	addrs := redistest.Addrs(procs)
	if roundTrip > 0 {
		proxies := redistest.Proxied(b, procs)
		for _, p := range proxies {
			p.Latency(roundTrip/2, roundTrip/2)
		}
		addrs = redistest.Addrs(proxies)
	}
	return newLocker(b, addrs) // it ends before the proxies
}

// load lets callers lock and unlock for some time.
func load(ctx context.Context, l *redlock.Locker, callers int, during time.Duration) (sections, failed int64) {
	var done, refused atomic.Int64
	var working sync.WaitGroup
	end := time.Now().Add(during)
	for i := range callers {
		working.Go(func() {
			for time.Now().Before(end) {
				lease, err := l.TryLock(ctx, fmt.Sprint("own:", i))
				if err == nil {
					err = lease.Unlock(ctx)
				}
				if err != nil {
					refused.Add(1)
					time.Sleep(10 * time.Millisecond) // a failing caller must not spin
					continue
				}
				done.Add(1)
			}
		})
	}
	working.Wait()
	return done.Load(), refused.Load()
}
