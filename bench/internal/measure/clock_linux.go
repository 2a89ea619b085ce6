package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is CLOCK_MONOTONIC, which all processes of a machine have in common.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("measure: clock: " + err.Error()) // the arguments are right
	}
	return time.Duration(ts.Nano())
}
