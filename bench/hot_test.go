package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkHot has workers in some processes take turns with one key. One operation is one
// millisecond of the contest. The critical section is a GET to a Redis that is no master, and
// a sleep of the hold. The limit is 1/(section + 2 round trips), both measured alone.
func BenchmarkHot(b *testing.B) {
	addrs, plain := arena(b)
	for _, test := range []struct {
		hold    string
		procs   int
		workers []int // in all processes
	}{
		{"0", 1, []int{2, 10, 50, 200}},
		{"0", 3, []int{10, 50, 200}},
		{"0", 8, []int{10}}, // two of the processes have two workers
		{"0", 10, []int{10, 50, 200}},
		{"1ms", 1, []int{10}},
		{"1ms", 10, []int{10, 50, 200}},
	} {
		hold, err := time.ParseDuration(test.hold)
		if err != nil {
			b.Fatal(err)
		}
		for _, workers := range test.workers {
			b.Run(fmt.Sprintf("hold=%s/procs=%d/workers=%d", test.hold, test.procs, workers), func(b *testing.B) {
				contest := measure.Contest{Hold: hold, Plain: plain}
				section, err := contest.Section(b.Context(), 200)
				if err != nil {
					b.Fatal(err)
				}
				roundTrip, err := measure.RoundTrip(addrs[0], 1000)
				if err != nil {
					b.Fatal(err)
				}
				for _, c := range contestants(test.procs) {
					b.Run("who="+c.Name, func(b *testing.B) {
						if b.N == 1 {
							return // go test begins with a single operation, which would have no turn
						}
						rate := benchmarkHot(b, c, addrs, contest, test.procs, workers)
						b.ReportMetric(ofLimit(rate, section.Quantile(50), roundTrip.Quantile(50)), "limit-%")
						b.ReportMetric(section.Micros(50), "section-us")
						b.ReportMetric(roundTrip.Micros(50), "rtt-us")
					})
				}
			})
		}
	}
}

// benchmarkHot makes a contest of b.N milliseconds, and returns the hand-overs in a second.
func benchmarkHot(b *testing.B, c contender.Contender, addrs []string, contest measure.Contest, procs, workers int) (rate float64) {
	b.Helper()
	contest.Key = fmt.Sprintf("hot:%s:%d", c.Name, time.Now().UnixNano())
	contest.For = time.Duration(b.N) * time.Millisecond
	h, used := contend(b, c, addrs, contest, procs, workers)
	rate = float64(h.HandOvers) / max(h.Span, 1).Seconds()
	b.ReportMetric(rate, "hand-overs/s")
	b.ReportMetric(h.Jain, "jain")
	b.ReportMetric(h.Least, "least-share")
	b.ReportMetric(h.Wait.Micros(50), "wait-p50-us")
	b.ReportMetric(h.Wait.Micros(99), "wait-p99-us")
	b.ReportMetric(h.Wait.Micros(100), "wait-max-us")
	b.ReportMetric(h.Hold.Micros(50), "hold-p50-us")
	if h.Across.Count() > 0 {
		b.ReportMetric(h.Across.Micros(50), "across-p50-us")
		b.ReportMetric(h.Across.Micros(99), "across-p99-us")
	}
	if turns := float64(h.HandOvers); turns > 0 {
		b.ReportMetric(measure.Micros(h.CPU)/turns, "client-cpu-us/turn")
		if used.Commands > 0 {
			b.ReportMetric(float64(used.Commands)/turns, "commands/turn")
		}
	}
	return rate
}

// ofLimit returns a rate as a percentage of the limit: a hand-over takes at least the critical
// section and two round trips.
func ofLimit(rate float64, section, roundTrip time.Duration) float64 {
	return 100 * rate * (section + 2*roundTrip).Seconds()
}

