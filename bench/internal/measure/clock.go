package measure

import "time"

// Clock tells a time that all processes of this machine agree on.
type Clock struct {
	base   time.Time     // by Go's clock, which is cheap to read and of the same rate
	origin time.Duration // the common clock at base
}

// NewClock reads the two clocks a few times, and keeps the reading in which least time
// went by between them.
func NewClock() Clock {
	var best Clock
	least := time.Hour
	for range 20 {
		before := time.Now()
		origin := monotonic()
		if took := time.Since(before); took < least {
			best, least = Clock{before.Add(took / 2), origin}, took
		}
	}
	return best
}

// Now is the common time.
func (c Clock) Now() time.Duration { return c.origin + time.Since(c.base) }

// Until is how long it is from now to a common time.
func (c Clock) Until(t time.Duration) time.Duration { return t - c.Now() }
