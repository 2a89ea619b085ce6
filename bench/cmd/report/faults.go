package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/results"
)

// slowBy is by how much a round trip to a slow master is longer.
const slowBy = 50 * time.Millisecond

// fault is a state of five masters that a quorum survives.
type fault struct {
	what string
	many int
}

func (f fault) String() string { return fmt.Sprintf("%d %s", f.many, f.what) }

func faults() (list []fault) {
	for _, what := range []string{"killed", "paused", "slow"} {
		for _, many := range []int{1, 2} {
			list = append(list, fault{what, many})
		}
	}
	return list
}

// hopeless is a cell in which one cycle takes longer than the cell may.
type hopeless struct {
	who  string
	cell results.Cell
}

// proxies returns how many of the masters need a proxy.
func (f fault) proxies() int {
	if f.what == "slow" {
		return f.many
	}
	return 0
}

func (f fault) inject(on *cluster) error {
	var errs []error
	for i := range f.many {
		switch f.what {
		case "killed":
			errs = append(errs, on.nodes[i].Kill())
		case "paused":
			errs = append(errs, on.nodes[i].Pause())
		case "slow":
			on.proxies[i].Latency(slowBy/2, slowBy/2)
		}
	}
	return errors.Join(errs...)
}

// allFaults measures each contender before and after each fault, on masters of its own.
func (b *bench) allFaults() error {
	const n = 5
	for _, f := range b.plan.faults {
		for _, c := range b.contenders() {
			cell := results.Cell{Scenario: results.Faults, N: n, Goroutines: 1, Fault: f.String()}
			switch {
			case c.Needs == contender.Single:
				b.leaveOut(cell, c.Name, oneServer)
			case c.Needs == contender.None:
				b.leaveOut(cell, c.Name, oneProcess)
			case c.Name == "ours-unguarded":
				b.leaveOut(cell, c.Name, onlyForPrice)
			case b.plan.skipHung && f.what == "paused" && c.Name == results.Redsync:
				b.leaveOut(cell, c.Name, "a cycle takes 15 s with a paused master, too long for a quick run")
			case slices.Contains(b.hopeless, hopeless{c.Name, cell}): // it was measured once
			default:
				if err := b.oneFault(c, cell, f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bench) oneFault(c contender.Contender, cell results.Cell, f fault) (err error) {
	on, err := startCluster(b.ctx, cell.N, f.proxies())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.close()) }()
	return b.with(1, c, cell, on, func(t team) error {
		before, err := t[0].do(order{Cycles: &cycles{Name: c.Name, Goroutines: 1, Warm: 20, For: b.plan.healthy, Patience: patience, Extend: true}})
		if err != nil {
			return err
		}
		if err := f.inject(on); err != nil {
			return err
		}
		// Another key, as redsync-failfast leaves some keys behind even on healthy masters.
		after, err := t[0].do(order{Cycles: &cycles{Name: c.Name + ":" + f.what, Goroutines: 1, For: b.plan.faultTime, Patience: atMost, Extend: true}})
		if err != nil {
			return err
		}
		values := timings(after.Cycles.Summary, func(metric string) string { return metric })
		maps.Copy(values, timings(before.Cycles.Summary, results.Healthy))
		if after.Cycles.Done == 1 && after.Cycles.Took > b.plan.faultTime {
			b.hopeless = append(b.hopeless, hopeless{c.Name, cell})
		}
		values["done"], values["failed"] = float64(after.Cycles.Done), float64(after.Cycles.Failed)
		b.measured(cell, c.Name, values, after.Cycles.Err)
		return nil
	})
}
