package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
)

var (
	schedules = flag.Int("schedules", 40, "how many schedules TestVirtualSchedules tries")
	luaShare  = flag.Int("lua", 10, "one schedule of so many has nodes that run the Lua scripts, not their twins in Go; 0: none")
)

// inBubble starts a run on fakes, in virtual time. What is left when f returns is ended.
func inBubble(t *testing.T, lua bool, f func(t *testing.T, r *Run)) *Run {
	t.Helper()
	var r *Run
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		now := func() time.Duration { return time.Since(began) + time.Second }
		c := StartVirtual(5, now, lua)
		var err error
		if r, err = NewRun(t.Context(), c, testTTL, now, virtualClock); err != nil {
			t.Fatal(err)
		}
		f(t, r)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

var virtualClock = redlock.WithClock(redlock.RuntimeClock())

// Every fault that a fake can have, in mid-lease.
func TestVirtualFaults(t *testing.T) {
	for _, f := range FaultsOf(Virtual) {
		t.Run(strings.ReplaceAll(f.Name, ",", ""), func(t *testing.T) {
			r := inBubble(t, true, func(t *testing.T, r *Run) {
				inflict(t, r, f)
				time.Sleep(r.Rules().Settled)
				r.Settle(12 * time.Second)
			})
			check(t, r)
			t.Log(Measure(r.History))
		})
	}
}

// played is how a schedule is played: on nodes that run the Lua scripts, and by clients
// without the restart guard.
type played struct{ lua, unguarded bool }

// play has three clients at work while a schedule is carried out, in virtual time, and
// returns what is wrong with what they saw.
func play(t *testing.T, p Plan, s Schedule, seed uint64, how played) (*Run, []history.Violation) {
	r := inBubble(t, how.lua, func(t *testing.T, r *Run) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var g sync.WaitGroup
		var clients []*Client
		for i := range 3 {
			conf := r.config(fmt.Sprint("client ", i), map[string]int{"hot": 1, "long": 1, "line": 1, "rival": 1})
			conf.Seed, conf.Unsafe = seed+uint64(i), how.unguarded
			c, err := r.Client(conf, virtualClock)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
			g.Go(func() { c.calmly(ctx, 250*time.Millisecond) })
		}
		g.Go(func() { r.Watch(ctx, 50*time.Millisecond, seed) })
		n := &Nemesis{Plan: p, Nodes: r.Cluster.Nodes(), Now: r.Now}
		faults, err := n.Run(ctx, s)
		if err != nil {
			t.Error(err)
		}
		r.History.Faults, r.History.Healed = faults, r.Now()
		time.Sleep(2 * time.Second) // who waits is served
		stop()
		g.Wait()
		for _, c := range clients {
			_ = c.Close()
		}
		time.Sleep(r.Rules().Settled)
		r.Settle(15 * time.Second)
	})
	return r, r.History.Check(r.Rules())
}

// Random schedules of faults in virtual time, each with its own seed: thousands of them
// where there is time for it. As many are played at a time as there are processors.
//
// Source: ALGORITHM section 13; SCENARIOS row 65 and the targets.
func TestVirtualSchedules(t *testing.T) {
	n := *schedules
	if testing.Short() {
		n = min(n, 20)
	}
	first := anySeed()
	var next, lua, operations, faults, failed atomic.Int64
	began := time.Now()
	t.Run("at a time", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < int64(n) && failed.Load() < 10; i = next.Add(1) - 1 {
					seed := first + uint64(i)
					how := played{lua: *luaShare > 0 && i%int64(*luaShare) == 0}
					p := Plan{Tier: Virtual, Nodes: 5, TTL: testTTL, During: 5 * time.Second}
					s := p.Make(seed)
					r, found := play(t, p, s, seed, how)
					operations.Add(int64(Measure(r.History).Operations))
					faults.Add(int64(len(r.History.Faults)))
					repeat := fmt.Sprintf("go test ./chaos -run TestVirtualSchedules -schedules 1 -seed %d -lua 0", seed)
					if how.lua {
						lua.Add(1)
						repeat = strings.TrimSuffix(repeat, "0") + "1"
					}
					if len(found) > 0 {
						failed.Add(1)
						t.Errorf("%v\nrepeat with: %s\nschedule %v", found, repeat, s)
						keep(t, r, found)
					}
				}
			})
		}
	})
	t.Logf("%d schedules from seed %d, %d of them with Lua, %d operations, %d faults in %v, %d with violations",
		min(next.Load(), int64(n)), first, lua.Load(), operations.Load(), faults.Load(), time.Since(began).Round(time.Second), failed.Load())
}

