package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// faults are what befalls a master.
var faults = []struct {
	name   string
	inject func(*masters.Process, *masters.Proxy) error
}{
	{"killed", func(m *masters.Process, _ *masters.Proxy) error { return m.Kill() }},  // it refuses connections
	{"paused", func(m *masters.Process, _ *masters.Proxy) error { return m.Pause() }}, // it takes requests, and does not answer
	{"slow", func(_ *masters.Process, p *masters.Proxy) error { p.Latency(0, 50*time.Millisecond); return nil }},
}

// BenchmarkFaults measures how long one caller waits for Lock, Extend and Unlock while one or two of five
// masters are down. Each run has masters of its own, which are healthy at first: the healthy- metrics are of that
// time. The first calls after the fault count, too. No cycle begins later than a second after the fault.
func BenchmarkFaults(b *testing.B) {
	for _, f := range faults {
		for _, many := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s=%d", f.name, many), func(b *testing.B) {
				rounds(b, 3, contender.Named("ours", "redsync", "redsync-failfast"), func(b *testing.B, c contender.Contender) {
					if *quick && f.name == "paused" && c.Name == "redsync" && many == 2 {
						b.Skip("a cycle takes 15 s")
					}
					list := redistest.Masters(b, 5)
					proxies := redistest.Proxied(b, list[:many])
					addrs := append(redistest.Addrs(proxies), redistest.Addrs(list[many:])...)
					if f.name != "slow" {
						addrs = redistest.Addrs(list)
					}
					l := dial(b, c, addrs)
					warm(b, 20, 1, l)
					load := measure.Load{
						Lockers: []contender.Locker{l}, Callers: 1, Key: measure.Own("healthy"), Extend: true, For: time.Second, Grace: time.Minute,
					}
					if *quick {
						load.For /= 3
					}
					healthy := load.Run(b.Context())
					for i, p := range proxies {
						must(b, f.inject(list[i], p))
					}
					load.Key = measure.Own("fault") // redsync-failfast leaves some of the other keys behind
					r, _ := under(b, load, nil, nil)
					for when, r := range map[string]measure.Result{"": r, "healthy-": healthy} {
						for op, took := range map[string]measure.Latency{"lock": r.Lock, "extend": r.Extend, "unlock": r.Unlock} {
							b.ReportMetric(measure.Micros(took.At(99)), when+op+"-p99-us")
						}
						b.ReportMetric(measure.Micros(r.Lock.At(50)), when+"lock-p50-us")
					}
					report(b, map[string]float64{"ns/op": float64(r.Took.Nanoseconds()) / float64(r.Done()), "cycles": float64(r.Done())})
				})
			})
		}
	}
}
