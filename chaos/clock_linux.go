package chaos

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC, which all processes of a machine share: what two of them
// saw can be put in order.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no Linux without it
	}
	return time.Duration(ts.Nano())
}

// sharedClock reports that [Now] is the same for all processes.
const sharedClock = true
