package bench

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkHot lets callers of some Lockers, each as a process has it, take turns with one key. A Locker with
// one caller beside another one hands over at each turn: with hold=0 that is as fast as two processes
// alternate, and with a hold the other one always waits in time. limit-% is a part of 1/(hold + 2 round trips).
// One operation is a slice of some time.
func BenchmarkHot(b *testing.B) {
	const slice = 800 * time.Millisecond
	all := []string{"ours", "redsync", "redsync-failfast", "redislock", "rueidislock"}
	for _, test := range []struct {
		masters, lockers, callers int // callers of each Locker
		hold                      string
		slices                    time.Duration // 1, or more to give each caller some turns
		who                       []string
	}{
		{5, 1, 50, "0.1ms", 1, append(all, "mutex")},
		{3, 2, 1, "0", 2, []string{"ours", "rueidislock-3"}},
		{3, 8, 1, "0", 1, []string{"ours", "rueidislock-3"}},
		{3, 2, 1, "20ms", 4, []string{"ours", "redsync", "rueidislock-3"}},
		{5, 10, 1, "0", 1, all}, {5, 10, 5, "0", 1, all}, {5, 10, 20, "0", 2, all},
		{5, 10, 1, "1ms", 1, all}, {5, 10, 5, "1ms", 2, all}, {5, 10, 20, "1ms", 4, all},
	} {
		hold, err := time.ParseDuration(test.hold)
		must(b, err)
		b.Run(fmt.Sprintf("N=%d/lockers=%d/callers=%d/hold=%s", test.masters, test.lockers, test.callers, test.hold), func(b *testing.B) {
			addrs := redistest.Addrs(redistest.Masters(b, test.masters))
			trip := roundTrip(b, addrs[0])
			rounds(b, 5, contender.Named(test.who...), func(b *testing.B, c contender.Contender) {
				lockers := dials(b, c, addrs, test.lockers)
				warm(b, 5, 1, lockers...)
				load := measure.Load{
					Lockers: lockers, Callers: test.callers, Key: measure.Same("hot:" + c.Name), Hold: hold, For: test.slices * slice, Exclusive: true,
				}
				if *quick {
					load.For = slice / 2
				}
				r, used := under(b, load, c.On(addrs), c.Sends)
				reportTurns(b, r, used)
				if c.Name == "ours" {
					mustExclude(b, r)
				}
				limit := 1 / (r.Held.Seconds()/float64(max(1, r.Done())) + 2*trip.Seconds())
				b.ReportMetric(100*r.Rate()/limit, "limit-%")
			})
		})
	}
}

// reportTurns reports a load with an exclusive key.
func reportTurns(b *testing.B, r measure.Result, used measure.Usage) {
	cost := costs(r, used)
	for _, unit := range []string{"ns/op", "turns/s", "client-us", "commands"} {
		b.ReportMetric(cost[unit], unit)
	}
	reportWaits(b, r)
	report(b, map[string]float64{
		"changes/s": float64(r.Changes) / max(1, r.Took).Seconds(), "jain": measure.Jain(r.Turns),
		"overlaps": float64(r.Overlaps), "falls": float64(r.Falls),
	})
	if len(r.Across) > 0 {
		report(b, map[string]float64{"across-p50-us": measure.Micros(r.Across.At(50)), "across-p99-us": measure.Micros(r.Across.At(99))})
	}
}

// mustExclude fails a benchmark of this library in which two callers had a key at a time, or a fencing token did not rise.
func mustExclude(b *testing.B, r measure.Result) {
	b.Helper()
	if r.Overlaps > 0 || r.Falls > 0 {
		b.Errorf("two holders at a time: %d times; fencing tokens that did not rise: %d", r.Overlaps, r.Falls)
	}
}

// reportWaits reports how long callers waited.
func reportWaits(b *testing.B, r measure.Result) {
	report(b, map[string]float64{
		"wait-p50-us": measure.Micros(r.Lock.At(50)), "wait-p99-us": measure.Micros(r.Lock.At(99)), "wait-max-us": measure.Micros(r.Lock.At(100)),
		"pause-us": measure.Micros(r.Pause),
	})
}

