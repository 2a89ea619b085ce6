package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/redlocktest"
)

// fake is a sink that has the series by name and labels: of a histogram the number of observations.
type fake struct {
	mu     sync.Mutex
	series map[string]float64 // guarded by mu
}

func key(id ID, labels []string) string {
	return strings.Join(append([]string{Table[id].Prometheus}, labels...), " ")
}

func (f *fake) Begin(id ID, labels ...string) { f.add(id, 0, labels) }

func (f *fake) Record(id ID, v float64, labels ...string) {
	if Table[id].Kind == Histogram {
		v = 1
	}
	f.add(id, v, labels)
}

func (f *fake) add(id ID, v float64, labels []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := Table[id].Kind; len(labels) != len(Table[id].Labels) || k != Counter && k != Histogram {
		panic(fmt.Sprintf("got labels %q for %+v", labels, Table[id]))
	}
	f.series[key(id, labels)] += v
}

func newFake() (*fake, *Metrics) {
	f := &fake{series: make(map[string]float64)}
	return f, New(f)
}

// all returns all series, those of gauges, too, once all events have been told.
func all(f *fake, m *Metrics) map[string]float64 {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	got := maps.Clone(f.series)
	for _, s := range m.Gauges() {
		got[key(s.ID, s.Labels)] = s.Value
	}
	return got
}

func want(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, there := got[name]; !there || v != want[name] {
			t.Errorf("%s: got %v (found: %v), want %v", name, v, there, want[name])
		}
	}
}

// Each kind of event has its metric.
func TestEveryEvent(t *testing.T) {
	f, m := newFake()
	none := redlock.ErrNoQuorum
	told := make(map[redlock.EventKind]bool)
	for _, e := range []redlock.Event{
		{Kind: redlock.EventAcquired},
		{Kind: redlock.EventAcquired},
		{Kind: redlock.EventAcquired, HandedOver: true},
		{Kind: redlock.EventTaken, Err: redlock.ErrTaken},
		{Kind: redlock.EventAttemptFailed, Err: none},
		{Kind: redlock.EventNotAcquired, Err: none},
		{Kind: redlock.EventExtended},
		{Kind: redlock.EventExtendFailed, Err: none},
		{Kind: redlock.EventDowngraded},
		{Kind: redlock.EventLost, Err: reason.Expired},
		{Kind: redlock.EventAbandoned},
		{Kind: redlock.EventReleased},
		{Kind: redlock.EventExchange},
		{Kind: redlock.EventExchange, Err: none},
		{Kind: redlock.EventMasterUp},
		{Kind: redlock.EventMasterDown, Err: none},
		{Kind: redlock.EventKeyLost},
		{Kind: redlock.EventQuarantined},
		{Kind: redlock.EventMasterClockStepped},
		{Kind: redlock.EventLocalClockStopped},
		{Kind: redlock.EventWarning},
		{Kind: redlock.EventDropped, Count: 7},
	} {
		told[e.Kind] = true
		e.Master, e.Elapsed = "a", 2*time.Second
		m.observe(e)
	}
	for k := redlock.EventKind(0); !strings.HasPrefix(k.String(), "EventKind("); k++ {
		if !told[k] {
			t.Errorf("%v: was not told", k)
		}
	}
	maps.DeleteFunc(f.series, func(_ string, v float64) bool { return v == 0 })
	want := map[string]float64{
		"attempts_total granted": 2, "attempts_total taken": 1, "attempts_total no_quorum": 1, "handovers_total": 1,
		"wait_seconds granted": 3, "wait_seconds no_quorum": 1, "hold_seconds": 2,
		"validity_seconds grant": 3, "validity_seconds renewal": 1, "validity_seconds failure": 1,
		"renewals_total renewed": 1, "renewals_total no_quorum": 1, "losses_total expired": 1, "abandoned_total": 1,
		"master_latency_seconds a answered": 1, "master_latency_seconds a no_quorum": 1, "master_failures_total a no_quorum": 1,
		"master_forgets_total a": 1, "master_quarantines_total a": 1, "master_clock_steps_total a": 1, "master_warnings_total a": 1,
		"clock_standstill_seconds_total": 2, "events_dropped_total": 7,
	}
	if !maps.Equal(f.series, want) {
		t.Errorf("got %v, want %v", f.series, want)
	}
}

