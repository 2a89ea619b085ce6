package redlock

import "time"

// crowds remembers for which resources other processes wait. That is told by gates, and
// holds for a TTL.
type crowds struct {
	until   map[string]time.Time
	sweepAt int
}

func (s *crowds) known(resource string, now time.Time) bool {
	return len(s.until) > 0 && now.Before(s.until[resource])
}

func (s *crowds) note(resource string, crowded bool, ttl time.Duration) {
	if !crowded {
		delete(s.until, resource)
		return
	}
	now := time.Now()
	if s.until == nil {
		s.until = make(map[string]time.Time)
	}
	s.until[resource] = now.Add(ttl)
	if len(s.until) > s.sweepAt {
		for r, end := range s.until {
			if !now.Before(end) {
				delete(s.until, r)
			}
		}
		s.sweepAt = 2*len(s.until) + 64
	}
}
