package redlockotel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/telemetry"
)

// watcher has the gauges of the Lockers that are watched with one provider. They add up in it: an
// observation of a gauge replaces the one of before.
type watcher struct {
	counters     *instruments // the observer's: one provider has each instrument once
	watched      telemetry.Watched
	registration metric.Registration

	leases, waiting metric.Int64ObservableUpDownCounter
	up, quorum      metric.Int64ObservableGauge
	quarantine      metric.Float64ObservableGauge
}

// watchers has the watchers by provider. It is for the whole program, as the global provider is.
var watchers struct {
	mu sync.Mutex
	of map[metric.MeterProvider]*watcher
}

// Watch adds a Locker to the gauges of the package comment, until it is closed or Unregister is
// called. They are those of [redlock.Locker.Stats] at each collection. A further call for the same
// Locker and provider has no effect. The error is one of [Observer], or matches [redlock.ErrConfig]
// if the Locker is nil, or was not made by [redlock.New].
//
// If a watched Locker has been granted nothing for 30 s, a collection has it ask its masters, as by Check
// of package admin. The next collection shows what it found.
func Watch(l *redlock.Locker, opts ...Option) (metric.Registration, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if _, err := l.Settings(); err != nil {
		return nil, fmt.Errorf("redlockotel: Watch: %w", err)
	}
	provider := c.meters
	watchers.mu.Lock()
	defer watchers.mu.Unlock()
	hashable := reflect.ValueOf(provider).Comparable() // as a key must be
	var w *watcher
	if hashable {
		w = watchers.of[provider]
	}
	if w == nil {
		var err error
		if w, err = newWatcher(provider); err != nil {
			return nil, err
		}
	}
	if hashable {
		if watchers.of == nil {
			watchers.of = make(map[metric.MeterProvider]*watcher)
		}
		watchers.of[provider] = w
	}
	w.watched.Add(l)
	for _, n := range l.Stats().Masters {
		w.counters.know(n.Master)
	}
	return &watch{w: w, l: l, provider: provider}, nil
}

// watch is the Registration of one Locker.
type watch struct {
	embedded.Registration
	w        *watcher
	l        *redlock.Locker
	provider metric.MeterProvider
}

// Unregister implements [metric.Registration].
func (r *watch) Unregister() error {
	watchers.mu.Lock()
	defer watchers.mu.Unlock()
	if last := r.w.watched.Remove(r.l); !last {
		return nil
	}
	if reflect.ValueOf(r.provider).Comparable() && watchers.of[r.provider] == r.w {
		delete(watchers.of, r.provider)
	}
	return r.w.registration.Unregister()
}

func newWatcher(p metric.MeterProvider) (*watcher, error) {
	m := p.Meter(scope)
	w := new(watcher)
	var errs [6]error
	w.leases, errs[0] = m.Int64ObservableUpDownCounter("redlock.leases", metric.WithUnit("{lease}"), metric.WithDescription("Leases that are held."))
	w.waiting, errs[1] = m.Int64ObservableUpDownCounter("redlock.waiting", metric.WithUnit("{call}"), metric.WithDescription("Calls of Lock and Do that have no lease yet."))
	w.quorum, errs[2] = m.Int64ObservableGauge("redlock.quorum", metric.WithUnit("1"), metric.WithDescription("Whether enough masters have a vote."))
	w.up, errs[3] = m.Int64ObservableGauge("redlock.master.up", metric.WithUnit("1"), metric.WithDescription("Whether a master answers."))
	w.quarantine, errs[4] = m.Float64ObservableGauge("redlock.master.quarantine", metric.WithUnit("s"), metric.WithDescription("For how long yet a master has no vote."))
	w.counters, errs[5] = newInstruments(p)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var err error
	w.registration, err = m.RegisterCallback(w.observe, w.leases, w.waiting, w.quorum, w.up, w.quarantine)
	return w, err
}

func (w *watcher) observe(_ context.Context, o metric.Observer) error {
	g, some := w.watched.Gauges()
	if !some {
		return nil
	}
	for mode, n := range g.Leases {
		o.ObserveInt64(w.leases, int64(n), metric.WithAttributes(modeKey.String(string(mode))))
	}
	o.ObserveInt64(w.waiting, int64(g.Waiting))
	o.ObserveInt64(w.quorum, number(g.Quorum))
	for _, n := range g.Masters {
		if n.Asked {
			attrs := metric.WithAttributes(server(n.Addr)...)
			o.ObserveInt64(w.up, number(n.Up), attrs)
			o.ObserveFloat64(w.quarantine, n.Quarantine.Seconds(), attrs)
		}
	}
	return nil
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
