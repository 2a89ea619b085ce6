package redlockprom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/redlockprom"
)

const ttl = 3 * time.Second

// scene is a Locker with masters of its own, behind proxies. Its metrics can be scraped.
type scene struct {
	t       *testing.T
	procs   []*masters.Process
	proxies []*masters.Proxy
	addrs   []string
	locker  *redlock.Locker
	metrics *redlockprom.Metrics
	url     string

	mu   sync.Mutex
	told map[redlock.EventKind]int // guarded by mu; events by kind, as a second observer gets them
}

func newScene(t *testing.T, n int) *scene {
	t.Helper()
	s := &scene{t: t, procs: redistest.Masters(t, n), metrics: redlockprom.New(), told: make(map[redlock.EventKind]int)}
	s.proxies = redistest.Proxied(t, s.procs)
	s.addrs = redistest.Addrs(s.proxies)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s.metrics)
	server := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	s.url = server.URL
	s.locker = s.open(redlock.WithObserver(s.metrics.Observer()), redlock.WithObserver(s.counter()))
	s.metrics.Watch(s.locker)
	redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), s.locker) == nil }, "the masters vote")
	redistest.Eventually(t, 20*time.Second, func() bool {
		v := s.scrape()
		return !slices.ContainsFunc(s.addrs, func(addr string) bool {
			left, known := v[master("master_quarantine_seconds", addr)]
			return !known || left > 0
		})
	}, "as the metrics have it, too")
	return s
}

func (s *scene) open(opts ...redlock.Option) *redlock.Locker {
	s.t.Helper()
	opts = append(opts, redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl/4), redlock.WithoutRenewal(), redlock.WithLogger(nil))
	l, err := redlock.New(s.addrs, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Close() }) // some tests leave no master to confirm a release
	return l
}

// counter returns the second observer.
func (s *scene) counter() redlock.Observer {
	return func(e redlock.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told[e.Kind]++
	}
}

func (s *scene) lock(resource string) *redlock.Lease {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	le, err := s.locker.Lock(ctx, resource)
	if err != nil {
		s.t.Fatal(err)
	}
	return le
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// families returns the result of a scrape.
func (s *scene) families() map[string]*dto.MetricFamily {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url, nil)
	s.must(err)
	res, err := http.DefaultClient.Do(req)
	s.must(err)
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(res.Body)
	s.must(err)
	return found
}

// scrape returns the series of a scrape.
func (s *scene) scrape() map[string]float64 {
	s.t.Helper()
	return series(slices.Collect(maps.Values(s.families())))
}

