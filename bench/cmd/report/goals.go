package main

import (
	"math"
	"slices"
	"strings"
)

// goal is a bound for this library in some cells. The worst cell counts.
type goal struct {
	what  string
	least bool // want is the least; otherwise it is the most
	want  float64
	unit  unit
	cells string // several are separated by a space

	// The figure is this metric of ours. If by is set, it is divided by that metric of the same round: in
	// the same cell or in that of byCell, of the same contender or of byWho.
	metric, by, byWho, byCell string

	never bool // the worst round counts, as a median would forgive what must not happen
}

const (
	one      = "Cycle/N=3/trip=0s/callers=1 Cycle/N=5/trip=0s/callers=1"
	many     = "Cycle/N=3/trip=0s/callers=256 Cycle/N=5/trip=0s/callers=256"
	handOver = "Hot/N=3/lockers=2/callers=1/hold=20ms"
	twoAlone = "Hot/N=3/lockers=2/callers=1/hold=0"
	hot      = "Hot/N=5/lockers=10/callers=1/hold=0 Hot/N=5/lockers=10/callers=5/hold=0 Hot/N=5/lockers=10/callers=20/hold=0"
	hotHold  = "Hot/N=5/lockers=10/callers=1/hold=1ms Hot/N=5/lockers=10/callers=5/hold=1ms Hot/N=5/lockers=10/callers=20/hold=1ms"
	next     = "Hot/N=5/lockers=10/callers=1/hold=0 Hot/N=5/lockers=10/callers=1/hold=1ms"
	broken   = "Faults/killed=1 Faults/killed=2 Faults/paused=1 Faults/paused=2"
	far      = "Uneven/lockers=2/callers=2/trip=10ms/mute=false Uneven/lockers=6/callers=2/trip=10ms/mute=false"
	mute     = "Uneven/lockers=3/callers=1/trip=0s/mute=true"
	three    = "Crowd/several=3of6/lockers=3/callers=3/hold=2ms"
	oneOfSix = "Crowd/several=1of6/lockers=3/callers=3/hold=2ms"
	leases   = "Leases/leases=10000"
)

