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

func (t *Lines[H, C]) severalLocked(queue string) *several[H, C] {
	if t.several == nil {
		t.several = make(map[string]*several[H, C])
	}
	if t.several[queue] == nil {
		t.several[queue] = &several[H, C]{holders: make(map[H]bool)}
	}
	return t.several[queue]
}

// JoinAny puts a caller at the end of a line for any of several resources: a new one, or if there are
// mostSlots that whose last caller came first.
func (t *Lines[H, C]) JoinAny(queue string, call C) *Caller[H, C] {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.severalLocked(queue)
	if len(s.lines) == mostSlots {
		return t.joinLocked(slices.MinFunc(s.lines, func(a, b *Line[H, C]) int { return a.rear.arrival - b.rear.arrival }).key, call)
	}
	l := t.lineLocked(Key{Resource: queue, Slot: t.joined + 1})
	l.began = time.Now()
	s.lines = append(s.lines, l)
	return t.joinLocked(l.key, call)
}

// HeldAny notes that the process has one of several resources by h.
func (t *Lines[H, C]) HeldAny(queue string, h H) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.severalLocked(queue).holders[h] = true
}

// freedSeveralLocked notes that a holder does not have one of several resources any more. No caller took it
// over, so the first one joins the queue.
func (t *Lines[H, C]) freedSeveralLocked(key Key, h H) {
	if s := t.several[key.Resource]; s != nil && s.holders[h] {
		delete(s.holders, h)
		if len(s.lines) > 0 {
			s.lines[0].began = time.Time{}
			s.lines[0].first.Poke()
		}
		t.dropSeveralLocked(key.Resource)
	}
}

// tidySeveralLocked drops a line without a caller.
func (t *Lines[H, C]) tidySeveralLocked(l *Line[H, C]) {
	s := t.several[l.key.Resource]
	s.lines = slices.DeleteFunc(s.lines, func(other *Line[H, C]) bool { return other == l })
	t.dropSeveralLocked(l.key.Resource)
}

func (t *Lines[H, C]) dropSeveralLocked(queue string) {
	if s := t.several[queue]; len(s.lines)+len(s.holders) == 0 {
		delete(t.several, queue)
	}
}

// queued returns how many lines of the process are in the queue, for a request that does not name the process.
func (s *several[H, C]) queued(key Key) (n int) {
	if s == nil || key.Slot > 0 {
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
func (s *several[H, C]) firstHeir(h H) (first *Line[H, C]) {
	for _, l := range s.lines {
		if l.Heir(h) != nil && (first == nil || l.first.arrival < first.first.arrival) {
			first = l
		}
	}
	return first
}

// pause returns how long a line waits before it joins the queue: while the process has some of the resources,
// a lease that is handed over may come first, and costs no message.
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
