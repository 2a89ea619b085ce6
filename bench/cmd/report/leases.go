package main

import (
	"fmt"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/bench/internal/results"
)

// allLeases measures the cost of holding many leases.
func (b *bench) allLeases() error {
	for _, c := range b.contenders() {
		cell := results.Cell{Scenario: results.Leases, N: mastersOf(c, results.HotN)}
		switch {
		case c.Name == "ours-unguarded":
			b.leaveOut(cell, c.Name, onlyForPrice)
		case c.Name == "redsync-failfast":
			b.leaveOut(cell, c.Name, "a renewal is that of `redsync`")
		case !c.Waits, c.Needs == contender.None:
			b.leaveOut(cell, c.Name, "it has no leases to renew")
		default:
			if err := b.oneCrowd(c, cell); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) oneCrowd(c contender.Contender, cell results.Cell) error {
	return b.with(1, c, cell, b.clusters[cell.N], func(t team) error {
		r, err := t[0].do(order{Crowd: &measure.Crowd{
			Name: fmt.Sprintf("crowd:%s:%d", c.Name, b.rep), Leases: b.plan.leases, For: b.plan.leaseTime, Renew: !c.Renews,
		}})
		if err != nil {
			return err
		}
		leases := float64(b.plan.leases)
		b.measured(cell, c.Name, map[string]float64{
			"n":      float64(cell.N),
			"leases": leases,
			"filled": r.Crowd.Filled.Seconds(),
			"core":   100 * r.Crowd.CPU.Seconds() / r.Crowd.For.Seconds(),
			"memory": float64(r.Crowd.Memory) / leases,
			"rss":    float64(r.Crowd.RSS) / leases,
			"lost":   float64(r.Crowd.Lost),
		}, r.Crowd.Err)
		return nil
	})
}