// BenchmarkStock has 3 processes sell a stock. One operation is one attempt to take one unit: GET,
// and SET to one less, under the lock. Each worker makes four, and there is one unit for six.
func BenchmarkStock(b *testing.B) {
	addrs, plain := arena(b)
	client := redistest.Client(b, plain)
	for _, c := range contestants(1) {
		procs := 3
		if c.Needs == contender.None {
			procs = 1
		}
		b.Run(fmt.Sprintf("N=%d/who=%s", c.Masters(len(addrs)), c.Name), func(b *testing.B) {
			const attempts, stock = 4, "stock"
			workers, units := b.N/attempts, b.N/6
			if workers < procs {
				return // go test begins with a single operation
			}
			if err := client.Set(b.Context(), stock, units, 0).Err(); err != nil {
				b.Fatal(err)
			}
			contest := measure.Contest{
				Key: fmt.Sprintf("%s:%s:%d", stock, c.Name, time.Now().UnixNano()), For: 10 * time.Second, Rounds: attempts, Stock: stock, Plain: plain,
			}
			h, _ := contend(b, c, addrs, contest, procs, workers)
			left, err := client.Get(b.Context(), stock).Int()
			if err != nil {
				b.Fatal(err)
			}
			undone := workers*attempts - h.HandOvers
			b.ReportMetric(float64(procs), "processes")
			b.ReportMetric(float64(workers), "workers")
			b.ReportMetric(h.Span.Seconds(), "s")
			b.ReportMetric(float64(h.HandOvers), "done")
			b.ReportMetric(float64(undone), "undone")
			b.ReportMetric(float64(units), "stock")
			b.ReportMetric(float64(h.Sold), "sold")
			b.ReportMetric(float64(wrong(units, h.Sold, left, undone)), "off")
		})
	}
}

// wrong returns how many units were sold too many or too few: the remaining and the sold units
// must add up to the stock, and after all attempts no unit may be left.
func wrong(units, sold, left, undone int) int {
	off := units - left - sold
	if undone == 0 {
		off = units - sold
	}
	return max(off, -off)
}

// arena starts five masters for all contenders, and a Redis for the critical sections.
func arena(b *testing.B) (addrs []string, plain string) {
	addrs = redistest.Addrs(redistest.Masters(b, 5))
	ours, _ := contender.ByName("ours") // no other that waits needs it
	if err := ours.Prepare(b.Context(), addrs); err != nil {
		b.Fatal(err)
	}
	return addrs, redistest.Masters(b, 1)[0].Addr()
}

// contestants returns the contenders that wait for another holder, and that take so many processes.
// One of ours is enough: without the restart guard a cycle costs less, as BenchmarkCycle shows.
func contestants(procs int) []contender.Contender {
	return shuffled(func(c contender.Contender) bool {
		return c.Waits && c.Name != "ours-unguarded" && (procs == 1 || c.Needs != contender.None)
	})
}

// contend lets workers of some processes begin at one moment, and reports what no lock may do. It also
// returns what the contest cost the masters.
func contend(b *testing.B, c contender.Contender, addrs []string, contest measure.Contest, procs, workers int) (h measure.History, used measure.Usage) {
	b.Helper()
	on := addrs[:c.Masters(len(addrs))]
	servers, err := measure.NewServers(b.Context(), on)
	if err != nil {
		b.Fatal(err)
	}
	defer servers.Close()
	ctx, cancel := context.WithTimeout(b.Context(), contest.For+time.Minute) // then the processes are killed
	defer cancel()
	processes, err := startTeam(ctx, procs, c.Name, on)
	if err != nil {
		b.Fatal(err)
	}
	used, err = servers.During(ctx, c.Sends, func() (err error) {
		h, err = processes.contest(contest, share(workers, procs))
		return err
	})
	if err := errors.Join(err, processes.end()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op") // the contest takes the time that it is given
	b.ReportMetric(float64(h.Overlaps), "overlaps")
	b.ReportMetric(float64(h.Falls), "falls")
	b.ReportMetric(float64(h.Failed), "failed")
	if h.Failed > 0 {
		b.Logf("%d calls failed, for example with: %s", h.Failed, h.Err)
	}
	return h, used
}
