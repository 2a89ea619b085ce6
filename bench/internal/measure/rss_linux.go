package measure

import (
	"fmt"
	"os"
)

// residentSet returns the bytes of memory that the system has given this process.
func residentSet() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize())
}