// Before the first event, each counter is 0 for each outcome that an alert asks for, those of a master once New has made
// a Locker.
func TestZeros(t *testing.T) {
	f, m := newFake()
	l, err := redlock.New([]string{"127.0.0.1:1"}, m.Option()) // asks nothing
	locktest.Must(t, err)
	defer l.Close()
	zero := make(map[string]float64)
	for _, word := range append(Words(OfAttempt), Granted) {
		zero["attempts_total "+word] = 0
	}
	for _, word := range append(Words(OfAttempt|OfLease), Renewed) {
		zero["renewals_total "+word] = 0
	}
	for _, word := range Words(OfLease) {
		zero["losses_total "+word] = 0
	}
	for _, word := range Words(OfMaster) {
		zero["master_failures_total 127.0.0.1:1 "+word] = 0
	}
	for _, row := range Table {
		if row.Kind == Counter && len(row.Labels) == 0 {
			zero[row.Prometheus] = 0
		}
		if row.Kind == Counter && slices.Equal(row.Labels, []string{Master}) {
			zero[row.Prometheus+" 127.0.0.1:1"] = 0
		}
	}
	want(t, f.series, zero)
	m.observe(redlock.Event{Kind: redlock.EventAttemptFailed, Err: redlock.ErrNoQuorum})
	want(t, f.series, map[string]float64{"attempts_total no_quorum": 1})
}

// One option gives all metrics. They show what happens, step by step, and no label has a value that is not bounded.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFake()
		want := func(series map[string]float64) { t.Helper(); want(t, all(f, m), series) }
		cluster := redlocktest.Start(t, 3)
		masters := cluster.Masters()
		at := func(i int) string { return masters[i].Addr() }
		l := cluster.Locker(m.Option(), redlock.WithoutRenewal())
		lock := func(name string) *redlock.Lease {
			t.Helper()
			return locktest.Lock(t, l, name)
		}
		lease := lock("r")
		want(map[string]float64{
			"attempts_total granted": 1, "wait_seconds granted": 1, "validity_seconds grant": 1, "leases exclusive": 1, "leases shared": 0,
			"hold_seconds": 0, "master_up " + at(0): 1, "master_up " + at(1): 1, "master_up " + at(2): 1,
		})
		locktest.Must(t, lease.Extend(t.Context()))
		want(map[string]float64{"renewals_total renewed": 1, "validity_seconds renewal": 1})
		if _, err := l.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
			t.Fatalf("got %v, want ErrTaken", err)
		}
		want(map[string]float64{"wait_seconds taken": 1, "attempts_total taken": 1})

		next := make(chan *redlock.Lease)
		go func() { next <- locktest.Lock(t, l, "r") }()
		want(map[string]float64{"waiting_calls": 1, "quorum": 1})
		locktest.Must(t, lease.Unlock(t.Context()))
		heir := <-next
		want(map[string]float64{"handovers_total": 1, "attempts_total granted": 1, "wait_seconds granted": 2, "leases exclusive": 1, "hold_seconds": 1})
		locktest.Must(t, heir.Unlock(t.Context()))
		want(map[string]float64{"leases exclusive": 0, "hold_seconds": 2})

		lease = lock("r2")
		masters[2].Kill()
		masters[1].Kill()
		if err := lease.Extend(t.Context()); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Fatalf("got %v, want ErrNoQuorum", err)
		}
		if _, err := l.TryLock(t.Context(), "r3"); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Fatalf("got %v, want ErrNoQuorum", err)
		}
		<-lease.Context().Done()
		want(map[string]float64{
			"master_up " + at(1): 0, "quorum": 0, "renewals_total no_quorum": 1, "validity_seconds failure": 1,
			"attempts_total no_quorum": 1, "losses_total expired": 1, "leases exclusive": 0, "hold_seconds": 3,
			"master_failures_total " + at(1) + " connection": 1,
		})

		masters[1].RestartEmpty()
		masters[2].RestartEmpty()
		lease = lock("r4") // waits until a quorum votes
		time.Sleep(time.Second)
		locktest.Must(t, lease.Extend(t.Context())) // the last master says that it votes, too
		want(map[string]float64{"quorum": 1, "master_up " + at(1): 1, "master_quarantines_total " + at(1): 1, "master_quarantine_seconds " + at(1): 0})
		masters[1].Flush()
		masters[2].Flush()
		if err := lease.Extend(t.Context()); !errors.Is(err, reason.QuorumLost) {
			t.Fatalf("got %v, want QuorumLost", err)
		}
		want(map[string]float64{"losses_total quorum_lost": 1, "master_forgets_total " + at(1): 1, "master_quarantines_total " + at(1): 2})
		if got := all(f, m); got["master_quarantine_seconds "+at(1)] <= 0 {
			t.Errorf("got %v, want a quarantine", got)
		}

		words := []string{Granted, Renewed, Answered, "grant", "renewal", "failure", "exclusive", "shared", at(0), at(1), at(2)}
		for _, o := range Outcomes {
			words = append(words, o.Word)
		}
		for name := range all(f, m) {
			for _, label := range strings.Fields(name)[1:] {
				if !slices.Contains(words, label) {
					t.Errorf("%s: got a label with %q", name, label)
				}
			}
		}
	})
}

