package redlock

import (
	"math"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// Clock measures time. The library judges every validity by it. Timers that only wake a
// goroutine use package time.
//
// Now returns the time since an arbitrary fixed moment. It must never go back, and should go on
// while the machine is suspended. Now is called for every lock, under the library's mutexes: it
// must be safe for concurrent use, and must not block, panic or call the Locker.
//
// Source: ALGORITHM section 11.
type Clock interface {
	Now() time.Duration
}

// RuntimeClock is the monotonic clock of package time. It may stand still while
// the machine is suspended. Inside a testing/synctest bubble it is the bubble's
// clock, which makes it the right choice for tests that run there.
func RuntimeClock() Clock { return clock.Runtime() }

// instant is a reading of the Clock, in nanoseconds. It does not wrap.
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
