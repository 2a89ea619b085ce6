package redlockotel

import (
	"context"
	"errors"
	"net"
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
	causeKey    = attribute.Key("redlock.cause")
	atKey       = attribute.Key("redlock.at")
	modeKey     = attribute.Key("redlock.mode")
	resourceKey = attribute.Key("redlock.resource")
	fenceKey    = attribute.Key("redlock.fence")
	validityKey = attribute.Key("redlock.validity")
	requestKey  = attribute.Key("redlock.request")
	addressKey  = attribute.Key("server.address")
	portKey     = attribute.Key("server.port")
	errorKey    = attribute.Key("error.type")
)

// instruments has an instrument for each metric.
type instruments struct {
	attempts, handovers, renewals, losses, dropped       metric.Int64Counter
	abandoned                                            metric.Int64Counter
	failures, quarantines, forgets, clockSteps, warnings metric.Int64Counter
	standstill                                           metric.Float64Counter
	wait, hold, validity, latency                        metric.Float64Histogram

	seen sync.Map // the masters that all counters have
}

func newInstruments(p metric.MeterProvider) (*instruments, error) {
	m := p.Meter(scope)
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, description string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	in := &instruments{
		attempts:    counter("redlock.attempts", "{attempt}", "Attempts to be granted a lease by the masters."),
		handovers:   counter("redlock.handovers", "{lease}", "Leases handed over by another caller of the process."),
		renewals:    counter("redlock.renewals", "{renewal}", "Rounds of renewal, by the library or by Extend."),
		losses:      counter("redlock.losses", "{lease}", "Leases that ended without having been released."),
		abandoned:   counter("redlock.abandoned", "{lease}", "Leases that the program dropped without Unlock."),
		dropped:     counter("redlock.events.dropped", "{event}", "Events that are missing from these metrics."),
		failures:    counter("redlock.master.failures", "{failure}", "How often a master stopped answering."),
		quarantines: counter("redlock.master.quarantines", "{quarantine}", "How often a master came into quarantine."),
		forgets:     counter("redlock.master.forgets", "{key}", "Keys of leases that a master had lost."),
		clockSteps:  counter("redlock.master.clock_steps", "{step}", "Steps of a master's clock."),
		warnings:    counter("redlock.master.warnings", "{warning}", "Warnings about a master."),
		wait:        seconds("redlock.wait.duration", "Time from the call of Lock or TryLock to its end.", telemetry.Wait),
		hold:        seconds("redlock.hold.duration", "How long leases were held.", telemetry.Hold),
		validity:    seconds("redlock.validity", "Validity left of a lease.", telemetry.Validity),
		latency:     seconds("redlock.master.duration", "Time of one exchange with a master.", telemetry.Latency),
	}
	var err error
	in.standstill, err = m.Float64Counter("redlock.clock.standstill", metric.WithUnit("s"), metric.WithDescription("Time for which the local clock stood still."))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	in.begin()
	return in, nil
}

// begin makes the counters of alerts 0 before the first event: a rule sees no rise in a series that begins
// with 1.
func (in *instruments) begin() {
	for _, outcome := range append(telemetry.Words(telemetry.OfAttempt), telemetry.Granted) {
		add(in.attempts, 0, outcomeKey.String(outcome))
	}
	for _, outcome := range append(telemetry.Words(telemetry.OfAttempt|telemetry.OfLease), telemetry.Renewed) {
		add(in.renewals, 0, outcomeKey.String(outcome))
	}
	for _, cause := range telemetry.Words(telemetry.OfLease) {
		add(in.losses, 0, causeKey.String(cause))
	}
	for _, c := range []metric.Int64Counter{in.handovers, in.abandoned, in.dropped} {
		add(c, 0)
	}
	in.standstill.Add(context.Background(), 0)
}

