package results

import (
	"fmt"
	"slices"
)

// The names of scenarios, metrics and holds that the program and this package share.
const (
	Cycles     = "cycles"
	Hot        = "hot"
	Stock      = "stock"
	Faults     = "faults"     // Go benchmarks
	Benchmarks = "benchmarks" // other Go benchmarks, for targets alone
	Probe      = "probe"

	NoHold    = "0"
	ShortHold = "1ms"

	Ours    = "ours"
	Redsync = "redsync"
	Floor   = "floor"
	Mutex   = "mutex"

	HotN = 5 // masters of the quorum locks unless a cell has another number
)

// Operations are the operations that are timed under a fault.
var Operations = []string{"lock", "extend", "unlock"}

// Targets returns the targets of this library for which there are values.
func (s Set) Targets() []Target {
	var all []Target
	for _, part := range [][]Target{s.cycleTargets(), s.hotTargets(), s.faultTargets(), s.stockTargets(), s.benchmarkTargets(), s.safetyTargets()} {
		all = append(all, part...)
	}
	return all
}

// cycleTargets compare a cycle with that of another contender.
func (s Set) cycleTargets() (list []Target) {
	for _, t := range []struct {
		what, metric  string
		n, goroutines int
		than          string
		want          float64
	}{
		{"p50", "p50", 1, 1, Redsync, 0.95},
		{"p50", "p50", 3, 1, Redsync, 0.75},
		{"p50", "p50", 3, 1, Floor, 1.2},
		{"p50", "p50", 5, 1, Redsync, 0.75},
		{"p50", "p50", 5, 1, Floor, 1.2},
		{"cycles/s", "rate", 3, 256, Redsync, 5},
		{"cycles/s", "rate", 5, 256, Redsync, 5},
		{"client CPU", "cpu", 3, 256, Redsync, 0.1},
		{"client CPU", "cpu", 5, 256, Redsync, 0.1},
		{"the masters' CPU", "masters", 3, 1, Redsync, 1.4},
		{"the masters' CPU", "masters", 3, 16, Redsync, 0.8},
		{"the masters' CPU", "masters", 3, 256, Redsync, 0.4},
		{"the masters' CPU", "masters", 5, 1, Redsync, 1.4},
		{"the masters' CPU", "masters", 5, 16, Redsync, 0.8},
		{"the masters' CPU", "masters", 5, 256, Redsync, 0.4},
		{"bytes to the masters", "bytes", 3, 1, Redsync, 1.3},
		{"bytes to the masters", "bytes", 3, 16, Redsync, 1.3},
		{"bytes to the masters", "bytes", 3, 256, Redsync, 1.3},
		{"bytes to the masters", "bytes", 5, 1, Redsync, 1.3},
		{"bytes to the masters", "bytes", 5, 16, Redsync, 1.3},
		{"bytes to the masters", "bytes", 5, 256, Redsync, 1.3},
	} {
		c := Cell{Scenario: Cycles, N: t.n, Goroutines: t.goroutines}
		list = append(list, Target{
			Name: fmt.Sprintf("Lock+Unlock of free keys, goroutines: %d, N=%d: %s, times `%s`", t.goroutines, t.n, t.what, t.than),
			Want: t.want, AtLeast: t.metric == "rate",
			Values: s.Ratios(Figure{c, Ours, t.metric}, Figure{c, t.than, t.metric}),
		})
	}
	return list
}

func (s Set) hotTargets() (list []Target) {
	for _, workers := range []int{2, 10, 50, 200} {
		ours := Cell{Scenario: Hot, N: HotN, Procs: 1, Workers: workers, Hold: NoHold}
		mutex := ours
		mutex.N = 0
		list = append(list, Target{
			Name: fmt.Sprintf("hot key, 1 process, %d workers: hand-overs/s, parts of `mutex`", workers),
			Want: 0.2, AtLeast: true,
			Values: s.Ratios(Figure{ours, Ours, "rate"}, Figure{mutex, Mutex, "rate"}),
		})
	}
	for _, hold := range []string{NoHold, ShortHold} {
		for _, workers := range []int{10, 50, 200} {
			c := Cell{Scenario: Hot, N: HotN, Procs: 10, Workers: workers, Hold: hold}
			name := fmt.Sprintf("hot key, 10 processes, %d workers, hold %s: ", workers, hold)
			list = append(list, Target{
				Name: name + "hand-overs/s, parts of 1/(hold + 2 round trips)",
				Want: 0.7, AtLeast: true,
				Values: scaled(s.Values(c, Ours, "limit"), 0.01),
			}, Target{
				Name: name + "Jain", Want: 0.95, AtLeast: true,
				Values: s.Values(c, Ours, "jain"),
			}, Target{
				Name: name + "longest wait, times the median",
				Want: 10, Values: s.Ratios(Figure{c, Ours, "wait.max"}, Figure{c, Ours, "wait.p50"}),
			})
		}
	}
	for _, hold := range []string{NoHold, ShortHold} {
		c := Cell{Scenario: Hot, N: HotN, Procs: 10, Workers: 10, Hold: hold}
		list = append(list, Target{
			Name: fmt.Sprintf("from Unlock to the next process, N=%d, hold %s: p50", HotN, hold),
			Want: 1, Unit: "ms", Values: scaled(s.Values(c, Ours, "across.p50"), 1e-3),
		})
	}
	return list
}

