package results

import "fmt"

// The names of scenarios, metrics and holds that the program and this package share.
const (
	Cycles = "cycles"
	Hot    = "hot"
	Faults = "faults"
	Stock  = "stock"
	Leases = "leases"
	Probe  = "probe"

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

// Quantile returns the name of a percentile of an operation.
func Quantile(op, percent string) string { return op + ".p" + percent }

// Healthy returns the name of a figure from before the fault.
func Healthy(metric string) string { return "healthy." + metric }

// Targets returns the targets of this library for which there are values.
func (s Set) Targets() []Target {
	var all []Target
	for _, part := range [][]Target{s.latencyTargets(), s.throughputTargets(), s.masterTargets(), s.hotTargets(), s.faultTargets(), s.stockTargets(), s.leaseTargets(), s.safetyTargets()} {
		all = append(all, part...)
	}
	return all
}

func (s Set) latencyTargets() (list []Target) {
	for _, n := range []int{1, 3, 5} {
		c := Cell{Scenario: Cycles, N: n, Goroutines: 1}
		than := []struct {
			than string
			want float64
		}{{Redsync, 0.75}, {Floor, 1.2}}
		if n == 1 {
			than = than[:1]
			than[0].want = 0.95
		}
		for _, t := range than {
			list = append(list, Target{
				Name:   fmt.Sprintf("Lock+Unlock, one goroutine, N=%d: p50, parts of `%s`", n, t.than),
				Want:   t.want,
				Values: s.Ratios(Figure{c, Ours, "p50"}, Figure{c, t.than, "p50"}),
			})
		}
	}
	return list
}

func (s Set) throughputTargets() (list []Target) {
	for _, n := range []int{3, 5} {
		c := Cell{Scenario: Cycles, N: n, Goroutines: 256}
		list = append(list, Target{
			Name:   fmt.Sprintf("256 goroutines, keys of their own, N=%d: cycles/s, times `redsync`", n),
			Want:   5,
			Values: s.Ratios(Figure{c, Ours, "rate"}, Figure{c, Redsync, "rate"}), AtLeast: true,
		}, Target{
			Name:   fmt.Sprintf("the same, N=%d: client CPU a cycle, parts of `redsync`", n),
			Want:   0.1,
			Values: s.Ratios(Figure{c, Ours, "cpu"}, Figure{c, Redsync, "cpu"}),
		})
	}
	return list
}

// masterTargets are about what a cycle costs the masters.
func (s Set) masterTargets() (list []Target) {
	for _, n := range []int{3, 5} {
		for _, t := range []struct {
			goroutines int
			want       float64
		}{{1, 1.4}, {16, 0.8}, {256, 0.4}} {
			c := Cell{Scenario: Cycles, N: n, Goroutines: t.goroutines}
			list = append(list, Target{
				Name:   fmt.Sprintf("goroutines: %d, N=%d: the masters' CPU a cycle, parts of `redsync`", t.goroutines, n),
				Want:   t.want,
				Values: s.Ratios(Figure{c, Ours, "masters"}, Figure{c, Redsync, "masters"}),
			}, Target{
				Name:   fmt.Sprintf("the same, N=%d: bytes to the masters a cycle, parts of `redsync`", n),
				Want:   1.3,
				Values: s.Ratios(Figure{c, Ours, "bytes"}, Figure{c, Redsync, "bytes"}),
			})
		}
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
	for _, fault := range []string{"1 killed", "2 killed", "1 paused", "2 paused"} {
		c := Cell{Scenario: Faults, N: 5, Goroutines: 1, Fault: fault}
		for _, op := range Operations {
			p99 := Quantile(op, "99")
			list = append(list, Target{
				Name: fmt.Sprintf("%s of 5: p99 of %s, times the healthy one", fault, op),
				Want: 1.5, Values: s.Ratios(Figure{c, Ours, p99}, Figure{c, Ours, Healthy(p99)}),
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

func (s Set) leaseTargets() []Target {
	c := Cell{Scenario: Leases, N: HotN}
	leases, ok := s.Median(c, Ours, "leases")
	if !ok {
		leases = 10000
	}
	return []Target{
		{Name: number(leases) + " leases held and renewed: of one core", Want: 15, Unit: "%", Values: s.Values(c, Ours, "core")},
		{Name: "the same: memory of a lease, heap and stacks", Want: 6, Unit: "KiB", Values: scaled(s.Values(c, Ours, "memory"), 1.0/1024)},
		{Name: "the same: lost, in the worst repetition", Values: worst(s.Values(c, Ours, "lost"))},
		{Name: "the same: growth of the process, a lease", Want: 6, Unit: "KiB", Values: scaled(s.Values(c, Ours, "rss"), 1.0/1024)},
	}
}

// safetyTargets returns the targets for all contested runs of a repetition together.
func (s Set) safetyTargets() []Target {
	overlaps, falls := Target{Name: "two holders at a time, in all contested runs"}, Target{Name: "fencing tokens that did not rise"}
	byRep := map[string]map[int]float64{"overlaps": {}, "falls": {}}
	for _, r := range s.Records {
		for metric, sums := range byRep {
			if v, ok := r.Values[metric]; ok && r.Who == Ours {
				sums[r.Rep] += v
			}
		}
	}
	overlaps.Values, falls.Values = inOrder(byRep["overlaps"]), inOrder(byRep["falls"])
	// A median would forgive a single violation.
	overlaps.Values, falls.Values = worst(overlaps.Values), worst(falls.Values)
	return []Target{overlaps, falls}
}

// worst returns the largest value alone.
func worst(values []float64) []float64 {
	if len(values) == 0 {
		return nil
	}
	largest := values[0]
	for _, v := range values {
		largest = max(largest, v)
	}
	return []float64{largest}
}

func scaled(values []float64, by float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v * by
	}
	return out
}
