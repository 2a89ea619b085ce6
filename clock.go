package redlock

import (
	"math"
	"sync/atomic"
	"time"
)

// Clock tells how much time has gone by. It is what every validity is judged
// by; timers that merely wake a goroutine use package time.
//
// Now returns the time since an arbitrary fixed moment, must never go back and
// should go on while the machine is suspended. It is called on every lock and
// must be safe for concurrent use.
//
// Source: ALGORITHM section 11.
type Clock interface {
	Now() time.Duration
}

// SystemClock is the default [Clock]. On Linux it is CLOCK_BOOTTIME, which goes
// on while the machine is suspended; elsewhere it is [RuntimeClock].
func SystemClock() Clock { return systemClock() }

// RuntimeClock is the monotonic clock of package time. It may stand still while
// the machine is suspended. Inside a testing/synctest bubble it is the bubble's
// clock, which makes it the right choice for tests that run there.
func RuntimeClock() Clock { return runtimeClock{start: time.Now()} }

type runtimeClock struct{ start time.Time }

func (c runtimeClock) Now() time.Duration { return time.Since(c.start) }

// leaseClock is what leases are judged by: the Locker's clock, and the time for which
// that is known to have stood still while the nodes' clocks went on.
//
// Source: ALGORITHM section 9 ("Add the median step to the elapsed time").
type leaseClock struct {
	Clock
	stood atomic.Int64 // nanoseconds; never falls
}

func newLeaseClock(c Clock) *leaseClock { return &leaseClock{Clock: c} }

// Now implements [Clock].
func (c *leaseClock) Now() time.Duration { return c.Clock.Now() + time.Duration(c.stood.Load()) }

// shown is what the Locker's clock itself showed, or will show, at an instant. Nodes'
// clocks are compared with that: what is added here moves no reading already taken.
func (c *leaseClock) shown(i instant) instant { return i.add(-time.Duration(c.stood.Load())) }

// instant is a reading of the Locker's leaseClock, in nanoseconds.
type instant int64

const never = instant(math.MaxInt64)

// add moves an instant and stops at the ends of the scale instead of wrapping.
func (i instant) add(d time.Duration) instant {
	sum := i + instant(d)
	switch {
	case d > 0 && sum < i:
		return never
	case d < 0 && sum > i:
		return math.MinInt64
	}
	return sum
}

// sub is the time from j to i. It stops at the ends of the scale.
func (i instant) sub(j instant) time.Duration {
	d := time.Duration(i - j)
	switch {
	case i > j && d < 0:
		return math.MaxInt64
	case i < j && d > 0:
		return math.MinInt64
	}
	return d
}

// driftAllowance is what a lease of ttl loses to clocks that do not run at the
// same rate, and to Redis counting in whole milliseconds.
//
// Source: distlock, "MIN_VALIDITY"; ALGORITHM section 1, "drift".
func driftAllowance(ttl time.Duration, factor float64) time.Duration {
	return time.Duration(math.Ceil(float64(ttl)*factor)) + 2*time.Millisecond
}

// deadline is the end of a lease whose requests were sent at start: no reply,
// however late, and no wall clock moves it.
//
// Source: distlock, step 4 ("its validity time is considered to be the initial
// validity time minus the time elapsed"); ALGORITHM section 3, point 4.
func deadline(start instant, ttl, drift, grace time.Duration) instant {
	return start.add(ttl).add(-drift).add(-grace)
}

// validity is what is left of a lease; it is not positive once the lease is over.
func validity(deadline, now instant) time.Duration { return deadline.sub(now) }

// cancelLead is how long before the deadline the holder's context ends.
//
// Source: ALGORITHM section 1, "CancelLead".
func cancelLead(ttl time.Duration) time.Duration {
	return max(ttl/50, 5*time.Millisecond)
}

// millis rounds up, so that a node never keeps a key for less than the TTL that
// the holder's validity was computed from.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// sample is one reading of a node's wall clock: when the Locker's clock showed at, the
// node's showed micros, give or take err.
type sample struct {
	micros int64
	at     instant
	err    time.Duration
}

// takeSample turns a node time received in a reply, between the local instants
// sent and received, into a sample.
//
// Source: ALGORITHM section 9, "est_i".
func takeSample(micros int64, sent, received instant) sample {
	half := received.sub(sent) / 2
	return sample{micros: micros, at: sent.add(half), err: half}
}

// estimate is the node's time at the local instant now, in microseconds.
func (s sample) estimate(now instant) int64 {
	return s.micros + now.sub(s.at).Microseconds()
}

// notAfter is the latest node time, in microseconds, at which a request that
// may live until the local instant end may still be carried out.
//
// Source: ALGORITHM sections 5 and 9.
func (s sample) notAfter(end instant, factor float64) int64 {
	return s.estimate(end) + s.uncertainty(end, factor).Microseconds() + 1
}

// deadBy is the local instant by which the node's clock has passed notAfter(end).
func (s sample) deadBy(end instant, factor float64) instant {
	return end.add(2*s.uncertainty(end, factor) + time.Millisecond)
}

// uncertainty is how far the estimate can be off at the local instant now, with a
// clock that runs faster or slower by up to factor.
func (s sample) uncertainty(now instant, factor float64) time.Duration {
	return s.err + time.Duration(float64(now.sub(s.at).Abs())*factor)
}

// better reports whether next should replace s: it is sharper than s has become
// with age, or the two contradict each other, which means that the node's clock
// was stepped and s is void.
func (s sample) better(next sample, factor float64) bool {
	known := s.uncertainty(next.at, factor)
	if next.err <= known {
		return true
	}
	apart := time.Duration(next.micros-s.estimate(next.at)) * time.Microsecond
	return apart.Abs() > known+next.err+time.Millisecond
}
