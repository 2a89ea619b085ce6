//go:build !linux

package chaos

import "time"

var started = time.Now()

// Now returns the time since the start of this process: it orders records of one process only.
func Now() time.Duration { return time.Since(started) + 1 }

const sharedClock = false