// steps draws a schedule for rapid, which makes it smaller when it fails.
func steps(rt *rapid.T, p Plan, faults []Fault) (s Schedule) {
	one := rapid.Custom(func(rt *rapid.T) Step {
		return Step{
			At:    time.Duration(rapid.IntRange(0, 20).Draw(rt, "at")) * 50 * time.Millisecond,
			For:   time.Duration(rapid.IntRange(1, 20).Draw(rt, "for")) * 50 * time.Millisecond,
			Fault: faults[rapid.IntRange(0, len(faults)-1).Draw(rt, "fault")].Name,
			Node:  rapid.IntRange(0, p.Nodes-1).Draw(rt, "node"),
		}
	})
	return rapid.SliceOfN(one, 0, 12).Draw(rt, "schedule")
}

// verdict is a test for rapid that must not fail this one.
type verdict struct {
	testing.TB
	failed bool
	said   []string
}

func (v *verdict) Fatalf(format string, args ...any) { v.Errorf(format, args...); panic(v) }
func (v *verdict) Errorf(format string, args ...any) {
	v.failed = true
	v.said = append(v.said, fmt.Sprintf(format, args...))
}
func (v *verdict) Fatal(args ...any)        { v.Fatalf("%s", fmt.Sprint(args...)) }
func (v *verdict) FailNow()                 { v.failed = true; panic(v) }
func (v *verdict) Fail()                    { v.failed = true }
func (v *verdict) Failed() bool             { return v.failed }
func (v *verdict) Log(args ...any)          { v.said = append(v.said, fmt.Sprint(args...)) }
func (v *verdict) Logf(f string, as ...any) { v.said = append(v.said, fmt.Sprintf(f, as...)) }

// A schedule that fails is made as small as can be. As nothing fails with the library as
// it is, this is without the restart guard: what is left in the end is a restart or two.
//
// Source: ALGORITHM section 13, "Negative controls": guard off.
func TestVirtualShrinks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	p := Plan{Tier: Virtual, Nodes: 5, TTL: testTTL, During: 2 * time.Second, Havoc: true}
	var faults []Fault
	for _, f := range FaultsOf(Virtual) {
		if f.Name == "SIGKILL, then restart empty" || f.Name == "FLUSHALL" || f.Name == "latency" {
			faults = append(faults, f)
		}
	}
	var first, smallest Schedule
	try := func(unguarded bool) *verdict {
		v := &verdict{TB: t}
		func() {
			defer func() {
				if p := recover(); p != nil && p != any(v) {
					panic(p)
				}
			}()
			rapid.Check(v, func(rt *rapid.T) {
				s := steps(rt, p, faults)
				_, found := play(t, p, s, 1, played{unguarded: unguarded})
				for _, f := range found {
					if f.Rule == "I1" {
						if first == nil {
							first = s
						}
						smallest = s
						rt.Fatalf("two holders")
					}
				}
			})
		}()
		return v
	}
	setRapid(t, "rapid.checks", "30")
	setRapid(t, "rapid.shrinktime", "8s")
	setRapid(t, "rapid.nofailfile", "true")
	setRapid(t, "rapid.seed", fmt.Sprint(1+rand.Uint64N(1000)))
	if v := try(true); !v.failed {
		t.Error("without the guard no schedule led to two holders")
	}
	if len(smallest) == 0 || len(smallest) > len(first) {
		t.Errorf("got a schedule of %d steps out of one of %d, want it made smaller", len(smallest), len(first))
	}
	t.Logf("two holders by %d steps out of %d: %v", len(smallest), len(first), smallest)
	if _, found := play(t, p, smallest, 1, played{}); len(found) > 0 {
		for _, v := range found {
			if v.Rule == "I1" {
				t.Errorf("with the guard: %v", v)
			}
		}
	}
}

func setRapid(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	old := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(old) })
}
