package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

// scenarios are the parts of a plan, in the order in which each repetition measures them.
var scenarios = []string{"cycles", "hot", "stock", "faults", "benchmarks"}

// plan says what is measured, and for how long.
type plan struct {
	reps       int // repetitions
	benchmarks []benchmark
}

// benchmark is a Go benchmark of this module.
type benchmark struct {
	scenario      string
	pattern, time string // as -bench and -benchtime
	rounds        int    // in each repetition; 0: in the first repetition only, as it takes long
}

// fullPlan returns the plan of the report: about eight minutes for a repetition, and eight for what
// runs once.
func fullPlan() plan {
	return plan{5, []benchmark{
		// The speed of a machine changes within a second, so that only what follows each other
		// at once can be compared: a round is a repetition of its own for the ratios.
		{"cycles", "Cycle/N=/g=(1|16)$", "100ms", 4},
		{"cycles", "Cycle/N=/g=(64|256|1024)$", "200ms", 4},
		{"hot", "Hot/hold=0/procs=/workers=(2|10|50)$", "800x", 1},
		{"hot", "Hot/hold=0/procs=/workers=200$", "1600x", 1},
		{"hot", "Hot/hold=1ms/procs=/workers=(10|50)$", "1600x", 1}, // so that each worker has some turns
		{"hot", "Hot/hold=1ms/procs=/workers=200$", "3200x", 1},
		{"stock", "Stock", "1200x", 1},
		{"faults", "Faults/who=(ours|redsync|redsync-failfast|floor)$/(killed|paused|slow)=/g=1$", "2000x", 1},
		{"benchmarks", "Pass", "5000x", 1},
		{"benchmarks", "HandOver/N=3/who=ours", "240x", 1},
		{"benchmarks", "Leases/rtt=0s/leases=10000$", "1x", 1},
		{"benchmarks", "Unequal", "6000x", 0}, // with a far queue master 35 s or more
		{"benchmarks", "SeveralContended", "20000x", 0},
	}}
}

// quickPlan returns a plan with a few cells of each kind.
func quickPlan() plan {
	return plan{1, []benchmark{
		{"cycles", "Cycle/N=/g=(1|256)$", "100ms", 2},
		{"hot", "Hot/hold=0/procs=(1|8)$/workers=10$|Hot/hold=0/procs=10/workers=50$|Hot/hold=1ms/procs=10/workers=10$", "400x", 1},
		{"stock", "Stock", "120x", 1},
		// Without redsync and a paused master: a cycle takes 15 s.
		{"faults", "Faults/who=(ours|redsync|floor)$/(killed|slow)=1$/g=1$|Faults/who=ours$/paused=2$/g=1$", "20x", 1},
		{"benchmarks", "Pass|HandOver/N=3/who=ours|SeveralContended", "40x", 1},
		{"benchmarks", "Unequal", "200x", 1},
		{"benchmarks", "Leases/rtt=0s/leases=10000$", "1x", 1},
	}}
}

// run runs the benchmarks of some scenarios, or of all. A benchmark that fails is noted, and the
// run goes on with the next one.
func (p plan) run(ctx context.Context, only []string, out io.Writer) error {
	start := time.Now()
	for rep := range p.reps {
		for _, b := range p.benchmarks {
			if len(only) > 0 && !slices.Contains(only, b.scenario) || b.rounds == 0 && rep > 0 {
				continue
			}
			fmt.Fprintf(os.Stderr, "%6.0f s: repetition %d of %d: %s\n", time.Since(start).Seconds(), rep+1, p.reps, b.pattern)
			for round := range max(b.rounds, 1) {
				fmt.Fprintf(out, "rep: %d\n", rep*b.rounds+round+1)
				cmd := exec.CommandContext(ctx, "go", "test", "-timeout", "1h", "-run", "^$",
					"-bench", b.pattern, "-benchtime", b.time, "github.com/d0720281/redlock/bench")
				cmd.Stdout, cmd.Stderr = out, os.Stderr
				err := cmd.Run()
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", b.pattern, err)
					fmt.Fprintf(out, "--- FAIL: go test -bench '%s': %v\n", b.pattern, err)
				}
			}
		}
	}
	return nil
}
