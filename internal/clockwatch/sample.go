package clockwatch

import (
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// The times that a node's clock can show, in microseconds: from 1998 to 2255. What is outside is
// no time, and computing with it could wrap.
const (
	firstMicros = 9e14
	lastMicros  = 9e15
)

// Plausible reports whether micros can be the time that a node's clock shows.
func Plausible(micros int64) bool { return micros >= firstMicros && micros <= lastMicros }

// sample is one reading of a node's wall clock: when the local clock showed at, the node's showed
// micros, give or take err.
type sample struct {
	micros int64
	at     clock.Instant
	err    time.Duration
}

// takeSample turns a node's time from a reply, read between the local instants sent and received,
// into a sample.
//
// Source: ALGORITHM section 9, "est_i".
func takeSample(micros int64, sent, received clock.Instant) sample {
	half := received.Sub(sent) / 2
	return sample{micros: micros, at: sent.Add(half), err: half}
}

// estimate returns the node's time at the local instant now, in microseconds.
func (s sample) estimate(now clock.Instant) int64 {
	return s.micros + now.Sub(s.at).Microseconds()
}

// NotAfter returns the latest time of a node's clock, in microseconds, at which a request that
// lives until end may be carried out. Without a sample it is 0, which means no limit.
//
// Source: ALGORITHM sections 5 and 9.
func (w *Watch) NotAfter(node int, end clock.Instant) int64 {
	return w.clocks[node].best.Load().notAfter(w.conf.Clock.Shown(end), w.conf.Drift)
}

// DeadBy returns when a node's clock has passed NotAfter(node, end).
func (w *Watch) DeadBy(node int, end clock.Instant) clock.Instant {
	shown := w.conf.Clock.Shown(end)
	return w.clocks[node].best.Load().deadBy(shown, w.conf.Drift).Add(end.Sub(shown))
}

func (s *sample) notAfter(end clock.Instant, drift float64) int64 {
	if s == nil {
		return 0
	}
	return s.estimate(end) + s.uncertainty(end, drift).Microseconds() + 1
}

func (s *sample) deadBy(end clock.Instant, drift float64) clock.Instant {
	if s == nil {
		return end
	}
	return end.Add(2*s.uncertainty(end, drift) + time.Millisecond)
}

// uncertainty returns how far the estimate can be off at the local instant now, if the clock runs
// faster or slower by up to drift.
func (s sample) uncertainty(now clock.Instant, drift float64) time.Duration {
	return s.err + time.Duration(float64(now.Sub(s.at).Abs())*drift)
}

// better reports whether next should replace s: next is sharper than s has become with age, or
// the two contradict each other. Then the node's clock was stepped, and s is void.
func (s sample) better(next sample, drift float64) bool {
	known := s.uncertainty(next.at, drift)
	if next.err <= known {
		return true
	}
	apart := time.Duration(next.micros-s.estimate(next.at)) * time.Microsecond
	return apart.Abs() > known+next.err+time.Millisecond
}
