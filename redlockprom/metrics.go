package redlockprom

import (
	"sync"

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

	latency                       *prometheus.HistogramVec
	failures, quarantines         *prometheus.CounterVec
	forgets, clockSteps, warnings *prometheus.CounterVec

	leases, waiting, quorum, up, quarantine *prometheus.Desc // of the Lockers that are watched

	watched telemetry.Watched
	seen    sync.Map // the masters that all counters have
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
		latency:     histograms("master_latency_seconds", "Time of one exchange with a master.", telemetry.Latency, "master", "outcome"),
		failures:    counters("master_failures_total", "How often a master stopped answering.", "master", "reason"),
		quarantines: counters("master_quarantines_total", "How often a master came into quarantine.", "master"),
		forgets:     counters("master_forgets_total", "Keys of leases that a master had lost.", "master"),
		clockSteps:  counters("master_clock_steps_total", "Steps of a master's clock.", "master"),
		warnings:    counters("master_warnings_total", "Warnings about a master.", "master"),
		leases:      gauge("leases", "Leases that are held.", "mode"),
		waiting:     gauge("waiting_calls", "Calls of Lock and Do that have no lease yet."),
		quorum:      gauge("quorum", "Whether enough masters have a vote."),
		up:          gauge("master_up", "Whether a master answers.", "master"),
		quarantine:  gauge("master_quarantine_seconds", "For how long yet a master has no vote.", "master"),
	}
	// The metrics of an alert must be 0 before the first event.
	for _, outcome := range append(telemetry.Words(telemetry.OfAttempt), telemetry.Granted) {
		m.attempts.WithLabelValues(outcome)
	}
	for _, outcome := range []string{telemetry.Granted, "taken", "split_vote", "no_quorum", "quarantine"} {
		m.wait.WithLabelValues(outcome)
	}
	for _, outcome := range append(telemetry.Words(telemetry.OfAttempt|telemetry.OfLease), telemetry.Renewed) {
		m.renewals.WithLabelValues(outcome)
	}
	for _, cause := range telemetry.Words(telemetry.OfLease) {
		m.losses.WithLabelValues(cause)
	}
	return m
}

const prefix = "redlock_"

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
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
	if e.Master != "" {
		m.know(e.Master)
	}
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
	case redlock.EventLost:
		m.lost(e)
	case redlock.EventAbandoned:
		m.abandoned.Inc()
	case redlock.EventReleased:
		m.hold.Observe(e.Elapsed.Seconds())
	case redlock.EventExchange:
		m.asked(e)
	case redlock.EventMasterDown:
		m.failures.WithLabelValues(e.Master, redlock.Reason(e.Err)).Inc()
	case redlock.EventKeyLost:
		m.forgets.WithLabelValues(e.Master).Inc()
	case redlock.EventQuarantined:
		m.quarantines.WithLabelValues(e.Master).Inc()
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
}

func (m *Metrics) renewal(outcome, at string, e redlock.Event) {
	m.renewals.WithLabelValues(outcome).Inc()
	m.validity.WithLabelValues(at).Observe(max(e.Validity, 0).Seconds())
}

func (m *Metrics) lost(e redlock.Event) {
	m.losses.WithLabelValues(redlock.Reason(e.Err)).Inc()
	m.hold.Observe(e.Elapsed.Seconds())
}

func (m *Metrics) asked(e redlock.Event) {
	outcome := telemetry.Answered
	if e.Err != nil {
		outcome = redlock.Reason(e.Err)
	}
	m.latency.WithLabelValues(e.Master, outcome).Observe(e.Elapsed.Seconds())
}

// know adds a master to the counters.
func (m *Metrics) know(master string) {
	if _, known := m.seen.LoadOrStore(master, nil); known {
		return
	}
	for _, c := range []*prometheus.CounterVec{m.quarantines, m.forgets, m.clockSteps, m.warnings} {
		c.WithLabelValues(master)
	}
	for _, reason := range telemetry.Words(telemetry.OfMaster) {
		m.failures.WithLabelValues(master, reason)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.attempts, m.renewals, m.losses, m.wait, m.validity, m.hold, m.handovers, m.standstills, m.dropped, m.abandoned,
		m.latency, m.failures, m.quarantines, m.forgets, m.clockSteps, m.warnings,
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.leases, m.waiting, m.quorum, m.up, m.quarantine} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	g, some := m.watched.Gauges()
	for _, n := range g.Masters {
		m.know(n.Addr)
	}
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	if !some {
		return
	}
	tell := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for mode, n := range g.Leases {
		tell(m.leases, float64(n), string(mode))
	}
	tell(m.waiting, float64(g.Waiting))
	tell(m.quorum, number(g.Quorum))
	for _, n := range g.Masters {
		if n.Asked {
			tell(m.up, number(n.Up), n.Addr)
			tell(m.quarantine, n.Quarantine.Seconds(), n.Addr)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Watch adds a Locker to the gauges, until it is closed: redlock_leases, redlock_waiting_calls,
// redlock_quorum, redlock_master_up and redlock_master_quarantine_seconds. They are those of
// [redlock.Locker.Stats] at each collection. Call it after [redlock.New]. A further call for the same Locker
// has no effect. Watch panics if the Locker is nil, or was not made by New.
//
// If a watched Locker has been granted nothing for 30 s, a collection has it ask its masters, as by Check
// of package admin. The next collection shows what it found.
func (m *Metrics) Watch(l *redlock.Locker) { m.watched.Add(l) }
