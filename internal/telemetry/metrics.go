package telemetry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/wire"
)

// Metrics tells a sink what Lockers do, and has their gauges. It is safe for concurrent use.
type Metrics struct {
	sink Sink

	mu      sync.Mutex
	lockers map[*redlock.Locker]*watch // guarded by mu; those that were open at the last collection, and later ones
}

// watch holds what Metrics knows of a Locker.
type watch struct {
	grants uint64    // at the last look
	since  time.Time // of that number, or of the last answer
	asking bool      // by Metrics
	none   bool      // the last answer: no lock can be granted
}

const (
	idle     = 30 * time.Second // without a grant, until the masters are asked
	askFor   = 5 * time.Second  // at most
	askAgain = time.Second      // before no lock can be granted
)

// New returns the metrics of no Locker. The counters of alerts begin with 0, since a rule sees no rise in a series that
// begins with 1.
func New(s Sink) *Metrics {
	m := &Metrics{sink: s, lockers: make(map[*redlock.Locker]*watch)}
	of := func(id ID, words ...string) {
		for _, w := range words {
			s.Begin(id, w)
		}
	}
	of(attempts, append(Words(OfAttempt), Granted)...)
	of(wait, Granted, "taken", "split_vote", "no_quorum", "quarantine")
	of(renewals, append(Words(OfAttempt|OfLease), Renewed)...)
	of(losses, Words(OfLease)...)
	for _, id := range []ID{handovers, abandoned, hold, standstill, dropped} {
		s.Begin(id)
	}
	return m
}

// Option returns the option that gives a Locker all metrics: its events from the first one on, and its gauges until it
// is closed.
func (m *Metrics) Option() redlock.Option {
	return door.Watched(redlock.Observer(m.observe), m.add).(redlock.Option)
}

// add adds a Locker that New has made.
func (m *Metrics) add(l *redlock.Locker) {
	for _, of := range l.Stats().Masters {
		for _, id := range []ID{quarantines, forgets, clockSteps, warnings} {
			m.sink.Begin(id, of.Master)
		}
		for _, reason := range Words(OfMaster) {
			m.sink.Begin(failures, of.Master, reason)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lockers[l] = new(watch)
}

func (m *Metrics) observe(e redlock.Event) {
	record := func(id ID, v float64, labels ...string) { m.sink.Record(id, v, labels...) }
	why, took := redlock.Reason(e.Err), e.Elapsed.Seconds()
	left := max(e.Validity, 0).Seconds()
	switch e.Kind {
	case redlock.EventAcquired:
		if e.HandedOver {
			record(handovers, 1)
		} else {
			record(attempts, 1, Granted)
		}
		record(wait, took, Granted)
		record(validity, left, "grant")
	case redlock.EventTaken, redlock.EventAttemptFailed:
		record(attempts, 1, why)
	case redlock.EventNotAcquired:
		record(wait, took, why)
	case redlock.EventExtended:
		record(renewals, 1, Renewed)
		record(validity, left, "renewal")
	case redlock.EventExtendFailed:
		record(renewals, 1, why)
		record(validity, left, "failure")
	case redlock.EventLost:
		record(losses, 1, why)
		record(hold, took)
	case redlock.EventAbandoned:
		record(abandoned, 1)
	case redlock.EventReleased:
		record(hold, took)
	case redlock.EventExchange:
		if e.Err == nil {
			why = Answered
		}
		record(latency, took, e.Master, why)
	case redlock.EventMasterDown:
		record(failures, 1, e.Master, why)
	case redlock.EventKeyLost:
		record(forgets, 1, e.Master)
	case redlock.EventQuarantined:
		record(quarantines, 1, e.Master)
	case redlock.EventMasterClockStepped:
		record(clockSteps, 1, e.Master)
	case redlock.EventLocalClockStopped:
		record(standstill, took)
	case redlock.EventWarning:
		record(warnings, 1, e.Master)
	case redlock.EventDropped:
		record(dropped, float64(e.Count))
	}
}

// Sample is the value of a gauge.
type Sample struct {
	ID     ID
	Value  float64
	Labels []string
}

// Gauges returns the gauges, which add up those of all Lockers, or none if each Locker is closed. A Locker learns of a
// master by asking it, and of a master that answers and takes no key by a grant alone: if a Locker has had no grant
// for a while, Gauges makes it ask, and the next call has what it found.
func (m *Metrics) Gauges() (all []Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.lockers, func(l *redlock.Locker, _ *watch) bool { return closed(l) })
	if len(m.lockers) == 0 {
		return nil
	}
	calls, granting := 0, true // granting: each Locker has as many votes as a grant needs, and they refused it nothing when asked
	held := map[redlock.Mode]int{redlock.ModeExclusive: 0, redlock.ModeShared: 0}
	votesIn := make(map[string]time.Duration) // of the masters that were asked
	down := make(map[string]bool)
	for l, of := range m.lockers {
		s := l.Stats()
		m.keepAskingLocked(l, of, s.Counts[redlock.EventAcquired])
		calls += s.Waiting
		for _, le := range s.Leases {
			held[le.Mode] += le.Holds
		}
		votes := 0
		for _, n := range s.Masters {
			if n.State != redlock.MasterDown && n.Quarantine == 0 && !n.Skewed {
				votes++
			}
			if n.State != redlock.MasterUntried {
				votesIn[n.Master] = max(votesIn[n.Master], n.Quarantine)
				down[n.Master] = down[n.Master] || n.State == redlock.MasterDown
			}
		}
		granting = granting && votes > len(s.Masters)/2 && !of.none
	}
	all = []Sample{{waiting, float64(calls), nil}, {quorum, number(granting), nil}}
	for mode, n := range held {
		all = append(all, Sample{leases, float64(n), []string{string(mode)}})
	}
	leads := make(map[string]float64) // by election
	inside.Campaigns.Range(func(c, _ any) bool {
		if c := c.(*inside.Campaign); m.lockers[c.Locker] != nil {
			leads[wire.Printable(c.Election)] += number(c.Leads())
		}
		return true
	})
	for name, n := range leads {
		all = append(all, Sample{leader, n, []string{name}})
	}
	for _, addr := range slices.Sorted(maps.Keys(votesIn)) {
		all = append(all, Sample{up, number(!down[addr]), []string{addr}}, Sample{quarantine, votesIn[addr].Seconds(), []string{addr}})
	}
	return all
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// keepAskingLocked asks the masters of a Locker that has had no grant for a while: each time, once no lock can be
// granted.
func (m *Metrics) keepAskingLocked(l *redlock.Locker, of *watch, grants uint64) {
	now := time.Now()
	if grants != of.grants || of.since.IsZero() {
		of.grants, of.since, of.none = grants, now, false
		return
	}
	if of.asking || !of.none && now.Sub(of.since) < idle {
		return
	}
	of.asking = true
	go func() { // ends with askFor, or as the Locker is closed
		ctx, cancel := context.WithTimeout(context.Background(), askFor)
		defer cancel()
		_, err := admin.Check(ctx, l)            // the Locker keeps what it learns
		if errors.Is(err, redlock.ErrNoQuorum) { // or the process was paused
			select {
			case <-time.After(askAgain):
			case <-inside.Of(l).Done():
			}
			_, err = admin.Check(ctx, l)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		of.asking, of.since, of.none = false, time.Now(), errors.Is(err, redlock.ErrNoQuorum)
	}()
}

func closed(l *redlock.Locker) bool {
	select {
	case <-inside.Of(l).Done():
		return true
	default:
		return false
	}
}
