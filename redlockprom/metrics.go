package redlockprom

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/telemetry"
)

// Metrics counts and times what Lockers do. Use [New]. It is safe for concurrent use, and a
// [prometheus.Collector]. Several Lockers can share one Metrics, which adds up their numbers. To
// tell Lockers apart give each its own Metrics, registered with a label by
// [prometheus.WrapRegistererWith].
type Metrics struct {
	attempts, renewals, losses      *prometheus.CounterVec
	wait, validity                  *prometheus.HistogramVec
	hold                            prometheus.Histogram
	handovers, standstills, dropped prometheus.Counter
	abandoned                       prometheus.Counter
	leases                          *prometheus.GaugeVec

	latency                       *prometheus.HistogramVec
	up                            *prometheus.GaugeVec
	failures, quarantines         *prometheus.CounterVec
	forgets, clockSteps, warnings *prometheus.CounterVec

	quarantine *prometheus.Desc
	waiting    *prometheus.Desc
	mu         sync.Mutex
	votesAt    map[string]time.Time // guarded by mu; by master, when it has its vote again
	watched    []*redlock.Locker    // guarded by mu; not closed at the last collection
}

// New returns empty metrics.
func New() *Metrics {
	m := &Metrics{
		attempts:    counters("attempts_total", "Attempts to be granted a lease by the masters.", "outcome"),
		renewals:    counters("renewals_total", "Rounds of renewal, by the library or by Extend.", "outcome"),
		losses:      counters("losses_total", "Leases that ended without having been released.", "cause"),
		wait:        histograms("wait_seconds", "Time from the call of Lock or TryLock to its end.", telemetry.Wait, "outcome"),
		validity:    histograms("validity_seconds", "Validity left of a lease.", telemetry.Validity, "at"),
		hold:        prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "hold_seconds", Help: "How long leases were held.", Buckets: telemetry.Hold}),
		handovers:   counter("handovers_total", "Leases handed over by another caller of the process."),
		standstills: counter("clock_standstill_seconds_total", "Time for which the local clock stood still."),
		dropped:     counter("events_dropped_total", "Events that are missing from these metrics."),
		abandoned:   counter("abandoned_total", "Leases that the program dropped without Unlock."),
		leases:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "leases", Help: "Leases that are held."}, []string{"mode"}),
		latency:     histograms("master_latency_seconds", "Time of one exchange with a master.", telemetry.Latency, "master", "outcome"),
		up:          prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "master_up", Help: "Whether a master answers."}, []string{"master"}),
		failures:    counters("master_failures_total", "How often a master stopped answering.", "master", "reason"),
		quarantines: counters("master_quarantines_total", "How often a master came into quarantine.", "master"),
		forgets:     counters("master_forgets_total", "Keys of leases that a master had lost.", "master"),
		clockSteps:  counters("master_clock_steps_total", "Steps of a master's clock.", "master"),
		warnings:    counters("master_warnings_total", "Warnings about a master.", "master"),
		quarantine:  prometheus.NewDesc(prefix+"master_quarantine_seconds", "For how long yet a master has no vote.", []string{"master"}, nil),
		waiting:     prometheus.NewDesc(prefix+"waiting_calls", "Calls of Lock and Do that have no lease yet, of the watched Lockers.", nil, nil),
		votesAt:     make(map[string]time.Time),
	}
	m.leases.WithLabelValues(string(redlock.ModeExclusive))
	m.leases.WithLabelValues(string(redlock.ModeShared))
	// The metrics of an alert must be 0 before the first event.
	for _, outcome := range []string{telemetry.Granted, "taken", "split_vote", "no_quorum", "quarantine"} {
		m.attempts.WithLabelValues(outcome)
		m.wait.WithLabelValues(outcome)
	}
	for _, outcome := range []string{telemetry.Renewed, "no_quorum"} {
		m.renewals.WithLabelValues(outcome)
	}
	for _, cause := range []string{"expired", "suspended", "quorum_lost", "broken", "max_hold"} {
		m.losses.WithLabelValues(cause)
	}
	return m
}

const prefix = "redlock_"

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
}

// Observer returns the observer, for [redlock.WithObserver], that records the metrics. Other
// observers can be given as well.
func (m *Metrics) Observer() redlock.Observer { return m.observe }

