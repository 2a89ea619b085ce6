package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/bench/internal/results"
	"github.com/d0720281/redlock/internal/masters"
)

// scenarios are the scenarios, in the order in which each repetition measures them.
var scenarios = []struct {
	name string
	run  func(*bench) error
}{
	{results.Cycles, (*bench).allCycles},
	{results.Hot, (*bench).allContests},
	{results.Stock, (*bench).allStocks},
	{results.Faults, func(b *bench) error { return b.goBenchmarks(results.Faults, b.plan.faults) }},
	{results.Benchmarks, func(b *bench) error { return b.goBenchmarks(results.Benchmarks, b.plan.benchmarks) }},
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// bench is one run of the program.
type bench struct {
	ctx      context.Context // ends everything that runs
	plan     plan
	plain    *masters.Process // for the critical sections
	redis    *redis.Client    // its client
	clusters map[int]*cluster // by number of masters; the cluster of 0 is empty

	rep     int
	records []results.Record
	section map[string]float64 // by this repetition's probe: µs by hold
	rtt     float64            // by the same probe: µs
}

// measureAll measures everything.
func measureAll(ctx context.Context, o options, p plan) (set results.Set, err error) {
	logging.Disable()
	b := &bench{ctx: ctx, plan: p, clusters: map[int]*cluster{0: {stats: &measure.Servers{}}}}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(); err != nil {
		return set, err
	}
	start := time.Now()
	if set.Machine, err = thisMachine(ctx, b.redis); err != nil {
		return set, err
	}
	set.Reps, set.Quick = p.reps, o.quick
	defer func() { set.Records = b.records }()
	for b.rep = 1; b.rep <= p.reps; b.rep++ {
		for _, s := range scenarios {
			if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%6.0f s: repetition %d of %d: %s\n", time.Since(start).Seconds(), b.rep, p.reps, s.name)
			if err := s.run(b); err != nil {
				return set, err
			}
		}
	}
	return set, nil
}

// open starts the servers.
func (b *bench) open() (err error) {
	if b.plain, err = masters.StartProcess(b.ctx, masters.ProcessConfig{}); err != nil {
		return err
	}
	b.redis = measure.PlainClient(b.plain.Addr())
	for _, n := range b.plan.masters {
		if b.clusters[n], err = startCluster(b.ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) close() error {
	var errs []error
	if b.redis != nil {
		errs = append(errs, b.redis.Close(), b.plain.Close())
	}
	for _, c := range b.clusters {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

// contenders returns all contenders. Each repetition begins with another one.
func (b *bench) contenders() []contender.Contender {
	all := contender.All()
	first := (b.rep - 1) % len(all)
	return slices.Concat(all[first:], all[:first])
}

// mastersOf returns how many of n masters a contender uses.
func mastersOf(c contender.Contender, n int) int {
	switch c.Needs {
	case contender.Single:
		return 1
	case contender.None:
		return 0
	}
	return n
}

// Why contenders are left out.
const (
	oneServer    = "it has one server"
	oneProcess   = "it is for one process, without any server"
	doesNotWait  = "it does not wait for another holder"
	onlyForPrice = "it is there for what the guard costs in a cycle"
)

// measured records values.
func (b *bench) measured(cell results.Cell, who string, values map[string]float64, failure string) {
	b.records = append(b.records, results.Record{Rep: b.rep, Who: who, Cell: cell, Values: values, Error: failure})
}

// leaveOut records why there are no values.
func (b *bench) leaveOut(cell results.Cell, who, reason string) {
	b.records = append(b.records, results.Record{Rep: b.rep, Who: who, Cell: cell, LeftOut: reason})
}

// with lets a team of processes use a contender on a cluster. It records failures, and the
// run goes on with the next cell.
func (b *bench) with(procs int, c contender.Contender, cell results.Cell, on *cluster, use func(team) error) error {
	t, err := newTeam(b.ctx, procs, c, on.addrs)
	if err == nil {
		err = use(t)
		err = errors.Join(err, t.end())
	}
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %+v: %v\n", c.Name, cell, err)
		b.measured(cell, c.Name, nil, err.Error())
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