// No label has anything that a master has sent, nor the name of a resource or a password.
func TestPrinted(t *testing.T) {
	for name, lie := range locktest.Lies() {
		if lie.Step != "" && lie.Step != "auth" && lie.Step != "requests" {
			continue // the test of the library has all steps
		}
		masters, addrs := locktest.Hostile(t, 1)
		masters[0].Tell(lie)
		f, m := newFake()
		l, err := redlock.New([]string{"redis://default:" + locktest.Secret + "@" + addrs[0]}, m.Option(), redlock.WithLogger(nil))
		locktest.Must(t, err)
		if _, err := l.TryLock(t.Context(), locktest.Mark); err == nil {
			t.Errorf("%s: got a lease", name)
		}
		gauges := m.Gauges()
		locktest.Must(t, l.Close())
		text := fmt.Sprint(slices.Collect(maps.Keys(f.series)), gauges)
		if leak := locktest.Leaks(text); leak != "" || len(gauges) == 0 {
			t.Errorf("%s: the labels %.40q have %s", name, text, leak)
		}
	}
}

const scrape = 15 * time.Second

// scrapes collects n times, and returns the last gauges.
func scrapes(m *Metrics, n int) map[string]float64 {
	var got map[string]float64
	for range n {
		got = all(&fake{series: make(map[string]float64)}, m)
		time.Sleep(scrape)
	}
	return got
}

// While a Locker has nothing to do, the gauges follow its masters: those that die, and those that come back. A
// Locker that has never asked does so, too.
func TestIdle(t *testing.T) {
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprint("used: ", used), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, m := newFake()
				cluster := redlocktest.Start(t, 3)
				l := cluster.Locker(m.Option())
				if used {
					locktest.Must(t, l.Do(t.Context(), "r", nothing))
				}
				masters := cluster.Masters()
				for _, step := range []struct {
					name       string
					change     func()
					up, quorum float64
				}{
					{"all is well", func() {}, 3, 1},
					{"two are killed", func() { masters[0].Kill(); masters[1].Kill() }, 1, 0},
					{"they are back, and the third hangs", func() { masters[0].Restart(); masters[1].Restart(); masters[2].Hang() }, 2, 1},
				} {
					step.change()
					g := scrapes(m, 8)
					up := 0.0
					for _, of := range masters {
						up += g["master_up "+of.Addr()]
					}
					if up != step.up || g["quorum"] != step.quorum {
						t.Errorf("%s: got %v masters up, quorum %v, want %v, %v", step.name, up, g["quorum"], step.up, step.quorum)
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
		_, well := newFake()
		locktest.Lock(t, cluster.Locker(well.Option()), "r")
		_, bad := newFake()
		refused, err := redlock.NewFromOptions(append(other.Options(), cluster.Options()[0]), bad.Option())
		locktest.Must(t, err)
		defer refused.Close()
		for m, quorum := range map[*Metrics]float64{well: 1, bad: 0} {
			want(t, scrapes(m, 4), map[string]float64{"quorum": quorum})
		}
	})
}

