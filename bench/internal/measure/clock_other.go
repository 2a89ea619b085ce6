//go:build !linux

package measure

import "time"

// monotonic returns the wall clock on systems without a better one. All processes share it,
// but a step during a measurement spoils that.
func monotonic() time.Duration { return time.Duration(time.Now().UnixNano()) }
