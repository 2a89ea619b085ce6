package main

import (
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/results"
)

// plan says what is measured, and for how long.
type plan struct {
	masters    []int
	goroutines []int
	cycles     time.Duration // of a slice; with many goroutines twice that
	rounds     int           // of slices in a repetition

	hot     []contest
	hotTime time.Duration // of a cell, and twice that with many workers

	faults             []fault
	healthy, faultTime time.Duration
	skipHung           bool // leave out contenders that take seconds for a call to a hung master

	stock     stockPlan
	leases    int
	leaseTime time.Duration
}

// contest says how workers are divided among processes.
type contest struct {
	n, procs, workers int // n masters for contenders that take any number
	hold              string
}

type stockPlan struct {
	units, procs, workers, attempts int // workers in total
	limit                           time.Duration
}

var holds = map[string]time.Duration{results.NoHold: 0, results.ShortHold: time.Millisecond}

// fullPlan returns the plan of the report: about five minutes for a repetition.
func fullPlan() plan {
	p := plan{
		masters:    []int{1, 3, 5},
		goroutines: []int{1, 16, 64, 256, 1024},
		cycles:     100 * time.Millisecond,
		rounds:     4,
		hotTime:    800 * time.Millisecond,
		faults:     faults(),
		healthy:    500 * time.Millisecond,
		faultTime:  time.Second,
		stock:      stockPlan{units: 200, procs: 3, workers: 300, attempts: 4, limit: 10 * time.Second},
		leases:     10000,
		leaseTime:  contender.TTL,
	}
	for _, procs := range []int{1, 3, 10} {
		for _, workers := range []int{2, 10, 50, 200} {
			if workers >= procs {
				p.hot = append(p.hot, contest{results.HotN, procs, workers, results.NoHold})
			}
		}
	}
	p.hot = append(p.hot, []contest{
		{results.HotN, 8, 10, results.NoHold}, // two of the processes have two workers
		{results.HotN, 1, 10, results.ShortHold},
		{results.HotN, 10, 10, results.ShortHold}, {results.HotN, 10, 50, results.ShortHold}, {results.HotN, 10, 200, results.ShortHold},
		{3, 10, 10, results.ShortHold},
	}...)
	return p
}

// quickPlan returns a plan with a few cells of each kind.
func quickPlan() plan {
	all := faults()
	return plan{
		masters:    []int{1, 3, 5},
		goroutines: []int{1, 256},
		cycles:     100 * time.Millisecond,
		rounds:     2,
		hot: []contest{
			{results.HotN, 1, 10, results.NoHold}, {results.HotN, 8, 10, results.NoHold}, {results.HotN, 10, 50, results.NoHold}, {results.HotN, 10, 10, results.ShortHold},
		},
		hotTime:   400 * time.Millisecond,
		faults:    []fault{all[1], all[2], all[4]},
		healthy:   200 * time.Millisecond,
		faultTime: 300 * time.Millisecond,
		skipHung:  true,
		stock:     stockPlan{units: 40, procs: 3, workers: 30, attempts: 4, limit: 3 * time.Second},
		leases:    1000,
		leaseTime: 4 * time.Second,
	}
}