// Masters that do not answer for a moment are no outage until the next scrape.
func TestLateAtOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m := newFake()
		cluster := redlocktest.Start(t, 3)
		cluster.Locker(m.Option())
		scrapes(m, 2)
		late := cluster.Masters()[:2]
		for _, m := range late {
			m.Hang()
		}
		m.Gauges() // asks
		time.Sleep(time.Second)
		for _, m := range late {
			m.Heal()
		}
		time.Sleep(scrape)
		want(t, scrapes(m, 1), map[string]float64{"quorum": 1})
	})
}

func nothing(context.Context, *redlock.Lease) error { return nil }

// Several Lockers count together, until each is closed. A master is up if no Locker finds it down. An observer that
// blocks delays no gauge.
func TestSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFake()
		if got := m.Gauges(); got != nil {
			t.Errorf("got gauges of no Locker: %v", got)
		}
		cluster := redlocktest.Start(t, 3)
		hold := make(chan struct{})
		a, b := cluster.Locker(redlock.WithObserver(func(redlock.Event) { <-hold }), m.Option()), cluster.Locker(m.Option())
		locktest.Lock(t, a, "r")
		locktest.Lock(t, a, "s", redlock.Shared())
		locktest.Lock(t, b, "s", redlock.Shared())
		go a.Lock(t.Context(), "r")
		want(t, all(f, m), map[string]float64{"leases exclusive": 1, "leases shared": 2, "waiting_calls": 1, "quorum": 1})
		close(hold)
		masters := cluster.Masters()
		masters[0].Kill()
		locktest.Must(t, a.Do(t.Context(), "u", nothing))
		time.Sleep(time.Second) // the others have decided without the first one
		want(t, all(f, m), map[string]float64{"master_up " + masters[0].Addr(): 0, "master_up " + masters[1].Addr(): 1})
		_ = b.Close() // with a master down
		want(t, all(f, m), map[string]float64{"leases shared": 1})
		_ = a.Close()
		if got := m.Gauges(); got != nil {
			t.Errorf("got gauges of closed Lockers: %v", got)
		}
	})
}

// Whether a process leads is a gauge of each election in which a Locker of these metrics campaigns.
func TestElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFake()
		cluster := redlocktest.Start(t, 3)
		campaign := func(l *redlock.Locker) (*election.Elector, context.CancelFunc) {
			e, err := election.New(l, "e\xff")
			locktest.Must(t, err)
			ctx, stop := context.WithCancel(t.Context())
			go e.Run(ctx, func(ctx context.Context, _ *redlock.Lease) error { <-ctx.Done(); return nil })
			time.Sleep(time.Second)
			return e, stop
		}
		leader, stop := campaign(cluster.Locker(m.Option()))
		want(t, all(f, m), map[string]float64{`leader e\xff`: 1})
		_, stopOther := campaign(cluster.Locker()) // of no metrics
		leader.Resign()
		time.Sleep(time.Minute)
		want(t, all(f, m), map[string]float64{`leader e\xff`: 0})
		stop()
		stopOther()
		if _, there := all(f, m)[`leader e\xff`]; there {
			t.Error("got a gauge of an election in which no Locker campaigns")
		}
	})
}
