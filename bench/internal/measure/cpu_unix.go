//go:build unix

package measure

import (
	"syscall"
	"time"
)

// CPUTime is what this process has used of the processors, in its own code and in
// the kernel. The servers are not in it.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("measure: getrusage: " + err.Error()) // the arguments are right
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