// roundTrip returns the median of some PINGs over a bare connection: no lock can have an answer sooner.
func roundTrip(b *testing.B, addr string) time.Duration {
	b.Helper()
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	must(b, err)
	defer conn.Close()
	replies := bufio.NewReader(conn)
	took := make([]time.Duration, 500)
	for i := range took {
		start := time.Now()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			b.Fatal(err)
		}
		if line, err := replies.ReadString('\n'); err != nil || line != "+PONG\r\n" {
			b.Fatalf("ping: %q, %v", line, err)
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// BenchmarkUneven is about processes that are not alike: the master that keeps the queue of the key is
// farther away than the others, or no master can call the first process, as its user has no right to subscribe.
func BenchmarkUneven(b *testing.B) {
	for _, test := range []struct {
		lockers, callers int
		trip             time.Duration
		mute             bool
	}{{2, 2, 10 * time.Millisecond, false}, {6, 2, 10 * time.Millisecond, false}, {3, 1, 0, true}} {
		b.Run(fmt.Sprintf("lockers=%d/callers=%d/trip=%v/mute=%v", test.lockers, test.callers, test.trip, test.mute), func(b *testing.B) {
			list := redistest.Masters(b, 3)
			proxies := redistest.Proxied(b, list)
			addrs, muted := redistest.Addrs(proxies), []string(nil)
			for i, m := range list {
				c := redistest.Client(b, m.Addr())
				must(b, c.Do(b.Context(), "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-subscribe").Err())
				muted = append(muted, "redis://mute:any@"+addrs[i])
			}
			var all []*redlock.Locker
			var lockers []contender.Locker
			for i := range test.lockers {
				on := addrs
				if test.mute && i == 0 {
					on = muted
				}
				all = append(all, newLocker(b, on))
				lockers = append(lockers, contender.Ours(all[i]))
			}
			warm(b, 5, 1, lockers...)
			proxies[0].Latency(test.trip/2, test.trip/2)
			key := "uneven" // of which the far master keeps the queue
			for door.Look(all[0]).QueueNode(key) != 0 {
				key += "+"
			}
			load := measure.Load{Lockers: lockers, Callers: test.callers, Key: measure.Same(key), Hold: 2 * time.Millisecond, For: 4 * time.Second, Exclusive: true}
			rounds(b, 3, contender.Named("ours"), func(b *testing.B, _ contender.Contender) {
				r, used := under(b, load, redistest.Addrs(list), nil)
				reportTurns(b, r, used)
				mustExclude(b, r)
				of := make([]int, test.lockers)
				for i, turns := range r.Turns {
					of[i/test.callers] += turns
				}
				b.ReportMetric(float64(of[0])/float64(max(1, slices.Max(of))), "share-of-first")
			})
		})
	}
}

// BenchmarkBeside lets four callers of this library and four of redsync, as it is by default, want one resource.
// docs/migrating.md has the figures.
func BenchmarkBeside(b *testing.B) {
	for _, processes := range []int{1, 4} {
		for _, hold := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
			b.Run(fmt.Sprintf("processes=%d/hold=%v", processes, hold), func(b *testing.B) {
				const callers = 4
				addrs := redistest.Addrs(redistest.Masters(b, 3))
				var lockers []contender.Locker // one for each caller
				for i := range callers {
					if i < processes {
						lockers = append(lockers, contender.Ours(newLocker(b, addrs, redlock.WithKeyPrefix(""))))
					} else {
						lockers = append(lockers, lockers[i%processes])
					}
				}
				theirs := contender.NewRedsync(addrs, redis.Options{})
				b.Cleanup(func() { _ = theirs.Close() })
				for range callers {
					lockers = append(lockers, theirs)
				}
				load := measure.Load{Lockers: lockers, Callers: 1, Key: measure.Same("r"), Hold: hold, For: 10 * time.Second, Exclusive: true}
				if *quick {
					load.For /= 5
				}
				r, _ := under(b, load, addrs, nil)
				mustExclude(b, r)
				turns := func(of []int) float64 { return float64(measure.Result{Turns: of}.Done()) }
				report(b, map[string]float64{
					"ns/op": 0, "turns-ours": turns(r.Turns[:callers]), "turns-redsync": turns(r.Turns[callers:]), "overlaps": float64(r.Overlaps),
				})
			})
		}
	}
}