func (s Set) faultTargets() (list []Target) {
	for _, fault := range []string{"killed=1", "killed=2", "paused=1", "paused=2"} {
		c := Cell{Scenario: Faults, Bench: "Faults/" + fault + "/g=1"}
		for _, op := range Operations {
			p99 := op + "-p99-us"
			list = append(list, Target{
				Name: fmt.Sprintf("%s of 5: p99 of %s, times the healthy one", faultName(c), op),
				Want: 1.5, Values: s.Ratios(Figure{c, Ours, p99}, Figure{c, Ours, "healthy-" + p99}),
			})
		}
	}
	return list
}

func (s Set) stockTargets() []Target {
	ours, mutex := Cell{Scenario: Stock, N: HotN}, Cell{Scenario: Stock}
	return []Target{{
		Name: "stock: the whole run, times that of `mutex`",
		Want: 3, Values: s.Ratios(Figure{ours, Ours, "seconds"}, Figure{mutex, Mutex, "seconds"}),
	}, {
		Name:   "stock: attempts not made when the time was over",
		Values: s.Values(ours, Ours, "undone"),
	}, {
		Name:   "stock: units sold too many or too few",
		Values: s.Values(ours, Ours, "off"),
	}}
}

// benchmarkTargets are about the other Go benchmarks.
func (s Set) benchmarkTargets() (list []Target) {
	for _, t := range []struct {
		what, bench, metric string
		scale               float64
		unit                string
		want                float64
	}{
		{"a cycle, one goroutine, N=3: allocations", "Cycle/N=3/g=1", "allocs/op", 1, "", 8},
		{"the same, 256 goroutines", "Cycle/N=3/g=256", "allocs/op", 1, "", 8},
		{"from Unlock to the waiting process, N=3: p50", "HandOver/N=3", "p50-us", 1e-3, "ms", 0.5},
		{"the same: p99", "HandOver/N=3", "p99-us", 1e-3, "ms", 1.9},
		{"2 processes, 1 worker each, no pause, N=3: commands a lock", "Pass/lockers=2", "commands/op", 1, "", 7.5},
		{"the queue master 10 ms farther, 2 processes x 2 callers: longest wait", "Unequal/lockers=2/callers=2/trip=10ms/mute=false", "longest-ms", 1, "ms", 1000},
		{"the same, 6 processes x 2 callers", "Unequal/lockers=6/callers=2/trip=10ms/mute=false", "longest-ms", 1, "ms", 1000},
		{"a process that may not subscribe, beside 2 others: longest wait", mute, "longest-ms", 1, "ms", 1500},
		{"3 of 6 resources, 3 processes x 3 callers: longest time in which no caller gets any", several, "pause-ms", 1, "ms", 200},
		{"10,000 leases held and renewed, N=3: of one core", leases, "client-cores", 100, "%", 15},
		{"the same: memory of a lease, heap and stacks", leases, "B/lease", 1.0 / 1024, "KiB", 6},
	} {
		c := Cell{Scenario: Benchmarks, Bench: t.bench}
		list = append(list, Target{Name: t.what, Want: t.want, Unit: t.unit, Values: scaled(s.Values(c, Ours, t.metric), t.scale)})
	}
	at := func(bench string) Cell { return Cell{Scenario: Benchmarks, Bench: bench} }
	pass := at("Pass/lockers=2")
	return append(list, Target{
		Name:   "the same: lost, in the worst repetition",
		Values: worst(s.Values(at(leases), Ours, "lost")),
	}, Target{
		Name: "2 processes, 1 worker each, no pause, N=3: changes of owner a second, times `rueidislock` with three keys",
		Want: 0.9, AtLeast: true,
		Values: s.Ratios(Figure{pass, Ours, "changes/s"}, Figure{pass, "rueidislock-3", "changes/s"}),
	}, Target{
		Name: "a process that may not subscribe, beside 2 others: its turns, parts of theirs",
		Want: 0.25, AtLeast: true,
		Values: s.Values(at(mute), Ours, "share-of-first"),
	}, Target{
		Name:   "3 of 6 resources, 3 processes x 3 callers: p99 of the wait, times that of one of 6",
		Want:   3,
		Values: s.Ratios(Figure{at(several), Ours, "p99-ms"}, Figure{at("SeveralContended/resources=1/of=6"), Ours, "p99-ms"}),
	})
}

// The names of Go benchmarks with several targets.
const (
	mute    = "Unequal/lockers=3/callers=1/trip=0s/mute=true"
	several = "SeveralContended/resources=3/of=6"
	leases  = "Leases/rtt=0s/leases=10000"
)

// safetyTargets are about all contested runs together: a median would forgive a single violation.
func (s Set) safetyTargets() []Target {
	overlaps, falls := Target{Name: "two holders at a time, in the worst contested run"}, Target{Name: "fencing tokens that did not rise, in the worst contested run"}
	for _, c := range s.cells(func(Cell) bool { return true }) {
		overlaps.Values = append(overlaps.Values, s.Values(c, Ours, "overlaps")...)
		falls.Values = append(falls.Values, s.Values(c, Ours, "falls")...)
	}
	overlaps.Values, falls.Values = worst(overlaps.Values), worst(falls.Values)
	return []Target{overlaps, falls}
}

// worst returns the largest value alone.
func worst(values []float64) []float64 {
	if len(values) == 0 {
		return nil
	}
	return []float64{slices.Max(values)}
}

func scaled(values []float64, by float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v * by
	}
	return out
}
