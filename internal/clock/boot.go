package clock

import (
	"sync/atomic"
	"time"
)

// bootClock goes on while the machine is suspended. Package time reads its clocks without a system call, but its
// monotonic clock stands still in suspend. So bootClock adds the time that the machine has slept, and asks the system for that
// each second, and as soon as the wall clock and the monotonic clock have moved apart: a suspend moves them apart by the time
// slept, which bootClock notices so with the first reading.
type bootClock struct {
	boot  func() time.Duration              // goes on in suspend, and costs a system call
	both  func() (wall, mono time.Duration) // do not
	known atomic.Pointer[sleep]
}

// sleep has what the process knows of the time that the machine has slept.
type sleep struct {
	slept time.Duration // at least, and less than apartAt more; never falls
	ahead time.Duration // of the wall clock, before the monotonic one
	until time.Duration // by the monotonic clock: the time slept is asked for again
}

const (
	apartAt   = 100 * time.Microsecond // from here on the wall clock and the monotonic one have moved apart
	askAgain  = time.Second
	mostReads = 8 // of the three clocks, until nothing came in between
)

// newBootClock returns a clock that shows what boot does.
func newBootClock(boot func() time.Duration) *bootClock {
	start := time.Now()
	return &bootClock{boot: boot, both: func() (wall, mono time.Duration) {
		now := time.Now()
		return time.Duration(now.UnixNano()), now.Sub(start)
	}}
}

// Now implements [Source].
func (c *bootClock) Now() time.Duration {
	wall, mono := c.both()
	if k := c.known.Load(); k != nil && mono < k.until && (wall-mono-k.ahead).Abs() < apartAt {
		return mono + k.slept
	}
	for reads := 1; ; reads++ {
		boot := c.boot()
		_, after := c.both()
		clean := after-mono < apartAt
		if clean || reads == mostReads { // otherwise the goroutine was interrupted
			next := &sleep{slept: boot - after, ahead: wall - mono, until: after + askAgain}
			if !clean {
				next.until = after
			}
			return after + c.learn(next)
		}
		wall, mono = c.both()
	}
}

// learn keeps what is known. It returns the time slept.
func (c *bootClock) learn(next *sleep) time.Duration {
	for {
		k := c.known.Load()
		if k != nil {
			next.slept = max(next.slept, k.slept) // the clock never goes back
		}
		if c.known.CompareAndSwap(k, next) {
			return next.slept
		}
	}
}
