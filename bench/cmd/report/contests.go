package main

import (
	"fmt"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/bench/internal/results"
)

// probe measures the base of comparison for hand-overs: a round trip, and the critical
// section without contention.
func (b *bench) probe() error {
	const pings, sections = 2000, 300
	rtt, err := measure.RoundTrip(b.clusters[results.HotN].addrs[0], pings)
	if err != nil {
		return err
	}
	b.rtt, b.section = rtt.Micros(50), map[string]float64{}
	values := map[string]float64{"rtt": b.rtt}
	for name, hold := range holds {
		took, err := measure.Contest{Key: "probe", Plain: b.plain.Addr(), Hold: hold}.Section(b.ctx, sections)
		if err != nil {
			return err
		}
		b.section[name] = took.Micros(50)
		values["section."+name] = b.section[name]
	}
	b.measured(results.Cell{Scenario: results.Probe}, results.Probe, values, "")
	return nil
}

// allContests lets workers of some processes take turns with one key.
func (b *bench) allContests() error {
	if err := b.probe(); err != nil {
		return err
	}
	for _, on := range b.plan.hot {
		for _, c := range b.contenders() {
			cell := results.Cell{Scenario: results.Hot, N: mastersOf(c, results.HotN), Procs: on.procs, Workers: on.workers, Hold: on.hold}
			if reason := absent(c, on.procs); reason != "" {
				b.leaveOut(cell, c.Name, reason)
				continue
			}
			long := b.plan.hotTime
			if on.workers > 100 {
				long *= 2
			}
			if on.hold != results.NoHold { // so that each worker has some turns
				long *= 2
			}
			s := measure.Contest{For: long, Hold: holds[on.hold], Plain: b.plain.Addr()}
			if err := b.contest(c, cell, on.procs, on.workers, s, func(seen contested) error {
				b.measured(cell, c.Name, b.hotValues(seen, on.hold), seen.failure)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// absent returns why a contender takes no part in a contest.
func absent(c contender.Contender, procs int) string {
	switch {
	case c.Name == "ours-unguarded":
		return onlyForPrice
	case !c.Waits:
		return doesNotWait
	case c.Needs == contender.None && procs > 1:
		return oneProcess
	}
	return ""
}

// contested is the result of a contest.
type contested struct {
	measure.History
	used         measure.Usage
	failed, sold int
	failure      string
	cpu          time.Duration
}

// contest lets workers of some processes begin at one moment, each time with another key.
func (b *bench) contest(c contender.Contender, cell results.Cell, procs, workers int, s measure.Contest, done func(contested) error) error {
	on := b.clusters[cell.N]
	return b.with(procs, c, cell, on, func(t team) error {
		s.Key = fmt.Sprintf("bench:%s:%d:%d", c.Name, b.rep, len(b.records))
		s.Start = measure.Now() + 30*time.Millisecond + time.Duration(procs)*10*time.Millisecond
		shares, replies := share(workers, procs), make([]measure.Attempts, procs)
		used, err := on.stats.During(b.ctx, c.Sends, func() error {
			return t.each(func(i int, p *process) error {
				mine := s
				mine.Workers = shares[i]
				return p.call("Contest", mine, &replies[i])
			})
		})
		if err != nil {
			return err
		}
		seen := contested{History: measure.NewHistory(s, shares, replies), used: used}
		for _, r := range replies {
			seen.failed += r.Failed
			seen.sold += r.Sold
			seen.cpu += r.CPU
			if r.Err != "" {
				seen.failure = r.Err
			}
		}
		return done(seen)
	})
}

// share divides workers as evenly as possible.
func share(workers, procs int) []int {
	shares := make([]int, procs)
	for i := range shares {
		shares[i] = workers * (i + 1) / procs
		shares[i] -= workers * i / procs
	}
	return shares
}

func (b *bench) hotValues(seen contested, hold string) map[string]float64 {
	rate := 0.0
	if seen.HandOvers > 0 {
		rate = float64(seen.HandOvers) / seen.Span.Seconds()
	}
	values := map[string]float64{
		"rate":     rate,
		"limit":    results.OfLimit(rate, b.section[hold], b.rtt),
		"jain":     seen.Jain,
		"least":    seen.Least,
		"wait.p50": seen.Wait.Micros(50),
		"wait.p99": seen.Wait.Micros(99),
		"wait.max": seen.Wait.Micros(100),
		"hold.p50": seen.Hold.Micros(50),
		"overlaps": float64(seen.Overlaps),
		"falls":    float64(seen.Falls),
		"failed":   float64(seen.failed),
	}
	if seen.Across.Count() > 0 {
		values["across.p50"], values["across.p99"] = seen.Across.Micros(50), seen.Across.Micros(99)
	}
	if seen.HandOvers > 0 {
		values["cpu"] = micros(seen.cpu) / float64(seen.HandOvers)
		if seen.used.Commands > 0 {
			values["commands"] = float64(seen.used.Commands) / float64(seen.HandOvers)
		}
	}
	return values
}

// allStocks lets services sell a stock that is too small for all of them.
func (b *bench) allStocks() error {
	p := b.plan.stock
	for _, c := range b.contenders() {
		procs := p.procs
		if c.Needs == contender.None {
			procs = 1
		}
		cell := results.Cell{Scenario: results.Stock, N: mastersOf(c, results.HotN)}
		if reason := absent(c, procs); reason != "" {
			b.leaveOut(cell, c.Name, reason)
			continue
		}
		stock := fmt.Sprintf("stock:%d:%s", b.rep, c.Name)
		if err := b.redis.Set(b.ctx, stock, p.units, 0).Err(); err != nil {
			return err
		}
		s := measure.Contest{For: p.limit, Rounds: p.attempts, Stock: stock, Plain: b.plain.Addr()}
		if err := b.contest(c, cell, procs, p.workers, s, func(seen contested) error {
			left, err := b.redis.Get(b.ctx, stock).Int()
			b.measured(cell, c.Name, stockValues(p, cell.N, procs, seen, left), seen.failure)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func stockValues(p stockPlan, n, procs int, seen contested, left int) map[string]float64 {
	undone := p.workers*p.attempts - seen.HandOvers
	values := map[string]float64{
		"n":        float64(n),
		"procs":    float64(procs),
		"workers":  float64(p.workers),
		"seconds":  seen.Span.Seconds(),
		"done":     float64(seen.HandOvers),
		"undone":   float64(undone),
		"stock":    float64(p.units),
		"sold":     float64(seen.sold),
		"left":     float64(left),
		"failed":   float64(seen.failed),
		"overlaps": float64(seen.Overlaps),
		"falls":    float64(seen.Falls),
		"wait.p50": seen.Wait.Micros(50),
		"wait.max": seen.Wait.Micros(100),
	}
	// The remaining and the sold units must add up to the stock, and after all attempts
	// no unit may be left.
	off := p.units - left - seen.sold
	if undone == 0 {
		off = p.units - seen.sold
	}
	values["off"] = float64(max(off, -off))
	return values
}