// goals has the goals of this library.
var goals = []goal{
	{what: "a free key, one caller, N=1: p50, times redsync's", want: 0.95, cells: "Cycle/N=1/trip=0s/callers=1", metric: "p50-us", by: "p50-us", byWho: "redsync"},
	{what: "the same, N=3 and 5", want: 0.75, cells: one, metric: "p50-us", by: "p50-us", byWho: "redsync"},
	{what: "the same, times the floor's", want: 1.2, cells: one, metric: "p50-us", by: "p50-us", byWho: "floor"},
	{what: "one caller: the masters' CPU, times redsync's", want: 1.4, cells: one, metric: "masters-us", by: "masters-us", byWho: "redsync"},
	{what: "one caller: bytes to the masters, times redsync's", want: 1.3, cells: one, metric: "sent-B", by: "sent-B", byWho: "redsync"},
	{what: "one caller, N=3: allocations", want: 8, cells: "Cycle/N=3/trip=0s/callers=1", metric: "allocs"},
	{what: "256 callers, N=3 and 5: turns a second, times redsync's", least: true, want: 5, cells: many, metric: "turns/s", by: "turns/s", byWho: "redsync"},
	{what: "256 callers: the client's CPU, times redsync's", want: 0.1, cells: many, metric: "client-us", by: "client-us", byWho: "redsync"},
	{what: "256 callers: the masters' CPU, times redsync's", want: 0.4, cells: many, metric: "masters-us", by: "masters-us", byWho: "redsync"},
	{what: "256 callers: bytes to the masters, times redsync's", want: 1.3, cells: many, metric: "sent-B", by: "sent-B", byWho: "redsync"},
	{what: "256 callers, N=3: allocations", want: 8, cells: "Cycle/N=3/trip=0s/callers=256", metric: "allocs"},
	{what: "hand-over to the waiting process, N=3: p50", want: 500, unit: micros, cells: handOver, metric: "across-p50-us"},
	{what: "the same: p99", want: 1900, unit: micros, cells: handOver, metric: "across-p99-us"},
	{what: "two processes alternate, N=3: changes a second, times rueidislock's with three keys", least: true, want: 0.9, cells: twoAlone, metric: "changes/s", by: "changes/s", byWho: "rueidislock-3"},
	{what: "the same: commands a turn", want: 7.5, cells: twoAlone, metric: "commands"},
	{what: "one key, 50 callers of one process, hold 0.1 ms: turns a second, parts of a mutex's", least: true, want: 0.2, cells: "Hot/N=5/lockers=1/callers=50/hold=0.1ms", metric: "turns/s", by: "turns/s", byWho: "mutex"},
	{what: "one key, 10 processes with 1, 5 and 20 callers, hold 0: of the limit", least: true, want: 70, unit: percent, cells: hot, metric: "limit-%"},
	{what: "the same, hold 1 ms", least: true, want: 70, unit: percent, cells: hotHold, metric: "limit-%"},
	{what: "both: Jain's index", least: true, want: 0.95, cells: hot + " " + hotHold, metric: "jain"},
	{what: "both: the longest wait, times the median", want: 10, cells: hot + " " + hotHold, metric: "wait-max-us", by: "wait-p50-us"},
	{what: "from Unlock to the next of 10 processes: p50", want: 1000, unit: micros, cells: next, metric: "across-p50-us"},
	{what: "1 or 2 of 5 masters killed or paused: p99 of Lock, times the healthy one", want: 1.5, cells: broken, metric: "lock-p99-us", by: "healthy-lock-p99-us"},
	{what: "the same, Extend", want: 1.5, cells: broken, metric: "extend-p99-us", by: "healthy-extend-p99-us"},
	{what: "the same, Unlock", want: 1.5, cells: broken, metric: "unlock-p99-us", by: "healthy-unlock-p99-us"},
	{what: "the queue master 10 ms farther, 2 and 6 processes: longest wait", want: 1e6, unit: micros, cells: far, metric: "wait-max-us"},
	{what: "a process that may not subscribe, beside 2 others: longest wait", want: 1.5e6, unit: micros, cells: mute, metric: "wait-max-us"},
	{what: "the same: its turns, parts of theirs", least: true, want: 0.25, cells: mute, metric: "share-of-first"},
	{what: "3 of 6 resources, 9 callers: p99 of the wait, times that of one of 6", want: 3, cells: three, metric: "wait-p99-us", by: "wait-p99-us", byCell: oneOfSix},
	{what: "the same: longest time in which no caller gets any", want: 200e3, unit: micros, cells: three, metric: "pause-us"},
	{what: "10,000 leases held: the client's CPU, cores", want: 0.15, cells: leases, metric: "client-cores"},
	{what: "the same: bytes of memory a lease", want: 6144, unit: whole, cells: leases, metric: "B/lease"},
	{what: "the same: lost", cells: leases, metric: "lost", never: true},
	{what: "two holders at a time, in the worst round of one key", cells: hot + " " + hotHold + " " + handOver + " " + twoAlone + " " + far + " " + mute, metric: "overlaps", never: true},
	{what: "fencing tokens that did not rise", cells: hot + " " + hotHold + " " + handOver + " " + twoAlone + " " + far + " " + mute, metric: "falls", never: true},
}

// judge returns the row of a goal. ok is false if a cell has no figure.
func (g goal) judge(s set) (row []string, ok bool) {
	var worst []float64 // rounds
	var where string
	mark := math.Inf(1)
	for _, cell := range strings.Fields(g.cells) {
		own := figure{cell, ours, g.metric}
		rounds := s.each(own)
		if g.by != "" {
			under := figure{cell, ours, g.by}
			if g.byCell != "" {
				under.cell = g.byCell
			}
			if g.byWho != "" {
				under.who = g.byWho
			}
			rounds = s.ratios(own, under)
		}
		if len(rounds) == 0 {
			return nil, false
		}
		margin := g.want - g.value(rounds)
		if g.least {
			margin = -margin
		}
		if margin < mark {
			mark, worst, where = margin, rounds, cell
		}
	}
	bound, verdict := "≤ ", "met"
	if g.least {
		bound = "≥ "
	}
	if mark < 0 {
		verdict = "**missed**"
	}
	what := g.what
	if strings.Contains(g.cells, " ") && !g.never {
		what += " (worst: " + short(where) + ")"
	}
	text := g.unit.text
	return []string{
		what, bound + text(g.want), text(g.value(worst)), text(slices.Min(worst)) + " … " + text(slices.Max(worst)), verdict,
	}, true
}

// value is the figure of the rounds that counts: the worst one of what must never happen, otherwise the median.
func (g goal) value(rounds []float64) float64 {
	if g.never {
		return slices.Max(rounds)
	}
	return median(rounds)
}

// short is the name of a cell for a reader: without its benchmark, and without what is 0.
func short(cell string) string {
	var parts []string
	for _, part := range strings.Split(cell, "/")[1:] {
		if !strings.HasSuffix(part, "=0s") && !strings.HasSuffix(part, "=0") && !strings.HasSuffix(part, "=false") {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}
