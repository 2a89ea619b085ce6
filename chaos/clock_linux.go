package chaos

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC. All processes of a machine share it, so that records of two
// processes can be ordered.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux always has it
	}
	return time.Duration(ts.Nano())
}

// sharedClock reports that [Now] is the same for all processes.
const sharedClock = true
