package redlockprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/telemetry"
)

// Metrics counts and times what Lockers do. Use [New]. It is safe for concurrent use, and a
// [prometheus.Collector]. Several Lockers can share one Metrics, which adds up their numbers. To
// tell Lockers apart give each its own Metrics, registered with a label by
// [prometheus.WrapRegistererWith].
type Metrics struct {
	of   *telemetry.Metrics
	sink sink
}

// New returns empty metrics.
func New() *Metrics {
	m := new(Metrics)
	for id, row := range telemetry.Table {
		name := "redlock_" + row.Prometheus
		switch row.Kind {
		case telemetry.Counter:
			m.sink.counters[id] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: row.Help}, row.Labels)
		case telemetry.Histogram:
			m.sink.histograms[id] = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: row.Help, Buckets: row.Bounds}, row.Labels)
		default:
			m.sink.gauges[id] = prometheus.NewDesc(name, row.Help, row.Labels, nil)
		}
	}
	m.of = telemetry.New(&m.sink)
	return m
}

// Option returns the option, for [redlock.New], that gives these metrics all of a Locker: its events, and its gauges
// until it is closed. A [redlock.WithObserver] can be given as well. Metrics work only with this option.
//
// If a Locker has been granted nothing for 30 s, a collection has it ask its masters, as by Check
// of package admin. The next collection shows what it found.
func (m *Metrics) Option() redlock.Option { return m.of.Option() }

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for id := range telemetry.Table {
		if desc := m.sink.gauges[id]; desc != nil {
			ch <- desc
		} else {
			m.sink.collector(id).Describe(ch)
		}
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for id := range telemetry.Table {
		if m.sink.gauges[id] == nil {
			m.sink.collector(id).Collect(ch)
		}
	}
	for _, s := range m.of.Gauges() {
		ch <- prometheus.MustNewConstMetric(m.sink.gauges[s.ID], prometheus.GaugeValue, s.Value, s.Labels...)
	}
}

// sink has one of the three for each row of the table.
type sink struct {
	counters   [len(telemetry.Table)]*prometheus.CounterVec
	histograms [len(telemetry.Table)]*prometheus.HistogramVec
	gauges     [len(telemetry.Table)]*prometheus.Desc
}

func (s *sink) collector(id int) prometheus.Collector {
	if c := s.counters[id]; c != nil {
		return c
	}
	return s.histograms[id]
}

// Begin implements [telemetry.Sink].
func (s *sink) Begin(id telemetry.ID, labels ...string) {
	if c := s.counters[id]; c != nil {
		c.WithLabelValues(labels...)
	} else {
		s.histograms[id].WithLabelValues(labels...)
	}
}

// Record implements [telemetry.Sink].
func (s *sink) Record(id telemetry.ID, v float64, labels ...string) {
	if c := s.counters[id]; c != nil {
		c.WithLabelValues(labels...).Add(v)
	} else {
		s.histograms[id].WithLabelValues(labels...).Observe(v)
	}
}
