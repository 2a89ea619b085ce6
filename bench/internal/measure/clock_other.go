//go:build !linux

package measure

import "time"

// monotonic is the wall clock where nothing better is known: it is common to all
// processes, and a step while something is measured spoils that.
func monotonic() time.Duration { return time.Duration(time.Now().UnixNano()) }