// series returns each series with its value, for histograms the number of observations.
func series(families []*dto.MetricFamily) map[string]float64 {
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			key := strings.TrimPrefix(f.GetName(), "redlock_")
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// want waits until the values are as wanted: events are delivered a moment after they happen.
func (s *scene) want(want map[string]float64) {
	s.t.Helper()
	var got map[string]float64
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got = s.scrape()
		same := true
		for key, v := range want {
			value, there := got[key]
			same = same && there && value == v
		}
		if same {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if v, there := got[key]; !there || v != want[key] {
			s.t.Errorf("%s: got %v (found: %v), want %v", key, v, there, want[key])
		}
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// A scrape shows what has happened, step by step.
func TestMetrics(t *testing.T) {
	t.Parallel() // it waits for the end of a lease and a quarantine
	s := newScene(t, 3)
	s.want(map[string]float64{
		`attempts_total{outcome="granted"}`: 0, `attempts_total{outcome="no_quorum"}`: 0, `attempts_total{outcome="split_vote"}`: 0,
		`losses_total{cause="expired"}`: 0, `losses_total{cause="suspended"}`: 0, `losses_total{cause="quorum_lost"}`: 0, `losses_total{cause="broken"}`: 0, `losses_total{cause="max_hold"}`: 0,
		`renewals_total{outcome="renewed"}`: 0, `leases{mode="exclusive"}`: 0, `handovers_total`: 0, `events_dropped_total`: 0,
	})

	lease := s.lock("r")
	s.want(map[string]float64{
		`leases{mode="shared"}`:             0,
		`attempts_total{outcome="granted"}`: 1, `wait_seconds{outcome="granted"}`: 1, `validity_seconds{at="grant"}`: 1, `leases{mode="exclusive"}`: 1, `hold_seconds`: 0,
		master("master_up", s.addrs[0]): 1, master("master_up", s.addrs[1]): 1, master("master_up", s.addrs[2]): 1,
	})
	s.must(lease.Extend(t.Context()))
	s.want(map[string]float64{`renewals_total{outcome="renewed"}`: 1, `validity_seconds{at="renewal"}`: 1})

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.locker.Lock(ctx, "r"); !errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("got %v, want ErrTaken", err)
	}
	s.want(map[string]float64{`wait_seconds{outcome="taken"}`: 1, `attempts_total{outcome="taken"}`: 0}) // without an attempt

	next := make(chan *redlock.Lease)
	go func() {
		le, err := s.locker.Lock(t.Context(), "r")
		if err != nil {
			t.Error(err)
		}
		next <- le
	}()
	redistest.Eventually(t, 10*time.Second, func() bool { return s.locker.Stats().Waiting == 1 }, "another caller waits")
	s.metrics.Watch(s.locker) // once more
	s.want(map[string]float64{`waiting_calls`: 1, `quorum`: 1})
	s.must(lease.Unlock(t.Context()))
	heir := <-next
	s.want(map[string]float64{`handovers_total`: 1, `attempts_total{outcome="granted"}`: 1, `wait_seconds{outcome="granted"}`: 2, `leases{mode="exclusive"}`: 1, `hold_seconds`: 1})
	s.must(heir.Unlock(t.Context()))
	s.want(map[string]float64{`leases{mode="exclusive"}`: 0, `hold_seconds`: 2})

	// Two other holders have a master each, and the third master is slow.
	for i, name := range []string{"a", "b"} {
		s.must(redistest.Client(t, s.procs[i].Addr()).Set(t.Context(), "redlock:split", name+"|6400", time.Minute).Err())
		s.proxies[i].Latency(0, 100*time.Millisecond)
	}
	redistest.Eventually(t, 10*time.Second, func() bool { // repeated, as a busy machine may make the third master even slower
		_, err := s.locker.TryLock(t.Context(), "split")
		if redlock.Reason(err) == "split_vote" {
			return true
		}
		time.Sleep(ttl / 10) // for the releases, which would delay the next try
		return false
	}, "votes are split")
	s.want(map[string]float64{`attempts_total{outcome="split_vote"}`: 1, `wait_seconds{outcome="split_vote"}`: 1})
	s.proxies[0].Latency(0, 0)
	s.proxies[1].Latency(0, 0)

	// A master dies under a lease; then comes another lease.
	lease = s.lock("r2")
	s.want(map[string]float64{`leases{mode="exclusive"}`: 1})
	before := s.scrape()[`attempts_total{outcome="no_quorum"}`] // attempts that were too slow
	s.must(s.procs[2].Kill())
	s.proxies[2].ResetAll()
	s.must(lease.Extend(t.Context()))
	s.want(map[string]float64{master("master_up", s.addrs[2]): 0, `renewals_total{outcome="renewed"}`: 2, `losses_total{cause="expired"}`: 0})
	s.must(s.procs[1].Kill())
	s.proxies[1].ResetAll()
	if err := lease.Extend(t.Context()); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("got %v, want ErrNoQuorum", err)
	}
	if _, err := s.locker.TryLock(t.Context(), "r3"); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("got %v, want ErrNoQuorum", err)
	}
	<-lease.Context().Done()
	s.want(map[string]float64{
		master("master_up", s.addrs[1]): 0, `quorum`: 0, `renewals_total{outcome="no_quorum"}`: 1, `validity_seconds{at="failure"}`: 1,
		`attempts_total{outcome="no_quorum"}`: before + 1, `losses_total{cause="expired"}`: 1, `leases{mode="exclusive"}`: 0, `hold_seconds`: 3,
	})

	// The masters come back without their data, both at a time: each has its quarantine when the other is up.
	var back sync.WaitGroup
	for _, p := range s.procs[1:] {
		back.Go(func() {
			if err := p.Restart(); err != nil {
				t.Error(err)
			}
		})
	}
	back.Wait()
	redistest.Eventually(t, 10*time.Second, func() bool {
		_, err := s.locker.TryLock(t.Context(), "r4")
		v := s.scrape()
		return errors.Is(err, redlock.ErrQuarantine) && v[master("master_up", s.addrs[1])] == 1 && v[master("master_quarantine_seconds", s.addrs[1])] > 0
	}, "a master is up again, in quarantine")
	lease = s.lock("r5") // waits until the masters have their votes
	redistest.Eventually(t, 10*time.Second, func() bool {
		v := s.scrape()
		return v[master("master_quarantine_seconds", s.addrs[1])]+v[master("master_quarantine_seconds", s.addrs[2])] == 0
	}, "they vote again")

	// Keys vanish behind the holder's back.
	redistest.Eventually(t, 10*time.Second, func() bool { // on all masters, or there may be nothing to lose
		return lease.Extend(t.Context()) == nil && len(s.holding("redlock:r5")) == 3
	}, "all masters have the key")
	for _, p := range s.procs[:2] {
		s.must(redistest.Client(t, p.Addr()).Del(t.Context(), "redlock:r5").Err())
	}
	redistest.Eventually(t, 10*time.Second, func() bool { // a busy machine may need a second round
		return errors.Is(lease.Extend(t.Context()), reason.QuorumLost)
	}, "the lease is lost")
	s.want(map[string]float64{`losses_total{cause="quorum_lost"}`: 1, `leases{mode="exclusive"}`: 0, master("master_forgets_total", s.addrs[0]): 1})

	s.must(s.locker.Close())
	got := s.scrape()
	for series, kinds := range map[string][]redlock.EventKind{
		"attempts_total":                 {redlock.EventTaken, redlock.EventAttemptFailed},
		"wait_seconds":                   {redlock.EventNotAcquired},
		`validity_seconds{at="renewal"}`: {redlock.EventExtended},
		`validity_seconds{at="failure"}`: {redlock.EventExtendFailed},
		`validity_seconds{at="grant"}`:   {redlock.EventAcquired},
		"losses_total":                   {redlock.EventLost},
		"hold_seconds":                   {redlock.EventLost, redlock.EventReleased},
		"master_latency_seconds":         {redlock.EventExchange},
		"master_failures_total":          {redlock.EventMasterDown},
		"master_quarantines_total":       {redlock.EventQuarantined},
		"master_forgets_total":           {redlock.EventKeyLost},
		"master_warnings_total":          {redlock.EventWarning},
	} {
		total := 0.0
		for key, v := range got {
			if strings.HasPrefix(key, series) && !strings.Contains(key, `"granted"`) {
				total += v
			}
		}
		if want := s.count(kinds...); total != want {
			t.Errorf("%s: got %v, want %v", series, total, want)
		}
	}
	s.wantBounded()
}

