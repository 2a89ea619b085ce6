package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/redlocktest"
)

const scrape = 15 * time.Second

// While a Locker has nothing to do, the gauges follow its masters: those that die, and those that come back. A
// Locker that has never asked does so, too.
func TestIdle(t *testing.T) {
	for _, test := range []struct {
		name string
		used bool
	}{{"a Locker that was used", true}, {"a Locker that was never used", false}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := redlocktest.Start(t, 3)
				l := cluster.Locker()
				if test.used {
					if err := l.Do(t.Context(), "r", nothing); err != nil {
						t.Fatal(err)
					}
				}
				var w telemetry.Watched
				w.Add(l)
				masters := cluster.Masters()
				for _, step := range []struct {
					name   string
					change func()
					up     int
					quorum bool
				}{
					{"all is well", func() {}, 3, true},
					{"two are killed", func() { masters[0].Kill(); masters[1].Kill() }, 1, false},
					{"they are back, and the third hangs", func() { masters[0].Restart(); masters[1].Restart(); masters[2].Hang() }, 2, true},
				} {
					step.change()
					var g telemetry.Gauges
					for range 8 { // two minutes
						g, _ = w.Gauges()
						time.Sleep(scrape)
					}
					up := 0
					for _, m := range g.Masters {
						if m.Asked && m.Up {
							up++
						}
					}
					if up != step.up || g.Quorum != step.quorum {
						t.Errorf("%s: got %d masters up, quorum %v, want %d, %v", step.name, up, g.Quorum, step.up, step.quorum)
					}
				}
			})
		})
	}
}

// The gauge of the quorum tells that no lock can be granted although all masters answer: one of them refuses the
// list of masters of a Locker. It stays well for a Locker that does nothing but renew a lease.
func TestNoneGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, other := redlocktest.Start(t, 3), redlocktest.Start(t, 2)
		l := cluster.Locker()
		if _, err := l.Lock(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		refused, err := redlock.NewFromOptions(append(other.Options(), cluster.Options()[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer refused.Close()
		for _, test := range []struct {
			l      *redlock.Locker
			quorum bool
		}{{l, true}, {refused, false}} {
			var w telemetry.Watched
			w.Add(test.l)
			var g telemetry.Gauges
			for range 4 { // a minute
				g, _ = w.Gauges()
				time.Sleep(scrape)
			}
			if g.Quorum != test.quorum {
				t.Errorf("got %v, want %v", g.Quorum, test.quorum)
			}
		}
	})
}

// Masters that do not answer for a moment are no outage until the next scrape.
func TestLateAtOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.Start(t, 3)
		var w telemetry.Watched
		w.Add(cluster.Locker())
		for range 2 {
			w.Gauges()
			time.Sleep(scrape)
		}
		late := cluster.Masters()[:2]
		for _, m := range late {
			m.Hang()
		}
		w.Gauges() // asks
		time.Sleep(time.Second)
		for _, m := range late {
			m.Heal()
		}
		time.Sleep(scrape)
		if g, _ := w.Gauges(); !g.Quorum {
			t.Error("got no quorum")
		}
	})
}

func nothing(context.Context, *redlock.Lease) error { return nil }

// Several Lockers count together, each once, until it is closed or removed. A master is up if no Locker
// finds it down.
func TestSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.Start(t, 3)
		a, b := cluster.Locker(), cluster.Locker()
		var w telemetry.Watched
		if _, some := w.Gauges(); some {
			t.Error("got gauges of no Locker")
		}
		for _, l := range []*redlock.Locker{a, b, a} {
			w.Add(l)
		}
		reader := redlock.Shared()
		for _, hold := range []struct {
			l        *redlock.Locker
			resource string
			opts     []redlock.LockOption
		}{{a, "r", nil}, {a, "s", []redlock.LockOption{reader}}, {b, "s", []redlock.LockOption{reader}}} {
			if _, err := hold.l.Lock(t.Context(), hold.resource, hold.opts...); err != nil {
				t.Fatal(err)
			}
		}
		go a.Lock(t.Context(), "r")
		synctest.Wait()
		g, some := w.Gauges()
		if !some || g.Leases[redlock.ModeExclusive] != 1 || g.Leases[redlock.ModeShared] != 2 || g.Waiting != 1 || !g.Quorum || len(g.Masters) != 3 {
			t.Errorf("got %+v, %v, want a lease, two of readers, and a call that waits", g, some)
		}
		cluster.Masters()[0].Kill()
		if err := a.Do(t.Context(), "u", nothing); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the others have decided without the first one
		if g, _ = w.Gauges(); g.Masters[0].Up || !g.Masters[1].Up {
			t.Errorf("got %+v, want the first one down", g.Masters)
		}
		_ = b.Close() // with a master down
		if g, some = w.Gauges(); !some || g.Leases[redlock.ModeShared] != 1 {
			t.Errorf("one is closed: got %+v, %v, want its leases gone", g, some)
		}
		if last := w.Remove(a); !last {
			t.Error("got a Locker left")
		}
		if _, some := w.Gauges(); some {
			t.Error("got gauges of no Locker")
		}
	})
}

// A nil Locker is found where it is given, and not by a collection, whose panic would end the program.
func TestNilLocker(t *testing.T) {
	var w telemetry.Watched
	func() {
		defer func() {
			if recover() == nil {
				t.Error("got no panic of Add")
			}
		}()
		w.Add(nil)
	}()
	if _, some := w.Gauges(); some {
		t.Error("got gauges of no Locker")
	}
}
