package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC, which all processes of a machine share: so the sections of two
// processes can be ordered.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("measure: clock: " + err.Error()) // the arguments are valid
	}
	return time.Duration(ts.Nano())
}

// CPUTime returns the processor time of this process, in its own code and in the kernel. The
// servers are not included.
func CPUTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic("measure: getrusage: " + err.Error()) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
