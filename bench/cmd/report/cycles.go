package main

import (
	"fmt"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/bench/internal/results"
)

// allCycles measures locking and unlocking keys that nobody else wants.
func (b *bench) allCycles() error {
	for _, n := range append([]int{0}, b.plan.masters...) {
		for _, g := range b.plan.goroutines {
			for _, c := range b.contenders() {
				cell := results.Cell{Scenario: results.Cycles, N: n, Goroutines: g}
				if !c.Takes(n) {
					if c.Needs == contender.Single && n > 0 {
						b.leaveOut(cell, c.Name, oneServer)
					}
					continue
				}
				if err := b.oneCycles(c, cell); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bench) oneCycles(c contender.Contender, cell results.Cell) error {
	on := b.clusters[cell.N]
	return b.with(1, c, cell, on, func(t team) error {
		warm := order{Cycles: &cycles{Name: c.Name, Goroutines: cell.Goroutines, Patience: patience, Warm: max(50, cell.Goroutines)}}
		if _, err := t[0].do(warm); err != nil {
			return err
		}
		before, err := on.stats.Usage(b.ctx, c.Sends)
		if err != nil {
			return err
		}
		r, err := t[0].do(order{Cycles: &cycles{Name: c.Name, Goroutines: cell.Goroutines, For: b.plan.cycles, Patience: patience}})
		if err != nil {
			return err
		}
		after, err := on.stats.Usage(b.ctx, c.Sends)
		if err != nil {
			return err
		}
		b.measured(cell, c.Name, cycleValues(*r.Cycles, b.plan.cycles, after.Minus(before), cell.N), r.Cycles.Err)
		return nil
	})
}

// cycleValues counts those that were successful in the time of the cell, and until the
// last of them was. A call that is stuck makes the rate no smaller than that.
func cycleValues(r cycled, cell time.Duration, used measure.Usage, n int) map[string]float64 {
	done := float64(r.Done)
	values := map[string]float64{
		"p50":    r.Cycle.Micros(50),
		"p99":    r.Cycle.Micros(99),
		"rate":   float64(r.Done-r.Failed) / max(cell, r.Last).Seconds(),
		"done":   done,
		"failed": float64(r.Failed),
	}
	if r.Done > 0 {
		values["cpu"] = micros(r.CPU) / done
	}
	if r.Done > 0 && n > 0 {
		values["commands"] = float64(used.Commands) / done
		values["busy"] = micros(used.Busy) / done / float64(n)
		values["script"] = micros(used.Scripts) / done / float64(n)
	}
	return values
}

// timings are the quantiles of what is timed under faults.
func timings(s measure.Summary, name func(string) string) map[string]float64 {
	values := map[string]float64{}
	for i, l := range []measure.Latency{s.Lock, s.Extend, s.Unlock} {
		for _, percent := range []float64{50, 99} {
			if l.Count() > 0 {
				values[name(results.Quantile(results.Operations[i], fmt.Sprint(percent)))] = l.Micros(percent)
			}
		}
	}
	return values
}
