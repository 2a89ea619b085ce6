package clockwatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// This file compares the clocks of the nodes with each other. Exclusion does not depend on that.
// Fencing counters do: a counter that was lost starts anew from the clocks, and a counter that is
// far ahead of a clock is wrong. Quarantines do, too: each is counted by the node's own clock.
//
// Source: ALGORITHM section 1, A4, and section 9.

// span is where a clock is against the local one, in microseconds: probably, and for certain.
type span struct{ at, from, to int64 }

// apart returns how far two clocks are apart at least: negative if s is behind.
func (s span) apart(other span) time.Duration {
	switch {
	case s.from > other.to:
		return time.Duration(s.from-other.to) * time.Microsecond
	case s.to < other.from:
		return time.Duration(s.to-other.from) * time.Microsecond
	}
	return 0
}

// times has the median of the nodes' clocks at one moment, by the samples that are fresh.
type times struct {
	lower, upper span // the two clocks in the middle; the same clock if their number is odd
	limit        time.Duration
	known        bool // a quorum of the samples is fresh
}

// times returns the times of the nodes' clocks when the local clock shows shown. A sample gets
// less certain with its age. A sample that has become too uncertain is left out, so that a dead
// node does not hide the clocks of the others.
func (w *Watch) times(shown clock.Instant) (t times) {
	t.limit = w.conf.MaxSkew
	var room [3][9]int64
	at, from, to := room[0][:0], room[1][:0], room[2][:0]
	for _, c := range w.clocks {
		if own, fresh := w.span(c.best.Load(), shown); fresh {
			at, from, to = append(at, own.at), append(from, own.from), append(to, own.to)
		}
	}
	k := len(at)
	if k < w.conf.Quorum {
		return t
	}
	slices.Sort(at)
	slices.Sort(from)
	slices.Sort(to)
	low, high := (k-1)/2, k/2
	t.lower, t.upper = span{at[low], from[low], to[low]}, span{at[high], from[high], to[high]}
	t.known = true
	return t
}

// span returns where the clock of a sample is when the local clock shows shown.
func (w *Watch) span(s *sample, shown clock.Instant) (own span, fresh bool) {
	if s == nil {
		return own, false
	}
	u := s.uncertainty(shown, w.conf.Drift)
	if u > w.conf.MaxSkew/2 {
		return own, false
	}
	offset := s.micros - time.Duration(s.at).Microseconds()
	return span{offset, offset - u.Microseconds() - 1, offset + u.Microseconds() + 1}, true
}

// median returns the time of the clock in the middle, in microseconds. It is 0 if too few clocks
// are known, or if the two clocks in the middle disagree.
func (t times) median(shown clock.Instant) int64 {
	if !t.known || t.upper.apart(t.lower) > t.limit {
		return 0
	}
	return time.Duration(shown).Microseconds() + t.upper.at
}

// skew is how far a node's clock is from those of the others.
type skew struct {
	far       time.Duration // from the clock in the middle; if there are two, from the farther one
	over      bool          // the clock is certainly too far from the one or both in the middle
	maybeOver bool          // the clock is too far from one of those in the middle
	known     bool          // enough clocks are known to tell
}

func (w *Watch) skew(node int, shown clock.Instant) (s skew) {
	own, fresh := w.span(w.clocks[node].best.Load(), shown)
	t := w.times(shown)
	if !fresh || !t.known {
		return s
	}
	far, near := own.at-t.upper.at, own.at-t.lower.at
	if max(far, -far) < near { // near is never below far
		far = near
	}
	s.far, s.known = time.Duration(far)*time.Microsecond, true
	lower, upper := own.apart(t.lower).Abs() > t.limit, own.apart(t.upper).Abs() > t.limit
	s.over, s.maybeOver = lower && upper, lower || upper
	return s
}

// Skewed is the error of a node whose clock is so far from the median of all.
type Skewed time.Duration

func (s Skewed) Error() string {
	return fmt.Sprintf("clock is %v from the median of all masters: no vote until it agrees", time.Duration(s).Round(time.Millisecond))
}

// TooFar returns an error if a node's clock is too far from the others for a vote. If certain is
// false, the two clocks in the middle disagree, and this clock or another one is too far.
func (w *Watch) TooFar(node int, at Moment) (err error, certain bool) {
	return w.tooFar(node, at.shown)
}

func (w *Watch) tooFar(node int, shown clock.Instant) (err error, certain bool) {
	s := w.skew(node, shown)
	if !s.maybeOver || !w.conf.Rules.Heeds(s.far) {
		return nil, false
	}
	return Skewed(s.far), s.over
}

// Skew returns how far a node's clock is from the median of all clocks, and whether that is too
// far. known reports whether enough clocks are known.
func (w *Watch) Skew(node int, at Moment) (far time.Duration, tooFar, known bool) {
	s := w.skew(node, at.shown)
	return s.far, s.maybeOver, s.known
}

// Median returns the median of the nodes' clocks at a moment, in microseconds. It returns 0 if
// too few clocks are known.
func (w *Watch) Median(at Moment) int64 { return w.times(at.shown).median(at.shown) }

// Seed returns where a fencing counter that no node has should start, in microseconds: ahead of
// the nodes' clocks by timeout, a second at most, so that all nodes start at the same number. It returns 0 if too few clocks
// are known.
//
// Source: ALGORITHM section 4.
func (w *Watch) Seed(at Moment, timeout time.Duration) int64 {
	median := w.Median(at)
	if median == 0 {
		return 0
	}
	return median + min(timeout, time.Second).Microseconds()
}