// know adds a master to the counters.
func (in *instruments) know(master string) {
	if _, known := in.seen.LoadOrStore(master, nil); known {
		return
	}
	attrs := server(master)
	for _, c := range []metric.Int64Counter{in.quarantines, in.forgets, in.clockSteps, in.warnings} {
		add(c, 0, attrs...)
	}
	for _, reason := range telemetry.Words(telemetry.OfMaster) {
		add(in.failures, 0, append(server(master), errorKey.String(reason))...)
	}
}

// Observer returns an observer, for [redlock.WithObserver], that records the metrics of the
// package comment. Other observers can be given as well. The error comes from a provider that
// refuses an instrument, or matches [redlock.ErrConfig]: an option or its provider is nil.
func Observer(opts ...Option) (redlock.Observer, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	in, err := newInstruments(c.meters)
	if err != nil {
		return nil, err
	}
	return in.observe, nil
}

func (in *instruments) observe(e redlock.Event) {
	if e.Master != "" {
		in.know(e.Master)
	}
	switch e.Kind {
	case redlock.EventAcquired:
		in.acquired(e)
	case redlock.EventTaken, redlock.EventAttemptFailed:
		count(in.attempts, outcomeKey.String(redlock.Reason(e.Err)))
	case redlock.EventNotAcquired:
		observe(in.wait, e.Elapsed.Seconds(), outcomeKey.String(redlock.Reason(e.Err)))
	case redlock.EventExtended:
		in.renewal(telemetry.Renewed, telemetry.AtRenewal, e)
	case redlock.EventExtendFailed:
		in.renewal(redlock.Reason(e.Err), telemetry.AtFailure, e)
	case redlock.EventLost:
		in.lost(e)
	case redlock.EventAbandoned:
		count(in.abandoned)
	case redlock.EventReleased:
		observe(in.hold, e.Elapsed.Seconds())
	case redlock.EventExchange:
		in.asked(e)
	case redlock.EventMasterDown:
		count(in.failures, append(server(e.Master), errorKey.String(redlock.Reason(e.Err)))...)
	case redlock.EventKeyLost:
		count(in.forgets, server(e.Master)...)
	case redlock.EventQuarantined:
		count(in.quarantines, server(e.Master)...)
	case redlock.EventMasterClockStepped:
		count(in.clockSteps, server(e.Master)...)
	case redlock.EventLocalClockStopped:
		in.standstill.Add(context.Background(), e.Elapsed.Seconds())
	case redlock.EventWarning:
		count(in.warnings, server(e.Master)...)
	case redlock.EventDropped:
		in.dropped.Add(context.Background(), int64(e.Count))
	}
}

func count(c metric.Int64Counter, attrs ...attribute.KeyValue) {
	add(c, 1, attrs...)
}

func add(c metric.Int64Counter, n int64, attrs ...attribute.KeyValue) {
	c.Add(context.Background(), n, metric.WithAttributes(attrs...))
}

func observe(h metric.Float64Histogram, seconds float64, attrs ...attribute.KeyValue) {
	h.Record(context.Background(), seconds, metric.WithAttributes(attrs...))
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

func (in *instruments) acquired(e redlock.Event) {
	if e.HandedOver {
		count(in.handovers)
	} else {
		count(in.attempts, outcomeKey.String(telemetry.Granted))
	}
	observe(in.wait, e.Elapsed.Seconds(), outcomeKey.String(telemetry.Granted))
	observe(in.validity, e.Validity.Seconds(), atKey.String(telemetry.AtGrant))
}

func (in *instruments) renewal(outcome, at string, e redlock.Event) {
	count(in.renewals, outcomeKey.String(outcome))
	observe(in.validity, max(e.Validity, 0).Seconds(), atKey.String(at))
}

func (in *instruments) lost(e redlock.Event) {
	count(in.losses, causeKey.String(redlock.Reason(e.Err)))
	observe(in.hold, e.Elapsed.Seconds())
}

func (in *instruments) asked(e redlock.Event) {
	outcome := telemetry.Answered
	if e.Err != nil {
		outcome = redlock.Reason(e.Err)
	}
	observe(in.latency, e.Elapsed.Seconds(), append(server(e.Master), outcomeKey.String(outcome))...)
}
