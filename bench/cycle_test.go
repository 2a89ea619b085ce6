package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkCycle measures locking and unlocking free keys, each caller on a key of its own. The contenders
// use the same masters. With a trip, a proxy in front of each master makes a round trip longer.
// One operation is a slice of that time.
func BenchmarkCycle(b *testing.B) {
	const slice = 150 * time.Millisecond
	for _, test := range []struct {
		masters int
		trip    time.Duration
		who     []string
	}{
		{1, 0, []string{"ours", "redsync", "redsync-failfast", "redislock", "rueidislock", "floor"}},
		{3, 0, []string{"ours", "redsync", "redsync-failfast", "floor"}},
		{5, 0, []string{"ours", "redsync", "redsync-failfast", "floor"}},
		{3, 2 * time.Millisecond, []string{"ours", "redsync", "redsync-failfast"}},
	} {
		b.Run(fmt.Sprintf("N=%d/trip=%v", test.masters, test.trip), func(b *testing.B) {
			list := redistest.Masters(b, test.masters)
			direct := redistest.Addrs(list)
			addrs := direct
			if test.trip > 0 {
				proxies := redistest.Proxied(b, list)
				for _, p := range proxies {
					p.Latency(test.trip/2, test.trip/2)
				}
				addrs = redistest.Addrs(proxies)
			}
			lockers := map[string]contender.Locker{}
			for _, c := range contender.Named(test.who...) {
				lockers[c.Name] = dial(b, c, addrs)
			}
			for _, callers := range []int{1, 256} {
				b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
					for _, l := range lockers {
						warm(b, max(50, callers), callers, l)
					}
					rounds(b, 10, contender.Named(test.who...), func(b *testing.B, c contender.Contender) {
						load := measure.Load{
							Lockers: []contender.Locker{lockers[c.Name]}, Callers: callers, Key: measure.Own(c.Name), For: slice, Grace: grace,
						}
						r, used := under(b, load, c.On(direct), c.Sends)
						report(b, costs(r, used))
						report(b, map[string]float64{"p50-us": measure.Micros(r.Cycle.At(50)), "p99-us": measure.Micros(r.Cycle.At(99))})
					})
				})
			}
		})
	}
}
