package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

var quick = flag.Bool("quick", false, "benchmarks have one round, and shorter slices: to see that they work")

// grace is how long a call may take after its slice.
const grace = 3 * time.Second

func TestMain(m *testing.M) {
	logging.Disable() // go test writes logs into the lines of the results
	slog.SetDefault(slog.New(slog.DiscardHandler))
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		describe()
	}
	goleak.VerifyTestMain(redistest.Again(m))
}

// describe prints what go test does not say about the machine and the software, in lines that the Go
// benchmark format has for that.
func describe() {
	say := func(key, value string) {
		if value != "" {
			fmt.Printf("%s: %s\n", key, value)
		}
	}
	said := func(name string, args ...string) string { // "" if there is no such command
		out, _ := exec.Command(name, args...).Output()
		return strings.TrimSpace(string(out))
	}
	say("cores", fmt.Sprint(runtime.NumCPU()))
	say("kernel", said("uname", "-sr"))
	say("go", strings.TrimPrefix(runtime.Version(), "go"))
	say("commit", said("git", "rev-parse", "--short", "HEAD"))
	if server, err := masters.LookPath(); err == nil { // "Redis server v=7.0.15 sha=..."
		name, rest, _ := strings.Cut(said(server, "--version"), " server v=")
		version, _, _ := strings.Cut(rest, " ")
		say("server", name+" "+version)
	}
	say("redsync", said("go", "list", "-m", "-f", "{{.Version}}", "github.com/go-redsync/redsync/v4"))
	say("redislock", said("go", "list", "-m", "-f", "{{.Version}}", "github.com/bsm/redislock"))
	say("rueidislock", said("go", "list", "-m", "-f", "{{.Version}}", "github.com/redis/rueidis")) // of the same version
	say("go-redis", said("go", "list", "-m", "-f", "{{.Version}}", "github.com/redis/go-redis/v9"))
	if *quick {
		say("quick", "yes")
	}
}

// rounds lets contenders take turns, in each round in another order: the speed of a machine changes
// within a second, so only what follows each other at once can be compared. Quick runs have one round.
func rounds(b *testing.B, many int, all []contender.Contender, one func(*testing.B, contender.Contender)) {
	if *quick {
		many = 1
	}
	all = slices.Clone(all)
	for round := range many {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, c := range all {
			b.Run(fmt.Sprintf("round=%d/who=%s", round+1, c.Name), func(b *testing.B) { one(b, c) })
		}
	}
}

// dial connects a contender to those of some masters that it uses. It is closed when the test ends.
func dial(tb testing.TB, c contender.Contender, masters []string) contender.Locker {
	tb.Helper()
	l, err := c.Dial(tb.Context(), c.On(masters))
	must(tb, err)
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("close %s: %v", c.Name, err)
		}
	})
	return l
}

// dials connects the contender as so many processes do.
func dials(tb testing.TB, c contender.Contender, masters []string, many int) []contender.Locker {
	tb.Helper()
	lockers := make([]contender.Locker, many)
	for i := range lockers {
		lockers[i] = dial(tb, c, masters)
	}
	return lockers
}

// under runs a load, and returns what it cost the masters. A benchmark runs it once, for b.N times its time.
func under(b *testing.B, load measure.Load, masters, sends []string) (r measure.Result, used measure.Usage) {
	b.Helper()
	servers, err := measure.NewServers(b.Context(), masters)
	must(b, err)
	defer servers.Close()
	load.For *= time.Duration(b.N)
	used, err = servers.During(b.Context(), sends, func() {
		b.ResetTimer()
		r = load.Run(b.Context())
		b.StopTimer()
	})
	must(b, err)
	b.ReportMetric(float64(r.Failed), "failed")
	if r.Failed > 0 {
		b.Logf("%d calls failed, for example with: %v", r.Failed, r.Err)
	}
	return r, used
}

// report reports metrics by unit.
func report(b *testing.B, metrics map[string]float64) {
	for unit, v := range metrics {
		b.ReportMetric(v, unit)
	}
}

// costs are the metrics of what a turn costs.
func costs(r measure.Result, used measure.Usage) map[string]float64 {
	turns := float64(max(1, r.Done())) // a contender may have had no turn
	return map[string]float64{
		"ns/op":      float64(r.Took.Nanoseconds()) / turns,
		"turns/s":    r.Rate(),
		"client-us":  measure.Micros(r.CPU) / turns,
		"allocs":     float64(r.Mallocs) / turns,
		"masters-us": measure.Micros(used.CPU) / turns,
		"commands":   float64(used.Commands) / turns,
		"sent-B":     float64(used.Bytes) / turns,
	}
}

// warm makes turns on free keys, so that each Locker is connected.
func warm(b *testing.B, turns, callers int, lockers ...contender.Locker) {
	b.Helper()
	for _, l := range lockers {
		r := measure.Load{
			Lockers: []contender.Locker{l}, Callers: callers, Key: measure.Own("warm"), Turns: turns, For: time.Minute, Grace: grace,
		}.Run(context.Background())
		if r.Done() == 0 {
			b.Fatal(r.Err)
		}
	}
}

// newLocker returns a Locker of this library, whose masters have their votes.
func newLocker(tb testing.TB, masters []string, opts ...redlock.Option) *redlock.Locker {
	tb.Helper()
	l, err := redlock.New(masters, opts...)
	must(tb, err)
	tb.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
			tb.Errorf("close: %v", err)
		}
	})
	redistest.Eventually(tb, 20*time.Second, func() bool { return admin.Bootstrap(tb.Context(), l) == nil }, "the masters, which are new, have their votes")
	return l
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
