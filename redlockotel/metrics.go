package redlockotel

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/telemetry"
)

// Attributes.
const (
	outcomeKey  = attribute.Key("redlock.outcome")
	resourceKey = attribute.Key("redlock.resource")
	fenceKey    = attribute.Key("redlock.fence")
	validityKey = attribute.Key("redlock.validity")
	requestKey  = attribute.Key("redlock.request")
	addressKey  = attribute.Key("server.address")
	portKey     = attribute.Key("server.port")
	errorKey    = attribute.Key("error.type")
)

// all has the metrics of each provider, for the whole program as the global provider is: an observation of a gauge
// replaces the one before, so those of several Lockers are added up here.
var all struct {
	mu sync.Mutex
	of map[metric.MeterProvider]*telemetry.Metrics
}

// Metrics returns the option, for [redlock.New], that records the metrics of the package comment: the events of the
// Locker, and its gauges until it is closed. Lockers with the same provider are added up. A [redlock.WithObserver] can
// be given as well. The error comes from a provider that refuses an instrument, or matches [redlock.ErrConfig]: an
// option or its provider is nil.
//
// If a Locker has been granted nothing for 30 s, a collection has it ask its masters, as by Check
// of package admin. The next collection shows what it found.
func Metrics(opts ...Option) (redlock.Option, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	hashable := reflect.ValueOf(c.meters).Comparable() // as a key must be
	if hashable && all.of[c.meters] != nil {
		return all.of[c.meters].Option(), nil
	}
	m, err := newMetrics(c.meters.Meter(scope))
	if err != nil {
		return nil, err
	}
	if all.of == nil {
		all.of = make(map[metric.MeterProvider]*telemetry.Metrics)
	}
	if hashable {
		all.of[c.meters] = m
	}
	return m.Option(), nil
}

func newMetrics(meter metric.Meter) (*telemetry.Metrics, error) {
	var s sink
	var gauges [len(telemetry.Table)]metric.Float64Observable
	var observables []metric.Observable
	var errs []error
	for id, row := range telemetry.Table {
		var err error
		name, unit, help := "redlock."+row.OpenTelemetry, metric.WithUnit(row.Unit), metric.WithDescription(row.Help)
		switch row.Kind {
		case telemetry.Counter:
			s.counters[id], err = meter.Float64Counter(name, unit, help)
		case telemetry.Histogram:
			s.histograms[id], err = meter.Float64Histogram(name, unit, help, metric.WithExplicitBucketBoundaries(row.Bounds...))
		case telemetry.Sum:
			gauges[id], err = meter.Float64ObservableUpDownCounter(name, unit, help)
		case telemetry.Gauge:
			gauges[id], err = meter.Float64ObservableGauge(name, unit, help)
		}
		if gauges[id] != nil {
			observables = append(observables, gauges[id])
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	m := telemetry.New(&s)
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, g := range m.Gauges() {
			o.ObserveFloat64(gauges[g.ID], g.Value, attributes(g.ID, g.Labels))
		}
		return nil
	}, observables...)
	return m, err
}

// sink has one of the two for each row of the table that is no gauge.
type sink struct {
	counters   [len(telemetry.Table)]metric.Float64Counter
	histograms [len(telemetry.Table)]metric.Float64Histogram
}

// Begin implements [telemetry.Sink]. A histogram begins with its first value.
func (s *sink) Begin(id telemetry.ID, labels ...string) {
	if s.counters[id] != nil {
		s.Record(id, 0, labels...)
	}
}

// Record implements [telemetry.Sink].
func (s *sink) Record(id telemetry.ID, v float64, labels ...string) {
	if c := s.counters[id]; c != nil {
		c.Add(context.Background(), v, attributes(id, labels))
	} else {
		s.histograms[id].Record(context.Background(), v, attributes(id, labels))
	}
}

func attributes(id telemetry.ID, labels []string) metric.MeasurementOption {
	var attrs []attribute.KeyValue
	for i, value := range labels {
		switch label := telemetry.Table[id].Labels[i]; label {
		case telemetry.Master:
			attrs = append(attrs, server(value)...)
		case telemetry.Reason:
			attrs = append(attrs, errorKey.String(value))
		default:
			attrs = append(attrs, attribute.String("redlock."+label, value))
		}
	}
	return metric.WithAttributes(attrs...)
}

// server returns the attributes for the address of a master. For a socket the address is its path.
func server(master string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return []attribute.KeyValue{addressKey.String(master)}
	}
	if number, err := strconv.Atoi(port); err == nil {
		return []attribute.KeyValue{addressKey.String(host), portKey.Int(number)}
	}
	return []attribute.KeyValue{addressKey.String(master)}
}
