package main

import (
	"time"

	"github.com/d0720281/redlock/bench/internal/results"
)

// plan says what is measured, and for how long.
type plan struct {
	reps int // repetitions

	masters    []int
	goroutines []int
	cycles     time.Duration // of a slice; with many goroutines twice that
	rounds     int           // of slices in a repetition

	hot     []contest
	hotTime time.Duration // of a cell, and twice that with many workers
	stock   stockPlan

	faults, benchmarks []benchmark
}

// contest says how workers are divided among processes.
type contest struct {
	procs, workers int // in total
	hold           string
}

type stockPlan struct {
	units, procs, workers, attempts int // workers in total
	limit                           time.Duration
}

// benchmark is a Go benchmark of this module.
type benchmark struct {
	pattern string
	times   int  // operations, as -benchtime
	once    bool // and not in each repetition, as it takes long
}

var holds = map[string]time.Duration{results.NoHold: 0, results.ShortHold: time.Millisecond}

// fullPlan returns the plan of the report: about six minutes for a repetition, and eight for what
// runs once.
func fullPlan() plan {
	p := plan{
		reps:       5,
		masters:    []int{1, 3, 5},
		goroutines: []int{1, 16, 64, 256, 1024},
		cycles:     100 * time.Millisecond,
		rounds:     4,
		hotTime:    800 * time.Millisecond,
		stock:      stockPlan{units: 200, procs: 3, workers: 300, attempts: 4, limit: 10 * time.Second},
		faults:     []benchmark{{"Faults/who=(ours|redsync|redsync-failfast|floor)$/(killed|paused|slow)=/g=1$", 2000, false}},
		benchmarks: []benchmark{
			{"Cycle/who=ours$/N=3/g=(1|256)$", 5000, false},
			{"Pass", 5000, false},
			{"HandOver/N=3/who=ours", 240, false},
			{"Leases/rtt=0s/leases=10000$", 1, false},
			{"Unequal", 6000, true}, // with a far queue master 35 s or more
			{"SeveralContended", 20000, true},
		},
	}
	for _, procs := range []int{1, 3, 10} {
		for _, workers := range []int{2, 10, 50, 200} {
			if workers >= procs {
				p.hot = append(p.hot, contest{procs, workers, results.NoHold})
			}
		}
	}
	p.hot = append(p.hot, contest{8, 10, results.NoHold}, // two of the processes have two workers
		contest{1, 10, results.ShortHold}, contest{10, 10, results.ShortHold}, contest{10, 50, results.ShortHold}, contest{10, 200, results.ShortHold})
	return p
}

// quickPlan returns a plan with a few cells of each kind.
func quickPlan() plan {
	p := fullPlan()
	p.reps = 1
	p.goroutines = []int{1, 256}
	p.rounds = 2
	p.hot = []contest{{1, 10, results.NoHold}, {8, 10, results.NoHold}, {10, 50, results.NoHold}, {10, 10, results.ShortHold}}
	p.hotTime = 400 * time.Millisecond
	p.stock = stockPlan{units: 40, procs: 3, workers: 30, attempts: 4, limit: 3 * time.Second}
	p.faults = []benchmark{ // without redsync and a paused master: a cycle takes 15 s
		{"Faults/who=(ours|redsync|floor)$/(killed|slow)=1$/g=1$", 20, false},
		{"Faults/who=ours$/paused=2$/g=1$", 20, false},
	}
	p.benchmarks = []benchmark{
		{"Cycle/who=ours$/N=3/g=1$|Pass|HandOver/N=3/who=ours|SeveralContended", 40, false},
		{"Unequal", 200, false},
		{"Leases/rtt=0s/leases=10000$", 1, false},
	}
	return p
}