func (m *Metrics) observe(e redlock.Event) {
	switch e.Kind {
	case redlock.EventAcquired:
		m.acquired(e)
	case redlock.EventTaken, redlock.EventAttemptFailed:
		m.attempts.WithLabelValues(redlock.Reason(e.Err)).Inc()
	case redlock.EventNotAcquired:
		m.wait.WithLabelValues(redlock.Reason(e.Err)).Observe(e.Elapsed.Seconds())
	case redlock.EventExtended:
		m.renewal(telemetry.Renewed, telemetry.AtRenewal, e)
	case redlock.EventExtendFailed:
		m.renewal(redlock.Reason(e.Err), telemetry.AtFailure, e)
	case redlock.EventDowngraded:
		m.downgraded(e)
	case redlock.EventLost:
		m.lost(e)
	case redlock.EventAbandoned:
		m.abandoned.Inc()
	case redlock.EventReleased:
		m.ended(e)
	case redlock.EventExchange:
		m.asked(e)
	case redlock.EventMasterDown:
		m.down(e)
	case redlock.EventMasterUp:
		m.seen(e.Master).Set(1)
	case redlock.EventKeyLost:
		m.forgets.WithLabelValues(e.Master).Inc()
	case redlock.EventQuarantined:
		m.quarantined(e)
	case redlock.EventMasterClockStepped:
		m.clockSteps.WithLabelValues(e.Master).Inc()
	case redlock.EventLocalClockStopped:
		m.standstills.Add(e.Elapsed.Seconds())
	case redlock.EventWarning:
		m.warnings.WithLabelValues(e.Master).Inc()
	case redlock.EventDropped:
		m.dropped.Add(float64(e.Count))
	}
}

func (m *Metrics) acquired(e redlock.Event) {
	if e.HandedOver {
		m.handovers.Inc()
	} else {
		m.attempts.WithLabelValues(telemetry.Granted).Inc()
	}
	m.wait.WithLabelValues(telemetry.Granted).Observe(e.Elapsed.Seconds())
	m.validity.WithLabelValues(telemetry.AtGrant).Observe(e.Validity.Seconds())
	m.leases.WithLabelValues(string(e.Mode)).Inc()
}

func (m *Metrics) downgraded(e redlock.Event) {
	m.leases.WithLabelValues(string(redlock.ModeExclusive)).Dec()
	m.leases.WithLabelValues(string(e.Mode)).Inc()
}

func (m *Metrics) renewal(outcome, at string, e redlock.Event) {
	m.renewals.WithLabelValues(outcome).Inc()
	m.validity.WithLabelValues(at).Observe(max(e.Validity, 0).Seconds())
}

func (m *Metrics) lost(e redlock.Event) {
	m.losses.WithLabelValues(redlock.Reason(e.Err)).Inc()
	m.ended(e)
}

func (m *Metrics) ended(e redlock.Event) {
	m.hold.Observe(e.Elapsed.Seconds())
	m.leases.WithLabelValues(string(e.Mode)).Dec()
}

func (m *Metrics) asked(e redlock.Event) {
	outcome := telemetry.Answered
	if e.Err != nil {
		outcome = redlock.Reason(e.Err)
	} else {
		m.seen(e.Master).Set(1)
	}
	m.latency.WithLabelValues(e.Master, outcome).Observe(e.Elapsed.Seconds())
}

func (m *Metrics) down(e redlock.Event) {
	m.seen(e.Master).Set(0)
	m.failures.WithLabelValues(e.Master, redlock.Reason(e.Err)).Inc()
}

func (m *Metrics) quarantined(e redlock.Event) {
	m.seen(e.Master)
	m.quarantines.WithLabelValues(e.Master).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.votesAt[e.Master] = e.Time.Add(e.Elapsed)
}

// seen adds a master to all metrics about masters, and returns the gauge of its state.
func (m *Metrics) seen(master string) prometheus.Gauge {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.votesAt[master]; !known {
		m.votesAt[master] = time.Time{}
		m.quarantines.WithLabelValues(master)
		m.forgets.WithLabelValues(master)
		m.clockSteps.WithLabelValues(master)
		m.warnings.WithLabelValues(master)
	}
	return m.up.WithLabelValues(master)
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.attempts, m.renewals, m.losses, m.wait, m.validity, m.hold, m.handovers, m.standstills, m.dropped, m.abandoned, m.leases,
		m.latency, m.up, m.failures, m.quarantines, m.forgets, m.clockSteps, m.warnings,
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	ch <- m.quarantine
	ch <- m.waiting
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for master, at := range m.votesAt {
		left := max(time.Until(at), 0)
		ch <- prometheus.MustNewConstMetric(m.quarantine, prometheus.GaugeValue, left.Seconds(), master)
	}
	m.watched = slices.DeleteFunc(m.watched, closed)
	waiting := 0
	for _, l := range m.watched {
		waiting += l.Stats().Waiting
	}
	ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting))
}

func closed(l *redlock.Locker) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// Watch adds the calls that wait at a Locker to redlock_waiting_calls, until the Locker is closed.
// Call it once for each Locker, after [redlock.New]: no event reports that a call has begun to
// wait.
func (m *Metrics) Watch(l *redlock.Locker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched = append(m.watched, l)
}
