package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // lines of go-redis amid the results would garble them
	goleak.VerifyTestMain(m)
}

// BenchmarkCycle is the price of locking and unlocking a free resource. The
// contenders use the same servers, and each has its connections up before it is
// measured.
func BenchmarkCycle(b *testing.B) {
	clusters := map[int][]string{}
	for _, n := range []int{1, 3, 5} {
		clusters[n] = redistest.Addrs(redistest.Masters(b, n))
	}
	for _, c := range contenders() {
		b.Run("who="+c.name, func(b *testing.B) {
			for _, n := range []int{1, 3, 5} {
				b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
					l := dial(b, c, clusters[n])
					for _, g := range []int{1, 16, 256} {
						b.Run(fmt.Sprintf("g=%d", g), func(b *testing.B) {
							benchmarkCycle(b, newCrew(l, c.name, g), clusters[n])
						})
					}
				})
			}
		})
	}
}

func benchmarkCycle(b *testing.B, cr *crew, addrs []string) {
	b.ReportAllocs()
	cr.run(b.Context(), 3*len(cr.workers), longest) // warm up
	cr.reset()
	scripts, cpu := scriptMicros(b, addrs), cpuTime()
	b.ResetTimer()
	cr.run(b.Context(), b.N, time.Hour)
	b.StopTimer()
	cpu = cpuTime() - cpu
	scripts = scriptMicros(b, addrs) - scripts
	s := cr.summary()
	b.ReportMetric(micros(s.cycle, 50), "p50-us")
	b.ReportMetric(micros(s.cycle, 99), "p99-us")
	b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N), "client-cpu-us/op")
	b.ReportMetric(float64(scripts)/float64(b.N*len(addrs)), "script-us/op")
	if s.failed > 0 {
		b.Errorf("%d of %d cycles failed, one of them with: %v", s.failed, b.N, s.err)
	}
}

// scriptMicros is how long the servers have spent in scripts, in all.
func scriptMicros(b *testing.B, addrs []string) int64 {
	b.Helper()
	var sum int64
	for _, addr := range addrs {
		text, err := redistest.Client(b, addr).Info(b.Context(), "commandstats").Result()
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(text) {
			var calls, micros int64
			for _, command := range []string{"eval", "evalsha"} {
				if n, _ := fmt.Sscanf(line, "cmdstat_"+command+":calls=%d,usec=%d,", &calls, &micros); n == 2 {
					sum += micros
				}
			}
		}
	}
	return sum
}

// How long the runs of BenchmarkFaults may go on.
const (
	healthyCycles = 500 // per worker
	healthyLimit  = 5 * time.Second
	faultLimit    = 20 * time.Second // no cycle is begun later
	faultGrace    = time.Minute      // and one that takes longer has failed
)

// faults are the states of a cluster of five that a quorum survives.
var faults = []struct {
	name   string
	inject func(list []*masters.Process) error
}{
	{"healthy", func([]*masters.Process) error { return nil }},
	{"killed=1", func(list []*masters.Process) error { return list[0].Kill() }},
	{"killed=2", func(list []*masters.Process) error { return each(list[:2], (*masters.Process).Kill) }},
	{"paused=1", func(list []*masters.Process) error { return list[0].Pause() }},
	{"paused=2", func(list []*masters.Process) error { return each(list[:2], (*masters.Process).Pause) }},
}

func each(list []*masters.Process, do func(*masters.Process) error) error {
	for _, p := range list {
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkFaults is what a caller waits for Lock and for Unlock while one or two
// of five masters are down (they refuse connections) or paused (they accept them
// and say nothing). Each run has a cluster of its own, which is healthy at first;
// what was measured then is reported as the healthy- metrics. The first cycles
// after the fault count, too.
//
// A run ends after 20 s with fewer cycles than asked for, and reports how many
// there were.
func BenchmarkFaults(b *testing.B) {
	for _, c := range contenders() {
		b.Run("who="+c.name, func(b *testing.B) {
			for _, f := range faults {
				b.Run(f.name, func(b *testing.B) {
					for _, g := range []int{1, 16} {
						b.Run(fmt.Sprintf("g=%d", g), func(b *testing.B) {
							benchmarkFault(b, c, f.inject, g)
						})
					}
				})
			}
		})
	}
}

func benchmarkFault(b *testing.B, c contender, inject func([]*masters.Process) error, g int) {
	list := redistest.Masters(b, 5)
	l := dial(b, c, redistest.Addrs(list))
	cr := newCrew(l, c.name, g)
	cr.run(b.Context(), 3*g, healthyLimit) // warm up
	cr.reset()
	cr.run(b.Context(), healthyCycles*g, healthyLimit)
	before := cr.summary()
	if before.failed > 0 {
		b.Errorf("%d cycles failed before the fault, one of them with: %v", before.failed, before.err)
	}
	if err := inject(list); err != nil {
		b.Fatal(err)
	}

	// Other keys, as redsync-failfast leaves some behind even on a healthy cluster.
	cr = newCrew(l, c.name+":fault", g)
	ctx, cancel := context.WithTimeout(b.Context(), faultLimit+faultGrace)
	defer cancel()
	b.ResetTimer()
	done := cr.run(ctx, b.N, faultLimit)
	b.StopTimer()
	s := cr.summary()
	for name, h := range map[string]summary{"": s, "healthy-": before} {
		b.ReportMetric(micros(h.lock, 50), name+"lock-p50-us")
		b.ReportMetric(micros(h.lock, 99), name+"lock-p99-us")
		b.ReportMetric(micros(h.unlock, 50), name+"unlock-p50-us")
		b.ReportMetric(micros(h.unlock, 99), name+"unlock-p99-us")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/op")
	b.ReportMetric(float64(done), "cycles")
	b.ReportMetric(float64(s.failed), "failed")
	if s.failed > 0 {
		b.Logf("%d of %d cycles failed, one of them with: %v", s.failed, done, s.err)
	}
}

// dial connects a contender and closes it when the benchmark ends.
func dial(tb testing.TB, c contender, addrs []string) locker {
	tb.Helper()
	l, err := c.dial(addrs)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("close %s: %v", c.name, err)
		}
	})
	return l
}
