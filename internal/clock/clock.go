// Package clock has the clock by which leases are judged. It never goes back, and can be
// corrected after it has stood still.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

// Source returns the time since an arbitrary fixed moment.
type Source interface {
	Now() time.Duration
}

// Runtime returns the monotonic clock of package time, from now on.
func Runtime() Source { return runtimeClock{time.Now()} }

type runtimeClock struct{ start time.Time }

func (c runtimeClock) Now() time.Duration { return time.Since(c.start) }

// Lease is the clock by which leases are judged: a Source, and the time for which the Source is
// known to have stood still while the nodes' clocks went on.
//
// Source: ALGORITHM section 9 ("Add the median step to the elapsed time").
type Lease struct {
	Source Source
	origin Instant      // what the source showed at the instant 0
	stood  atomic.Int64 // nanoseconds; never falls
}

// NewLease returns a clock that has not stood still. Its instants are not negative, even if the
// source counts from a moment in the future: the instant 0 is before all others.
func NewLease(s Source) *Lease { return &Lease{Source: s, origin: min(Instant(s.Now()), 0)} }

// Now implements [Source].
func (c *Lease) Now() time.Duration { return time.Duration(c.Instant()) }

// Instant returns the present moment.
func (c *Lease) Instant() Instant {
	return Instant(Instant(c.Source.Now()).Sub(c.origin)).Add(c.Stood())
}

// Shown returns what the source itself showed, or will show, at an instant. The clocks of nodes
// are compared with that, because a correction does not change earlier readings of it.
func (c *Lease) Shown(i Instant) Instant { return i.Add(-c.Stood()) }

// Stood returns for how long the source is known to have stood still.
func (c *Lease) Stood() time.Duration { return time.Duration(c.stood.Load()) }

// StoodStill corrects the clock by d, which must not be negative.
func (c *Lease) StoodStill(d time.Duration) {
	for {
		old := c.stood.Load()
		if c.stood.CompareAndSwap(old, int64(Instant(old).Add(d))) {
			return
		}
	}
}

// Instant is a reading of a [Lease] clock, in nanoseconds.
type Instant int64

// The ends of the scale.
const (
	Never = Instant(math.MaxInt64)
	Start = Instant(math.MinInt64)
)

// Add moves an instant and stops at the ends of the scale instead of wrapping.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	switch {
	case d > 0 && sum < i:
		return Never
	case d < 0 && sum > i:
		return Start
	}
	return sum
}

// Missed returns how long a look at now comes too late for the moment i, or 0 if that is no longer than a timer takes: the process
// did not run then, and what has arrived meanwhile may not have been read.
func (i Instant) Missed(now Instant) time.Duration {
	if late := now.Sub(i); late > mostLate {
		return late
	}
	return 0
}

const mostLate = 5 * time.Millisecond

// Sub returns the time from j to i. It stops at the ends of the scale.
func (i Instant) Sub(j Instant) time.Duration {
	d := time.Duration(i - j)
	switch {
	case i > j && d < 0:
		return math.MaxInt64
	case i < j && d > 0:
		return math.MinInt64
	}
	return d
}
