//go:build !linux

package chaos

import "time"

var started = time.Now()

// Now is the time since this process was started: good for one process only.
func Now() time.Duration { return time.Since(started) + 1 }

const sharedClock = false
