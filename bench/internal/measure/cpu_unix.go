//go:build unix

package measure

import (
	"syscall"
	"time"
)

// CPUTime returns the processor time of this process, in its own code and in the kernel. The
// servers are not included.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("measure: getrusage: " + err.Error()) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
