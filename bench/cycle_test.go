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
		names   int64 // each turn has another of so many; 0: each caller has one
		who     []string
	}{
		{1, 0, 0, []string{"ours", "redsync", "redsync-failfast", "redislock", "rueidislock", "floor"}},
		{3, 0, 0, []string{"ours", "redsync", "redsync-failfast", "floor"}},
		{5, 0, 0, []string{"ours", "redsync", "redsync-failfast", "floor"}},
		{7, 0, 0, []string{"ours", "redsync"}},
		{9, 0, 0, []string{"ours", "redsync"}},
		{3, 0, 1e6, []string{"ours", "redsync"}},
		{3, 2 * time.Millisecond, 0, []string{"ours", "redsync", "redsync-failfast"}},
	} {
		name := fmt.Sprintf("N=%d/trip=%v", test.masters, test.trip)
		if test.names > 0 {
			name = fmt.Sprintf("N=%d/names=%d", test.masters, test.names)
		}
		b.Run(name, func(b *testing.B) {
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
			lockers, keys := map[string]contender.Locker{}, map[string]func(*measure.Caller) string{}
			for _, c := range contender.Named(test.who...) {
				lockers[c.Name], keys[c.Name] = dial(b, c, addrs), measure.Each(c.Name, test.names)
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
						if test.names > 0 {
							load.Key = keys[c.Name]
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
