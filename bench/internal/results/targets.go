package results

import (
	"fmt"
	"slices"
)

// The names of contenders that the benchmarks and this package share.
const (
	Ours    = "ours"
	Redsync = "redsync"
	Floor   = "floor"
	Mutex   = "mutex"
)

// Cells with several targets or tables.
const (
	faultCells = "Faults/*/g=1"
	stock      = "Stock/N=5"
	mute       = "Unequal/lockers=3/callers=1/trip=0s/mute=true"
	several    = "SeveralContended/resources=3/of=6"
	leases     = "Leases/rtt=0s/leases=10000"
	pass       = "Pass/lockers=2"
)

// operations are timed under a fault.
var operations = []string{"lock", "extend", "unlock"}

// Targets returns the targets of this library.
func (s Set) Targets() Targets {
	return slices.Concat(s.cycleTargets(), s.hotTargets(), s.faultTargets(), s.benchmarkTargets(), s.safetyTargets())
}

// cycleTargets compare a cycle with that of another contender.
func (s Set) cycleTargets() (list Targets) {
	for _, t := range []struct {
		what, metric  string
		n, goroutines int
		than          string
		want          float64
	}{
		{"p50", "p50-us", 1, 1, Redsync, 0.95},
		{"p50", "p50-us", 3, 1, Redsync, 0.75},
		{"p50", "p50-us", 3, 1, Floor, 1.2},
		{"p50", "p50-us", 5, 1, Redsync, 0.75},
		{"p50", "p50-us", 5, 1, Floor, 1.2},
		{"cycles/s", "cycles/s", 3, 256, Redsync, 5},
		{"cycles/s", "cycles/s", 5, 256, Redsync, 5},
		{"client CPU", "client-cpu-us/op", 3, 256, Redsync, 0.1},
		{"client CPU", "client-cpu-us/op", 5, 256, Redsync, 0.1},
		{"the masters' CPU", "masters-cpu-us/op", 3, 1, Redsync, 1.4},
		{"the masters' CPU", "masters-cpu-us/op", 3, 16, Redsync, 0.8},
		{"the masters' CPU", "masters-cpu-us/op", 3, 256, Redsync, 0.4},
		{"the masters' CPU", "masters-cpu-us/op", 5, 1, Redsync, 1.4},
		{"the masters' CPU", "masters-cpu-us/op", 5, 16, Redsync, 0.8},
		{"the masters' CPU", "masters-cpu-us/op", 5, 256, Redsync, 0.4},
		{"bytes to the masters", "sent-B/op", 3, 1, Redsync, 1.3},
		{"bytes to the masters", "sent-B/op", 3, 16, Redsync, 1.3},
		{"bytes to the masters", "sent-B/op", 3, 256, Redsync, 1.3},
		{"bytes to the masters", "sent-B/op", 5, 1, Redsync, 1.3},
		{"bytes to the masters", "sent-B/op", 5, 16, Redsync, 1.3},
		{"bytes to the masters", "sent-B/op", 5, 256, Redsync, 1.3},
	} {
		c := fmt.Sprintf("Cycle/N=%d/g=%d", t.n, t.goroutines)
		list = append(list, Target{
			Name: fmt.Sprintf("Lock+Unlock of free keys, goroutines: %d, N=%d: %s, times `%s`", t.goroutines, t.n, t.what, t.than),
			Want: t.want, AtLeast: t.metric == "cycles/s",
			Values: s.Ratios(Figure{c, Ours, t.metric}, Figure{c, t.than, t.metric}),
		})
	}
	return list
}

func (s Set) hotTargets() (list Targets) {
	cell := func(hold string, procs, workers int) string {
		return fmt.Sprintf("Hot/hold=%s/procs=%d/workers=%d", hold, procs, workers)
	}
	for _, workers := range []int{2, 10, 50, 200} {
		c := cell("0", 1, workers)
		list = append(list, Target{
			Name: fmt.Sprintf("hot key, 1 process, %d workers: hand-overs/s, parts of `mutex`", workers),
			Want: 0.2, AtLeast: true,
			Values: s.Ratios(Figure{c, Ours, "hand-overs/s"}, Figure{c, Mutex, "hand-overs/s"}),
		})
	}
	holds := []string{"0", "1ms"}
	for _, hold := range holds {
		for _, workers := range []int{10, 50, 200} {
			c := cell(hold, 10, workers)
			name := fmt.Sprintf("hot key, 10 processes, %d workers, hold %s: ", workers, hold)
			list = append(list, Target{
				Name: name + "hand-overs/s, parts of 1/(hold + 2 round trips)",
				Want: 0.7, AtLeast: true,
				Values: scaled(s.Values(c, Ours, "limit-%"), 0.01),
			}, Target{
				Name: name + "Jain", Want: 0.95, AtLeast: true,
				Values: s.Values(c, Ours, "jain"),
			}, Target{
				Name: name + "longest wait, times the median",
				Want: 10, Values: s.Ratios(Figure{c, Ours, "wait-max-us"}, Figure{c, Ours, "wait-p50-us"}),
			})
		}
	}
	for _, hold := range holds {
		list = append(list, Target{
			Name: fmt.Sprintf("from Unlock to the next process, N=5, hold %s: p50", hold),
			Want: 1, Unit: "ms", Values: scaled(s.Values(cell(hold, 10, 10), Ours, "across-p50-us"), 1e-3),
		})
	}
	return list
}

