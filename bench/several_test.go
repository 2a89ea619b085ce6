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
	"github.com/d0720281/redlock/several"
)

// BenchmarkSeveral measures one goroutine that locks and unlocks some free resources, all at once and
// one after the other.
func BenchmarkSeveral(b *testing.B) {
	l := newLockers(b, 1)[0]
	for _, k := range []int{1, 2, 8} {
		var names []string
		for i := range k {
			names = append(names, fmt.Sprint("part:", i))
		}
		b.Run(fmt.Sprintf("resources=%d/how=several", k), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				m, err := several.Lock(b.Context(), l, several.Names{Write: names})
				if err == nil {
					err = m.Unlock(context.Background())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("resources=%d/how=one-by-one", k), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				var leases []*redlock.Lease
				for _, n := range names {
					lease, err := l.Lock(b.Context(), n)
					if err != nil {
						b.Fatal(err)
					}
					leases = append(leases, lease)
				}
				for _, lease := range leases {
					if err := lease.Unlock(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkSeveralContended has three callers in each of three Lockers lock one to three of six resources, and
// hold them for 2 ms. Of the sets of three nearly all are in each other's way, so beside them all callers lock one
// resource. One operation is one lock. What counts is how long a caller waits, and for how long no caller got anything.
func BenchmarkSeveralContended(b *testing.B) {
	const lockers, callers, resources, hold = 3, 3, 6, 2 * time.Millisecond
	all := newLockers(b, lockers)
	lock := func(l *redlock.Locker, names []string) (unlock func(context.Context) error, err error) {
		if len(names) == 1 {
			lease, err := l.Lock(b.Context(), names[0])
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		}
		lease, err := several.Lock(b.Context(), l, several.Names{Write: names})
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
	for _, test := range []struct{ resources, of int }{{1, resources}, {1, 1}, {2, resources}, {3, resources}} {
		b.Run(fmt.Sprintf("resources=%d/of=%d", test.resources, test.of), func(b *testing.B) {
			var mu sync.Mutex
			waits := make([]time.Duration, 0, b.N)
			left, last, pause := b.N, time.Now(), time.Duration(0)
			var working sync.WaitGroup
			for i, l := range all {
				for c := range callers {
					rng := rand.New(rand.NewPCG(uint64(i), uint64(c)))
					working.Go(func() {
						for {
							var names []string
							for _, n := range rng.Perm(test.of)[:test.resources] {
								names = append(names, fmt.Sprint("contended:", n))
							}
							asked := time.Now()
							unlock, err := lock(l, names)
							if err != nil {
								b.Error(err)
								return
							}
							now := time.Now()
							mu.Lock()
							waits = append(waits, now.Sub(asked))
							pause, last = max(pause, now.Sub(last)), now
							left--
							over := left <= 0
							mu.Unlock()
							time.Sleep(hold)
							if err := unlock(b.Context()); err != nil {
								b.Error(err)
							}
							if over {
								return
							}
						}
					})
				}
			}
			working.Wait()
			slices.Sort(waits)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(waits[len(waits)/2]), "p50-ms")
			b.ReportMetric(ms(waits[len(waits)*99/100]), "p99-ms")
			b.ReportMetric(ms(waits[len(waits)-1]), "longest-ms")
			b.ReportMetric(ms(pause), "pause-ms")
		})
	}
}
