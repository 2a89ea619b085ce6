package main

import (
	"errors"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/bench/internal/results"
)

// allCycles measures locking and unlocking keys without contention.
func (b *bench) allCycles() error {
	for _, n := range append([]int{0}, b.plan.masters...) {
		for _, g := range b.plan.goroutines {
			if err := b.oneCycles(results.Cell{Scenario: results.Cycles, N: n, Goroutines: g}); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneCycles has all contenders take slices in turns, in several rounds. The speed of a machine
// changes within a second, so that only slices of one round can be compared: a round is a
// repetition of its own for the ratios.
func (b *bench) oneCycles(cell results.Cell) (err error) {
	var all []contender.Contender
	teams := make(map[string]team)
	defer func() {
		for _, t := range teams {
			err = errors.Join(err, t.end())
		}
	}()
	for _, c := range b.contenders() {
		if !c.Takes(cell.N) {
			if c.Needs == contender.Single && cell.N > 0 {
				b.leaveOut(cell, c.Name, oneServer)
			}
			continue
		}
		t, err := newTeam(b.ctx, 1, c, b.clusters[cell.N].addrs)
		if err != nil {
			return err
		}
		all, teams[c.Name] = append(all, c), t
		warm := Cycles{Name: c.Name, Goroutines: cell.Goroutines, Warm: max(50, cell.Goroutines)}
		if err := t[0].call("Cycles", warm, nil); err != nil {
			return err
		}
	}
	slice := b.plan.cycles
	if cell.Goroutines > 16 {
		slice *= 2
	}
	rep := b.rep
	defer func() { b.rep = rep }()
	for round := range b.plan.rounds {
		b.rep = (rep-1)*b.plan.rounds + round + 1
		for i := range all {
			if err := b.oneSlice(all[(i+round)%len(all)], teams, cell, slice); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) oneSlice(c contender.Contender, teams map[string]team, cell results.Cell, slice time.Duration) error {
	var r Cycled
	used, err := b.clusters[cell.N].stats.During(b.ctx, c.Sends, func() error {
		return teams[c.Name][0].call("Cycles", Cycles{Name: c.Name, Goroutines: cell.Goroutines, For: slice}, &r)
	})
	if err != nil {
		return err
	}
	b.measured(cell, c.Name, cycleValues(r, slice, used, cell.N), r.Err)
	return nil
}

// cycleValues counts the successful cycles within the time of the cell, and until the last
// of them. A call that is stuck does not lower the rate any further.
func cycleValues(r Cycled, cell time.Duration, used measure.Usage, n int) map[string]float64 {
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
		values["masters"] = micros(used.CPU) / done
		values["bytes"] = float64(used.Bytes) / done
	}
	return values
}
