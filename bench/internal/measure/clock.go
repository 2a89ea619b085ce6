package measure

import "time"

// Clock tells a time that all processes of this machine share.
type Clock struct {
	base   time.Time     // by Go's clock, which is cheap to read and has the same rate
	origin time.Duration // the shared clock at base
}

// NewClock reads the two clocks a few times, and keeps the pair of readings that are
// closest to each other.
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

// Now returns the shared time.
func (c Clock) Now() time.Duration { return c.origin + time.Since(c.base) }

// Until returns the time from now to a shared time.
func (c Clock) Until(t time.Duration) time.Duration { return t - c.Now() }
