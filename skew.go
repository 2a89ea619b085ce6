package redlock

import (
	"fmt"
	"slices"
	"time"
)

// This file compares the clocks of the nodes with each other. Exclusion does not depend on
// that, but where a fencing counter was lost it starts anew from the node's clock.
//
// Source: ALGORITHM section 1, A4, and section 9.

// skew is how far a node's clock is from those of the others.
type skew struct {
	far, near time.Duration // from the median of all that are known; of two in the middle, from each
	uncertain time.Duration // how far that may be wrong
	known     bool          // enough clocks are known to tell
}

// over reports whether a distance is larger than limit for sure.
func (s skew) over(distance, limit time.Duration) bool {
	return s.known && distance.Abs()-s.uncertain > limit
}

func (w *watch) skew(index int) (s skew) {
	own := w.lanes[index].sample.Load()
	if own == nil {
		return s
	}
	var room [9]*sample
	samples, at := room[:0], own.at // the latest, which saves reading the clock
	for _, n := range w.lanes {
		if s := n.sample.Load(); s != nil {
			samples, at = append(samples, s), max(at, s.at)
		}
	}
	if len(samples) < quorum(len(w.lanes)) {
		return s
	}
	var micros [9]int64
	all, factor := micros[:0], w.lanes[index].conf.drift
	for _, one := range samples {
		all, s.uncertain = append(all, one.estimate(at)), max(s.uncertain, one.uncertainty(at, factor))
	}
	slices.Sort(all)
	from := func(median int64) time.Duration { return time.Duration(own.estimate(at)-median) * time.Microsecond }
	s.far, s.near = from(all[len(all)/2]), from(all[(len(all)-1)/2])
	if s.far.Abs() < s.near.Abs() {
		s.far, s.near = s.near, s.far
	}
	s.uncertain, s.known = s.uncertain+own.uncertainty(at, factor), true
	return s
}

// tooFar says that a node's clock is too far from the others for a vote; maybe, that it is
// or another one is: there are two in the middle that disagree.
func (w *watch) tooFar(index int, c *config) (err, maybe error) {
	s, limit := w.skew(index), maxSkew(c.maxTTL, c.drift)
	if !s.over(s.far, limit) || broken.ignoresSteps {
		return nil, nil
	}
	maybe = fmt.Errorf("clock is %v from the median of all nodes: no vote until it agrees", s.far.Round(time.Millisecond))
	if s.over(s.near, limit) {
		err = maybe
	}
	return err, maybe
}

// maxSkew is how far a node's clock may be from the median of all.
//
// Source: ALGORITHM section 1, "MaxSkew".
func maxSkew(maxTTL time.Duration, factor float64) time.Duration {
	return quarantine(maxTTL, factor) / 2
}
