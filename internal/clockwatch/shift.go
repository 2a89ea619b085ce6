package clockwatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// This file compares a sample of one clock with earlier ones, and the shifts of all clocks with
// each other. It has no state but the samples.
//
// Source: ALGORITHM section 9.

// slack is how far two clocks may move apart between two readings without a step.
const slack = 5 * time.Millisecond

// Shift has the bounds of how far a node's clock moved against the local clock between two
// samples.
type Shift struct{ Least, Most time.Duration }

func shiftBetween(old, next sample, drift float64) Shift {
	moved := time.Duration(next.micros-old.micros) * time.Microsecond
	longest := next.at.Add(next.err).Sub(old.at.Add(-old.err))
	shortest := next.at.Add(-next.err).Sub(old.at.Add(old.err))
	return Shift{
		Least: moved - time.Duration(float64(longest)*(1+drift/2)),
		Most:  moved - time.Duration(float64(shortest)*(1-drift/2)),
	}
}

// stepped reports whether drift cannot explain the shift.
func (s Shift) stepped() bool { return s.Least > slack || s.Most < -slack }

func (s Shift) size() time.Duration { return s.Least + (s.Most-s.Least)/2 }

// alike reports whether the shift can be one of size.
func (s Shift) alike(size time.Duration) bool {
	return s.Least-slack <= size && size <= s.Most+slack
}

// maybe reports whether the clock can have moved by size. The samples of a node far away do not
// show a small step.
func (s Shift) maybe(size time.Duration) bool {
	if s.stepped() {
		return s.alike(size)
	}
	return s.Least <= size && size <= s.Most
}

// Cause is the result of a round that compares all clocks.
type Cause int

// The causes.
const (
	CauseOpen   Cause = iota // more nodes have to be looked at
	CauseNodes               // the clocks of some nodes stepped, each by itself
	CauseLocal               // the local clock stood still
	CauseEither              // either of them; the nodes that could tell do not answer
)

// WhoseStep judges the shifts of the nodes; a shift that is not known is nil. typical is the
// median of the shifts that are steps.
func WhoseStep(quorum int, shifts []*Shift, timeUp bool) (c Cause, typical Shift) {
	var steps []Shift
	unknown := 0
	for _, s := range shifts {
		switch {
		case s == nil:
			unknown++
		case s.stepped():
			steps = append(steps, *s)
		}
	}
	if len(steps) == 0 {
		return CauseNodes, Shift{}
	}
	slices.SortFunc(steps, func(a, b Shift) int { return cmp.Compare(a.size(), b.size()) })
	typical = steps[len(steps)/2]
	alike := 0
	for _, s := range shifts {
		if s != nil && s.maybe(typical.size()) {
			alike++
		}
	}
	switch {
	case alike >= quorum:
		return CauseLocal, typical
	case alike+unknown < quorum:
		return CauseNodes, typical
	case timeUp:
		return CauseEither, typical
	}
	return CauseOpen, typical
}

// view is the samples of a node's clock with which a new one is compared, however old they are. A
// step is clearest against the latest sample. The sharpest samples of this half of MaxTTL and of
// the half before show a clock that is fast, or that steps while a reply is slow.
type view struct {
	latest, young, old base
	turned             clock.Instant // when young began
	epoch              int64         // in which the samples were taken
}

type base struct {
	sample
	known bool
}

func (v *view) forget() { v.latest.known, v.young.known, v.old.known = false, false, false }

// compare returns the shift of the clock since one of the earlier samples, if possible since a
// sample that shows a step.
func (v *view) compare(next sample, maxTTL time.Duration, drift float64) (s Shift, known bool) {
	for _, b := range [...]*base{&v.latest, &v.young, &v.old} {
		if !b.known {
			continue
		}
		if s, known = shiftBetween(b.sample, next, drift), true; s.stepped() {
			v.forget()
			break
		}
	}
	v.latest = base{next, true}
	switch {
	case !v.young.known || next.at.Sub(v.turned) > maxTTL/2:
		v.old, v.young, v.turned = v.young, v.latest, next.at
	case next.err < v.young.err:
		v.young = v.latest
	}
	return s, known
}