func master(metric, addr string) string { return fmt.Sprintf("%s{master=%q}", metric, addr) }

func (s *scene) count(kinds ...redlock.EventKind) (total float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		total += float64(s.told[k])
	}
	return total
}

// holding returns the masters that have a key.
func (s *scene) holding(key string) (list []int) {
	for i, p := range s.procs {
		if redistest.Client(s.t, p.Addr()).Exists(s.t.Context(), key).Val() == 1 {
			list = append(list, i)
		}
	}
	return list
}

// wantBounded checks that no label has unbounded values, and runs the linter.
func (s *scene) wantBounded() {
	s.t.Helper()
	for name, f := range s.families() {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				switch v := l.GetValue(); l.GetName() {
				case "master":
					if !slices.Contains(s.addrs, v) {
						s.t.Errorf("%s: got master %q, want one of %q", name, v, s.addrs)
					}
				case "outcome", "cause", "reason", "at", "mode":
					if strings.Trim(v, "abcdefghijklmnopqrstuvwxyz_") != "" || v == "other" && m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()) > 0 {
						s.t.Errorf("%s: got %s %q, want a word", name, l.GetName(), v)
					}
				default:
					s.t.Errorf("%s: got label %q=%q, want none like that", name, l.GetName(), v)
				}
			}
		}
	}
	problems, err := testutil.CollectAndLint(s.metrics)
	s.must(err)
	for _, p := range problems {
		s.t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Each kind of event has its metric.
func TestEveryEvent(t *testing.T) {
	m := redlockprom.New()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	told := make(map[redlock.EventKind]bool)
	tell := func(k redlock.EventKind, e redlock.Event) {
		told[k] = true
		e.Kind, e.Elapsed, e.Master = k, 2*time.Second, "a"
		if e.Mode == "" {
			e.Mode = redlock.ModeExclusive
		}
		m.Observer()(e)
	}
	tell(redlock.EventAcquired, redlock.Event{})
	tell(redlock.EventAcquired, redlock.Event{})
	tell(redlock.EventAcquired, redlock.Event{HandedOver: true})
	tell(redlock.EventTaken, redlock.Event{Err: redlock.ErrTaken})
	tell(redlock.EventAttemptFailed, redlock.Event{Err: redlock.ErrNoQuorum})
	tell(redlock.EventNotAcquired, redlock.Event{Err: redlock.ErrNoQuorum})
	tell(redlock.EventExtended, redlock.Event{})
	tell(redlock.EventExtendFailed, redlock.Event{Err: redlock.ErrNoQuorum})
	tell(redlock.EventDowngraded, redlock.Event{Mode: redlock.ModeShared})
	tell(redlock.EventLost, redlock.Event{Err: reason.Expired})
	tell(redlock.EventAbandoned, redlock.Event{})
	tell(redlock.EventReleased, redlock.Event{})
	tell(redlock.EventExchange, redlock.Event{})
	tell(redlock.EventExchange, redlock.Event{Err: redlock.ErrNoQuorum})
	tell(redlock.EventMasterUp, redlock.Event{})
	tell(redlock.EventMasterDown, redlock.Event{Err: redlock.ErrNoQuorum})
	tell(redlock.EventKeyLost, redlock.Event{})
	tell(redlock.EventQuarantined, redlock.Event{})
	tell(redlock.EventMasterClockStepped, redlock.Event{})
	tell(redlock.EventLocalClockStopped, redlock.Event{})
	tell(redlock.EventWarning, redlock.Event{})
	tell(redlock.EventDropped, redlock.Event{Count: 7})
	for k := redlock.EventKind(0); !strings.HasPrefix(k.String(), "EventKind("); k++ {
		if !told[k] {
			t.Errorf("%v: was not told", k)
		}
	}
	got := gathered(t, reg)
	maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
	const at = `{master="a"}`
	want := map[string]float64{
		`attempts_total{outcome="granted"}`: 2, `attempts_total{outcome="taken"}`: 1, `attempts_total{outcome="no_quorum"}`: 1,
		`handovers_total`:                 1,
		`wait_seconds{outcome="granted"}`: 3, `wait_seconds{outcome="no_quorum"}`: 1, `hold_seconds`: 2,
		`validity_seconds{at="grant"}`: 3, `validity_seconds{at="renewal"}`: 1, `validity_seconds{at="failure"}`: 1,
		`renewals_total{outcome="renewed"}`: 1, `renewals_total{outcome="no_quorum"}`: 1, `losses_total{cause="expired"}`: 1, `abandoned_total`: 1,
		`master_latency_seconds{master="a",outcome="answered"}`: 1, `master_latency_seconds{master="a",outcome="no_quorum"}`: 1,
		`master_failures_total{master="a",reason="no_quorum"}`: 1, `master_forgets_total` + at: 1, `master_quarantines_total` + at: 1,
		`master_clock_steps_total` + at: 1, `master_warnings_total` + at: 1, `clock_standstill_seconds_total`: 2, `events_dropped_total`: 7,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// gathered returns the series of a registry.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return series(families)
}

// The counters that alerts ask for are 0 for each outcome before the first event, those of a master from Watch on.
func TestZeros(t *testing.T) {
	m := redlockprom.New()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	l, err := redlock.New([]string{"127.0.0.1:1"}, redlock.WithLogger(nil)) // asks nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m.Watch(l)
	got := gathered(t, reg)
	has := func(name, label string, words []string, more string) {
		t.Helper()
		for _, word := range words {
			key := fmt.Sprintf("%s{%s%s=%q}", name, more, label, word)
			if v, there := got[key]; !there || v != 0 {
				t.Errorf("%s: got %v (found: %v), want 0", key, v, there)
			}
		}
	}
	has("attempts_total", "outcome", append(telemetry.Words(telemetry.OfAttempt), "granted"), "")
	has("renewals_total", "outcome", append(telemetry.Words(telemetry.OfAttempt|telemetry.OfLease), "renewed"), "")
	has("losses_total", "cause", telemetry.Words(telemetry.OfLease), "")
	const at = `master="127.0.0.1:1"`
	has("master_failures_total", "reason", telemetry.Words(telemetry.OfMaster), at+",")
	for _, name := range []string{"abandoned_total", "handovers_total", "events_dropped_total", "clock_standstill_seconds_total",
		"master_quarantines_total{" + at + "}", "master_forgets_total{" + at + "}", "master_clock_steps_total{" + at + "}", "master_warnings_total{" + at + "}"} {
		if v, there := got[name]; !there || v != 0 {
			t.Errorf("%s: got %v (found: %v), want 0", name, v, there)
		}
	}
}

// Gauges are those of the Lockers that are open: of no Locker that is closed, and of none that an observer delays.
func TestGauges(t *testing.T) {
	t.Parallel()
	s := newScene(t, 3)
	gauges := []string{"leases{", "waiting_calls", "quorum", "master_up{", "master_quarantine_seconds{"}
	gone := func() (found []string) {
		for key := range s.scrape() {
			if slices.ContainsFunc(gauges, func(name string) bool { return strings.HasPrefix(key, name) }) {
				found = append(found, key)
			}
		}
		return found
	}
	hold := make(chan struct{})
	let := sync.OnceFunc(func() { close(hold) })
	defer let()
	slow := s.open(redlock.WithObserver(func(redlock.Event) { <-hold }), redlock.WithObserver(s.metrics.Observer()))
	s.metrics.Watch(slow)
	var leases []*redlock.Lease
	for i := range 30 {
		le, err := slow.Lock(t.Context(), fmt.Sprint("slow", i))
		s.must(err)
		leases = append(leases, le)
	}
	if got := s.scrape()[`leases{mode="exclusive"}`]; got != 30 {
		t.Errorf("behind a slow observer: got %v leases, want 30", got)
	}
	for _, le := range leases {
		s.must(le.Unlock(t.Context()))
	}
	if got := s.scrape()[`leases{mode="exclusive"}`]; got != 0 {
		t.Errorf("behind a slow observer: got %v leases, want 0", got)
	}
	let()
	s.must(slow.Close())

	s.must(s.procs[2].Kill())
	s.proxies[2].ResetAll()
	s.must(s.lock("r").Unlock(t.Context()))
	s.want(map[string]float64{master("master_up", s.addrs[2]): 0, master("master_up", s.addrs[0]): 1, `quorum`: 1})
	_ = s.locker.Close() // a master is down
	if found := gone(); len(found) > 0 {
		t.Errorf("after Close: got %q, want no gauges", found)
	}
	s.must(s.procs[2].Restart())
	s.locker = s.open(redlock.WithObserver(s.metrics.Observer()))
	s.metrics.Watch(s.locker)
	s.must(s.lock("r").Unlock(t.Context()))
	s.want(map[string]float64{master("master_up", s.addrs[2]): 1})
}

// A service that is idle tells of masters that die, of those that are back, and of those that take no key, without a
// call. internal/telemetry has that in virtual time.
func TestIdle(t *testing.T) {
	if !redistest.Long() {
		t.Skip("takes two minutes: with REDLOCK_LONG=yes")
	}
	t.Parallel()
	s := newScene(t, 3)
	s.must(s.lock("r").Unlock(t.Context()))
	s.want(map[string]float64{master("master_up", s.addrs[1]): 1, master("master_up", s.addrs[2]): 1, "quorum": 1})
	for _, p := range s.procs[1:] {
		s.must(p.Kill())
	}
	shows := func(up, quorum float64) func() bool {
		return func() bool {
			time.Sleep(time.Second)
			v := s.scrape()
			return v[master("master_up", s.addrs[1])] == up && v[master("master_up", s.addrs[2])] == up && v["quorum"] == quorum
		}
	}
	redistest.Eventually(t, 2*time.Minute, shows(0, 0), "two masters are down")
	for _, p := range s.procs[1:] {
		s.must(p.Restart())
	}
	redistest.Eventually(t, 2*time.Minute, shows(1, 1), "they are back, and have votes")
	full := func(maxmemory string) {
		for _, p := range s.procs[1:] {
			s.must(redistest.Client(t, p.Addr()).ConfigSet(t.Context(), "maxmemory", maxmemory).Err())
		}
	}
	full("1")
	redistest.Eventually(t, 2*time.Minute, shows(1, 0), "two masters are full")
	full("0")
	redistest.Eventually(t, 20*time.Second, shows(1, 1), "they have room")
}

// The package comment lists the existing metrics.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	s.must(s.lock("r").Unlock(t.Context()))
	if _, err := s.locker.TryLock(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	s.must(s.procs[0].Kill())
	s.proxies[0].ResetAll()
	_, _ = s.locker.TryLock(t.Context(), "r")
	documented := documentedMetrics(t)
	redistest.Eventually(t, 10*time.Second, func() bool { return len(s.families()) == len(documented) }, "all metrics are there")
	if got := slices.Sorted(maps.Keys(s.families())); !slices.Equal(got, documented) {
		t.Errorf("got %q, want %q", got, documented)
	}
}
