package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/results"
)

func TestWorkerProcess(t *testing.T) {
	p, err := startProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cycles := Cycles{Name: "x", Goroutines: 3, Warm: 3}
	for _, test := range []struct {
		name, method string
		args         any
		want         string
	}{
		{"before it has dialled", "Cycles", cycles, errDial.Error()},
		{"an unknown contender", "Dial", Dial{Who: "nobody"}, "who is nobody?"},
		{"a mutex", "Dial", Dial{Who: results.Mutex}, ""},
		{"nothing", "Rest", cycles, "can't find method"},
		{"cycles", "Cycles", cycles, ""},
	} {
		err := p.call(test.method, test.args, nil)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.call("Cycles", cycles, nil); err == nil {
		t.Error("a process that is dead carries out a call")
	}
	if err := p.end(); err != nil {
		t.Errorf("the end of it: %v", err)
	}
}

func TestTeamWithoutServers(t *testing.T) {
	c, _ := contender.ByName(results.Floor)
	if _, err := newTeam(t.Context(), 2, c, []string{"127.0.0.1:1"}); err == nil {
		t.Error("a team with nothing to dial")
	}
}

func TestShare(t *testing.T) {
	for _, test := range []struct {
		workers, procs int
		want           []int
	}{
		{10, 1, []int{10}}, {10, 3, []int{3, 3, 4}}, {200, 3, []int{66, 67, 67}}, {10, 10, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		if got := share(test.workers, test.procs); !slices.Equal(got, test.want) {
			t.Errorf("%d in %d: got %v, want %v", test.workers, test.procs, got, test.want)
		}
	}
}

func TestStockValues(t *testing.T) {
	p := stockPlan{units: 200, workers: 300, attempts: 4}
	for _, test := range []struct {
		name                  string
		handOvers, sold, left int
		off, undone           float64
	}{
		{"as it should be", 1200, 200, 0, 0, 0},
		{"too many sold", 1200, 231, 0, 31, 0},
		{"some never sold", 1200, 190, 10, 10, 0},
		{"not done, and in order", 300, 120, 80, 0, 900},
		{"not done, and sold twice", 300, 130, 80, 10, 900},
	} {
		seen := contested{sold: test.sold}
		seen.HandOvers = test.handOvers
		got := stockValues(p, 5, 3, seen, test.left)
		if got["off"] != test.off || got["undone"] != test.undone {
			t.Errorf("%s: got %v off and %v undone, want %v and %v", test.name, got["off"], got["undone"], test.off, test.undone)
		}
	}
}

// A plan without the cells of a target would report the target as not measured, for ever.
func TestFullPlanHasAllTargets(t *testing.T) {
	p := fullPlan()
	benchmarks := ""
	for _, b := range slices.Concat(p.faults, p.benchmarks) {
		benchmarks += b.pattern + " "
	}
	for _, name := range []string{"Faults", "Cycle", "Pass", "HandOver", "Leases", "Unequal", "SeveralContended"} {
		if !strings.Contains(benchmarks, name) {
			t.Errorf("not in the plan: Benchmark%s", name)
		}
	}
	for _, target := range []struct {
		what string
		ok   bool
	}{
		{"N=3 and 5", slices.Contains(p.masters, 3) && slices.Contains(p.masters, results.HotN)},
		{"1 and 256 goroutines", slices.Contains(p.goroutines, 1) && slices.Contains(p.goroutines, 256)},
		{"the stock of 200", p.stock.units == 200 && p.stock.workers == 300 && p.stock.attempts == 4 && p.stock.procs == 3},
		{"the contest of 10 processes with a hold", slices.Contains(p.hot, contest{10, 200, results.ShortHold})},
		{"the contest of one process", slices.Contains(p.hot, contest{1, 2, results.NoHold})},
		{"no contest with idle processes", !slices.ContainsFunc(p.hot, func(c contest) bool { return c.workers < c.procs })},
	} {
		if !target.ok {
			t.Errorf("not in the plan: %s", target.what)
		}
	}
}