func (s Set) faultTargets() (list Targets) {
	for _, fault := range []string{"killed=1", "killed=2", "paused=1", "paused=2"} {
		c := "Faults/" + fault + "/g=1"
		for _, op := range operations {
			p99 := op + "-p99-us"
			list = append(list, Target{
				Name: fmt.Sprintf("%s of 5: p99 of %s, times the healthy one", faultName(c), op),
				Want: 1.5, Values: s.Ratios(Figure{c, Ours, p99}, Figure{c, Ours, "healthy-" + p99}),
			})
		}
	}
	return list
}

// benchmarkTargets are about a figure of one cell each.
func (s Set) benchmarkTargets() (list Targets) {
	list = Targets{{
		Name: "stock: the whole run, times that of `mutex`",
		Want: 3, Values: s.Ratios(Figure{stock, Ours, "s"}, Figure{"Stock/N=0", Mutex, "s"}),
	}}
	for _, t := range []struct {
		what, cell, metric string
		scale              float64
		unit               string
		want               float64
	}{
		{"stock: attempts not made when the time was over", stock, "undone", 1, "", 0},
		{"stock: units sold too many or too few", stock, "off", 1, "", 0},
		{"a cycle, one goroutine, N=3: allocations", "Cycle/N=3/g=1", "allocs/op", 1, "", 8},
		{"the same, 256 goroutines", "Cycle/N=3/g=256", "allocs/op", 1, "", 8},
		{"from Unlock to the waiting process, N=3: p50", "HandOver/N=3", "p50-us", 1e-3, "ms", 0.5},
		{"the same: p99", "HandOver/N=3", "p99-us", 1e-3, "ms", 1.9},
		{"2 processes, 1 worker each, no pause, N=3: commands a lock", pass, "commands/op", 1, "", 7.5},
		{"the queue master 10 ms farther, 2 processes x 2 callers: longest wait", "Unequal/lockers=2/callers=2/trip=10ms/mute=false", "longest-ms", 1, "ms", 1000},
		{"the same, 6 processes x 2 callers", "Unequal/lockers=6/callers=2/trip=10ms/mute=false", "longest-ms", 1, "ms", 1000},
		{"a process that may not subscribe, beside 2 others: longest wait", mute, "longest-ms", 1, "ms", 1500},
		{"3 of 6 resources, 3 processes x 3 callers: longest time in which no caller gets any", several, "pause-ms", 1, "ms", 200},
		{"10,000 leases held and renewed, N=3: of one core", leases, "client-cores", 100, "%", 15},
		{"the same: memory of a lease, heap and stacks", leases, "B/lease", 1.0 / 1024, "KiB", 6},
	} {
		list = append(list, Target{Name: t.what, Want: t.want, Unit: t.unit, Values: scaled(s.Values(t.cell, Ours, t.metric), t.scale)})
	}
	return append(list, Target{
		Name:   "the same: lost, in the worst repetition",
		Values: worst(s.Values(leases, Ours, "lost")),
	}, Target{
		Name: "2 processes, 1 worker each, no pause, N=3: changes of owner a second, times `rueidislock` with three keys",
		Want: 0.9, AtLeast: true,
		Values: s.Ratios(Figure{pass, Ours, "changes/s"}, Figure{pass, "rueidislock-3", "changes/s"}),
	}, Target{
		Name: "a process that may not subscribe, beside 2 others: its turns, parts of theirs",
		Want: 0.25, AtLeast: true,
		Values: s.Values(mute, Ours, "share-of-first"),
	}, Target{
		Name:   "3 of 6 resources, 3 processes x 3 callers: p99 of the wait, times that of one of 6",
		Want:   3,
		Values: s.Ratios(Figure{several, Ours, "p99-ms"}, Figure{"SeveralContended/resources=1/of=6", Ours, "p99-ms"}),
	})
}

// safetyTargets are about all contested runs together: a median would forgive a single violation.
func (s Set) safetyTargets() Targets {
	var overlaps, falls []float64
	for _, r := range s.Records {
		if n, ok := r.Values["overlaps"]; ok && r.Who == Ours {
			overlaps, falls = append(overlaps, n), append(falls, r.Values["falls"])
		}
	}
	return Targets{
		{Name: "two holders at a time, in the worst contested run", Values: worst(overlaps)},
		{Name: "fencing tokens that did not rise, in the worst contested run", Values: worst(falls)},
	}
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
