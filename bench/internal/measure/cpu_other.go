//go:build !unix

package measure

import "time"

// CPUTime is not known here; the metric is 0.
func CPUTime() time.Duration { return 0 }
