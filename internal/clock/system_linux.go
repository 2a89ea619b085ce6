package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// Clocks of linux/time.h, which package syscall does not name.
const (
	clockRealtime = 0
	clockBoottime = 7
)

// read reads a clock by a raw system call. The runtime only offers CLOCK_MONOTONIC, which stands still in suspend.
func read(clock uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}

// System returns the clock that goes on while the machine is suspended. It returns that of [Runtime] if the
// kernel is older than 2.6.39, or a sandbox forbids the call, and in a testing/synctest bubble, where a clock of
// the machine would stand still while the time of the bubble runs.
func System() Source {
	if _, ok := read(clockBoottime); !ok || inBubble() {
		return Runtime()
	}
	return newBootClock(func() time.Duration {
		d, _ := read(clockBoottime)
		return d
	})
}

// inBubble reports whether the time of package time is not that of the machine: in a bubble it begins in the
// year 2000.
func inBubble() bool {
	wall, ok := read(clockRealtime)
	return ok && wall-time.Duration(time.Now().UnixNano()) > 365*24*time.Hour
}
