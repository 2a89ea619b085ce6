package bench

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go test writes logs into the lines of the results
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if who := os.Getenv(workerEnv); who != "" {
		if err := work(who); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// BenchmarkCycle measures locking and unlocking a free resource. The contenders use the same
// servers, and follow each other in another order each time. The connections of each are up
// before it is measured.
func BenchmarkCycle(b *testing.B) {
	for _, n := range []int{0, 1, 3, 5} {
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
			addrs := redistest.Addrs(redistest.Masters(b, n))
			lockers := map[string]contender.Locker{}
			all := shuffled(func(c contender.Contender) bool { return c.Masters(n) == n && (n > 0 || c.Needs == contender.None) })
			for _, c := range all {
				lockers[c.Name] = dial(b, c, addrs)
			}
			for _, g := range []int{1, 16, 64, 256, 1024} {
				b.Run(fmt.Sprintf("g=%d", g), func(b *testing.B) {
					for _, c := range all {
						b.Run("who="+c.Name, func(b *testing.B) {
							benchmarkCycle(b, measure.NewCrew(lockers[c.Name], c.Name, g, false), addrs, c.Sends)
						})
					}
				})
			}
		})
	}
}

// shuffled returns some contenders in a random order.
func shuffled(wanted func(contender.Contender) bool) []contender.Contender {
	list := slices.DeleteFunc(contender.All(), func(c contender.Contender) bool { return !wanted(c) })
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func benchmarkCycle(b *testing.B, cr *measure.Crew, addrs, sends []string) {
	if b.N == 1 { // go test begins with a single operation
		cr.Run(b.Context(), max(50, cr.Size()), warming, grace)
		cr.Reset()
	}
	servers, err := measure.NewServers(b.Context(), addrs)
	if err != nil {
		b.Fatal(err)
	}
	defer servers.Close()
	b.ReportAllocs()
	var cpu time.Duration
	var done int
	used, err := servers.During(b.Context(), sends, func() error {
		cpu = measure.CPUTime()
		b.ResetTimer()
		done = cr.Run(b.Context(), b.N, time.Hour, grace)
		b.StopTimer()
		cpu = measure.CPUTime() - cpu
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	s, cycles, nodes := cr.Summary(), float64(done), float64(len(addrs))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/cycles, "ns/op")
	b.ReportMetric(s.Cycle.Micros(50), "p50-us")
	b.ReportMetric(s.Cycle.Micros(99), "p99-us")
	b.ReportMetric((cycles-float64(s.Failed))/s.Last.Seconds(), "cycles/s") // a call that is stuck does not make it smaller
	b.ReportMetric(measure.Micros(cpu)/cycles, "client-cpu-us/op")
	b.ReportMetric(float64(s.Failed), "failed")
	if len(addrs) > 0 {
		b.ReportMetric(float64(used.Commands)/cycles, "commands/op")
		b.ReportMetric(measure.Micros(used.Busy)/cycles/nodes, "busy-us/op")
		b.ReportMetric(measure.Micros(used.Scripts)/cycles/nodes, "script-us/op")
		b.ReportMetric(measure.Micros(used.CPU)/cycles, "masters-cpu-us/op")
		b.ReportMetric(float64(used.Bytes)/cycles, "sent-B/op")
	}
	if s.Failed > 0 {
		b.Logf("%d of %d cycles failed, for example with: %s", s.Failed, b.N, s.Err)
	}
}

// Limits for the runs of BenchmarkCycle and BenchmarkFaults.
const (
	warming       = 2 * time.Minute
	grace         = 3 * time.Second // a cycle has failed if it takes longer, and no other ends meanwhile
	healthyCycles = 500             // per goroutine
	healthyLimit  = 5 * time.Second
	faultLimit    = 20 * time.Second // no cycle begins later; with -short 1 s
	faultGrace    = time.Minute      // the same, with masters that do not answer
	slowBy        = 50 * time.Millisecond
)

// faults are the states of five masters that a quorum survives. Each befalls the first masters.
var faults = []struct {
	name   string
	many   int
	inject func(*masters.Process, *masters.Proxy) error
}{
	{"healthy", 0, nil},
	{"killed=1", 1, kill}, {"killed=2", 2, kill},
	{"paused=1", 1, pause}, {"paused=2", 2, pause},
	{"slow=1", 1, slow}, {"slow=2", 2, slow},
}

func each(list []*masters.Process, do func(*masters.Process) error) error {
	for _, p := range list {
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

func kill(m *masters.Process, _ *masters.Proxy) error  { return m.Kill() }
func pause(m *masters.Process, _ *masters.Proxy) error { return m.Pause() }

func slow(_ *masters.Process, p *masters.Proxy) error {
	p.Latency(slowBy/2, slowBy/2)
	return nil
}

// quorumContenders returns the contenders that take any number of masters.
func quorumContenders() []contender.Contender {
	return slices.DeleteFunc(contender.All(), func(c contender.Contender) bool { return c.Needs != contender.Quorum })
}

// BenchmarkFaults measures how long a caller waits for Lock, Extend and Unlock while one or
// two of five masters are down (they refuse connections), paused (they accept connections
// and do not answer) or slow (a round trip takes 50 ms more). Each run has masters of its own,
// which are healthy at first; the healthy- metrics are from that time. The first cycles after
// the fault count, too.
//
// A run ends after 20 s, or 1 s with -short, with fewer cycles than asked for, and reports how
// many cycles it made.
func BenchmarkFaults(b *testing.B) {
	for _, c := range quorumContenders() {
		b.Run("who="+c.Name, func(b *testing.B) {
			for _, f := range faults {
				b.Run(f.name, func(b *testing.B) {
					for _, g := range []int{1, 16} {
						b.Run(fmt.Sprintf("g=%d", g), func(b *testing.B) {
							list := redistest.Masters(b, 5)
							addrs := redistest.Addrs(list)
							proxies := make([]*masters.Proxy, f.many)
							if strings.HasPrefix(f.name, "slow") {
								proxies = redistest.Proxied(b, list[:f.many])
								copy(addrs, redistest.Addrs(proxies))
							}
							benchmarkFault(b, c, addrs, g, func() (err error) {
								for i := range f.many {
									err = errors.Join(err, f.inject(list[i], proxies[i]))
								}
								return err
							})
						})
					}
				})
			}
		})
	}
}

func benchmarkFault(b *testing.B, c contender.Contender, addrs []string, g int, inject func() error) {
	limit := faultLimit
	if testing.Short() {
		limit = time.Second
	}
	l := dial(b, c, addrs)
	cr := measure.NewCrew(l, c.Name, g, true)
	cr.Run(b.Context(), 3*g, healthyLimit, faultGrace) // warm up
	cr.Reset()
	cr.Run(b.Context(), healthyCycles*g, healthyLimit, faultGrace)
	before := cr.Summary()
	if 10*before.Failed > healthyCycles*g { // a few may fail on a machine that stood still for a master timeout
		b.Errorf("%d cycles failed before the fault, for example with: %s", before.Failed, before.Err)
	}
	if err := inject(); err != nil {
		b.Fatal(err)
	}

	// New keys, as redsync-failfast leaves some keys behind even on healthy masters.
	cr = measure.NewCrew(l, c.Name+":fault", g, true)
	b.ResetTimer()
	done := cr.Run(b.Context(), b.N, limit, faultGrace)
	b.StopTimer()
	s := cr.Summary()
	for name, h := range map[string]measure.Summary{"": s, "healthy-": before} {
		for op, l := range map[string]measure.Latency{"lock": h.Lock, "extend": h.Extend, "unlock": h.Unlock} {
			b.ReportMetric(l.Micros(50), name+op+"-p50-us")
			b.ReportMetric(l.Micros(99), name+op+"-p99-us")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/op")
	b.ReportMetric(float64(done), "cycles")
	b.ReportMetric(float64(s.Failed), "failed")
	if s.Failed > 0 {
		b.Logf("%d of %d cycles failed, for example with: %s", s.Failed, done, s.Err)
	}
}

// dial connects a contender to new masters, or to masters that it has used before, and
// closes it when the test ends.
func dial(tb testing.TB, c contender.Contender, addrs []string) contender.Locker {
	tb.Helper()
	if c.Prepare != nil {
		if err := c.Prepare(tb.Context(), addrs); err != nil {
			tb.Fatal(err)
		}
	}
	l, err := c.Dial(addrs)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("close %s: %v", c.Name, err)
		}
	})
	return l
}
