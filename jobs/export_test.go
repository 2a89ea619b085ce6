package jobs

import "time"

// SetClock gives the Locker another wall clock, as on a machine whose clock is behind or ahead.
func (l *Locker) SetClock(now func() time.Time) { l.now = now }
