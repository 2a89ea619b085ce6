package node

import (
	"context"
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
func (w *watch) times(shown clock.Instant) (t times) {
	t.limit = w.set.conf.maxSkew()
	var room [3][9]int64
	at, from, to := room[0][:0], room[1][:0], room[2][:0]
	for _, n := range w.set.nodes {
		if own, fresh := w.span(n.sample.Load(), shown); fresh {
			at, from, to = append(at, own.at), append(from, own.from), append(to, own.to)
		}
	}
	k := len(at)
	if k < w.set.conf.Quorum {
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
func (w *watch) span(s *sample, shown clock.Instant) (own span, fresh bool) {
	if s == nil {
		return own, false
	}
	u := s.uncertainty(shown, w.set.conf.Drift)
	if u > w.set.conf.maxSkew()/2 {
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
	over      bool          // a quorum of clocks is known, and the clock is certainly too far from the one or both in the middle
	maybeOver bool          // the two clocks in the middle disagree, and the clock is too far from one of them
	known     bool          // enough clocks are known to tell
}

func (w *watch) skew(index int, shown clock.Instant) (s skew) {
	own, fresh := w.span(w.set.nodes[index].sample.Load(), shown)
	t := w.times(shown)
	if !fresh || !t.known {
		return s
	}
	far, near := own.at-t.upper.at, own.at-t.lower.at
	if max(far, -far) < max(near, -near) {
		far = near
	}
	s.far, s.known = time.Duration(far)*time.Microsecond, true
	lower, upper := own.apart(t.lower).Abs() > t.limit, own.apart(t.upper).Abs() > t.limit
	s.over, s.maybeOver = lower && upper, lower || upper
	return s
}

// tooFar returns an error if a node's clock is too far from the others for a vote. With maybe it
// also returns an error if the two clocks in the middle disagree, and this clock is too far from
// one of them.
func (w *watch) tooFar(index int, shown clock.Instant) (err, maybe error) {
	s := w.skew(index, shown)
	if !s.maybeOver || !w.set.conf.Rules.Heeds(s.far) {
		return nil, nil
	}
	maybe = errSkewed(s.far)
	if s.over {
		err = maybe
	}
	return err, maybe
}

func errSkewed(far time.Duration) error {
	return fmt.Errorf("clock is %v from the median of all masters: no vote until it agrees", far.Round(time.Millisecond))
}

// Seed returns where a fencing counter that no node has should start, in microseconds: ahead of
// the nodes' clocks, so that all nodes start at the same number. It returns 0 if too few clocks
// are known.
//
// Source: ALGORITHM section 4.
func (s *Set) Seed(now clock.Instant, timeout time.Duration) int64 {
	median := s.Median(now)
	if median == 0 {
		return 0
	}
	return median + timeout.Microseconds()
}

// Median returns the present median of the nodes' clocks, in microseconds. It returns 0 if too few clocks
// are known.
func (s *Set) Median(now clock.Instant) int64 {
	shown := s.conf.Clock.Shown(now)
	return s.watch.times(shown).median(shown)
}

// shown returns the local clock without corrections, for comparison with the nodes' clocks.
func (s *Set) shown() clock.Instant { return s.conf.Clock.Shown(s.conf.Clock.Instant()) }

// AwaitClocks asks for the nodes' clocks if their median is not known, because the process is new
// or was idle for long. It waits, for d at most, until the median is known, no other clock can be
// read, ctx ends or done is closed. A node whose clock is not known then may lack a vote.
// AwaitClocks returns the present moment, which is now if it has not waited.
func (s *Set) AwaitClocks(ctx context.Context, done <-chan struct{}, now clock.Instant, d time.Duration) clock.Instant {
	if s.Median(now) != 0 {
		return now
	}
	w := s.watch
	w.mu.Lock()
	ready := w.ready
	if ready == nil {
		ready = make(chan struct{})
		w.ready = ready
	}
	w.wanted.Store(true)
	w.mu.Unlock()
	for _, n := range s.nodes {
		n.wantSample.Store(true)
		n.poke()
	}
	w.tell(s.shown()) // the median may have become known meanwhile
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	case <-ctx.Done():
	case <-done:
	}
	return s.conf.Clock.Instant()
}

// tell wakes the calls that wait for the clocks, if there is nothing more to wait for.
func (w *watch) tell(shown clock.Instant) {
	if !w.wanted.Load() {
		return
	}
	down, open := 0, 0 // nodes that cannot tell their time, and nodes that have not told it yet
	for _, n := range w.set.nodes {
		if n.standing.Load().Down != nil {
			down++
		} else if _, fresh := w.span(n.sample.Load(), shown); !fresh {
			open++
		}
	}
	if w.times(shown).median(shown) == 0 && open > 0 && len(w.set.nodes)-down >= w.set.conf.Quorum {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready != nil {
		close(w.ready)
		w.ready = nil
	}
	w.wanted.Store(false)
}

// TooFar returns an error if a voter's clock is too far from the others at the present moment. If certain is false, the
// two clocks in the middle disagree, and this clock or another one is too far.
func (n *Node) TooFar(now clock.Instant) (err error, certain bool) {
	sure, maybe := n.set.watch.tooFar(n.index, n.conf.Clock.Shown(now))
	return maybe, sure != nil
}

// Skew returns how far the node's clock is from the median of all clocks, and whether that is too
// far. known reports whether enough clocks are known.
func (n *Node) Skew() (far time.Duration, tooFar, known bool) {
	s := n.set.watch.skew(n.index, n.set.shown())
	return s.far, s.maybeOver, s.known
}
