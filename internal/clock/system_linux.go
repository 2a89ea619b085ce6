package clock

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME in linux/time.h; package syscall does not name it

type bootClock struct{}

// Now reads CLOCK_BOOTTIME by a raw system call. The runtime only offers CLOCK_MONOTONIC, which
// stands still in suspend.
func (bootClock) Now() time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// System returns the clock that goes on while the machine is suspended. If the kernel is older than
// 2.6.39, or a sandbox forbids the call, System returns that of [Runtime].
func System() Source {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return Runtime()
	}
	return bootClock{}
}
