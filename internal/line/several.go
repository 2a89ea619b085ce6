package line

import (
	"slices"
	"time"
)

// several has what a process has and wants of several resources that are waited for as one.
//
// Source: ALGORITHM section 10, "Any of several".
type several[H comparable, C any] struct {
	lines   []*Line[H, C] // with a caller
	holders map[H]bool    // by which the process has some of the resources
}

// mostSlots is how many callers of a process stand in the queue of several resources at a time. The
// others wait behind them.
const mostSlots = 128

func (ls *Lines[H, C]) severalLocked(queue string) *several[H, C] {
	if ls.several == nil {
		ls.several = make(map[string]*several[H, C])
	}
	if ls.several[queue] == nil {
		ls.several[queue] = &several[H, C]{holders: make(map[H]bool)}
	}
	return ls.several[queue]
}

// JoinAny puts a caller at the end of a line for any of several resources: a new one, or if there are
// mostSlots that whose last caller came first.
func (ls *Lines[H, C]) JoinAny(queue string, call C) *Caller[H, C] {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.severalLocked(queue)
	if len(s.lines) == mostSlots {
		return ls.joinLocked(slices.MinFunc(s.lines, func(a, b *Line[H, C]) int { return a.rear.arrival - b.rear.arrival }).key, call)
	}
	l := ls.lineLocked(Key{Resource: queue, Slot: ls.joined + 1})
	l.began = time.Now()
	s.lines = append(s.lines, l)
	return ls.joinLocked(l.key, call)
}

// HeldAny notes that the process has one of several resources by h.
func (ls *Lines[H, C]) HeldAny(queue string, h H) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.severalLocked(queue).holders[h] = true
}

// freedSeveralLocked notes that a holder does not have one of several resources any more. No caller took the
// resource over, so the first caller joins the queue.
func (ls *Lines[H, C]) freedSeveralLocked(key Key, h H) {
	if s := ls.several[key.Resource]; s != nil && s.holders[h] {
		delete(s.holders, h)
		if len(s.lines) > 0 {
			s.lines[0].began = time.Time{}
			s.lines[0].first.Poke()
		}
		ls.dropSeveralLocked(key.Resource)
	}
}

// tidySeveralLocked drops a line without a caller.
func (ls *Lines[H, C]) tidySeveralLocked(l *Line[H, C]) {
	if s := ls.several[l.key.Resource]; s != nil {
		s.lines = slices.DeleteFunc(s.lines, func(other *Line[H, C]) bool { return other == l })
		ls.dropSeveralLocked(l.key.Resource)
	}
}

func (ls *Lines[H, C]) dropSeveralLocked(queue string) {
	if s := ls.several[queue]; len(s.lines)+len(s.holders) == 0 {
		delete(ls.several, queue)
	}
}

// queued returns how many lines of the process are in the queue, for a request that does not name the process.
func (s *several[H, C]) queued(key Key) (n int) {
	if s == nil || key != key.queue() {
		return 0
	}
	for _, l := range s.lines {
		if l.QueuedAt != Nowhere {
			n++
		}
	}
	return n
}

// firstHeir returns the line whose head came first, of those that can take over a lease.
func (s *several[H, C]) firstHeir() (first *Line[H, C]) {
	for _, l := range s.lines {
		if l.Heir() != nil && (first == nil || l.first.arrival < first.first.arrival) {
			first = l
		}
	}
	return first
}

// pause returns how long a line waits before it joins the queue: half a HandOverDelay for each line before it,
// 16 at most, and a whole one while the process has some of the resources. A lease that is handed over may come
// first, and costs no message.
func (s *several[H, C]) pause(l *Line[H, C], now time.Time) time.Duration {
	if s == nil || l.Failures > 0 {
		return 0
	}
	wait := min(time.Duration(slices.Index(s.lines, l)), 16) * l.policy.HandOverDelay / 2
	if len(s.holders) > 0 {
		wait += l.policy.HandOverDelay
	}
	return wait - now.Sub(l.began)
}
