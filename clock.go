package redlock

import (
	"math"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// instant is a reading of the clock of a Locker, in nanoseconds. It does not wrap.
type instant = clock.Instant

const never = clock.Never

// driftAllowance returns the part of ttl that a lease loses, because clocks do not run at the
// same rate, and because Redis counts in whole milliseconds.
//
// Source: distlock, "MIN_VALIDITY"; ALGORITHM section 1, "drift".
func driftAllowance(ttl time.Duration, factor float64) time.Duration {
	return time.Duration(math.Ceil(float64(ttl)*factor)) + 2*time.Millisecond
}

// deadline returns the end of a lease whose requests were sent at start. Neither a late reply
// nor a wall clock moves it.
//
// Source: distlock, step 4 ("its validity time is considered to be the initial
// validity time minus the time elapsed"); ALGORITHM section 3, point 4.
func deadline(start instant, ttl, drift, grace time.Duration) instant {
	return start.Add(ttl).Add(-drift).Add(-grace)
}

// validity returns the time until the deadline. It is not positive once the lease is over.
func validity(deadline, now instant) time.Duration { return deadline.Sub(now) }
