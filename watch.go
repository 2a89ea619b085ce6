package redlock

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file watches the clocks. A node expires keys by its wall clock: one that is put
// forward drops a lock that its holder still counts on. Each reply tells the node's time,
// and two replies tell whether that clock moved as the local one did. If one node's did
// not, the node was stepped. If those of a quorum did not, all alike, it was the local
// clock that stood still, as it does in a virtual machine that is paused.
//
// Source: ALGORITHM section 9.

// clockSlack is what two clocks may move apart between two readings for no reason.
const clockSlack = 5 * time.Millisecond

// shift is by how much a node's clock moved against the local one between two samples:
// by something from least to most.
type shift struct{ least, most time.Duration }

func shiftBetween(old, next sample, factor float64) shift {
	moved := time.Duration(next.micros-old.micros) * time.Microsecond
	longest := next.at.add(next.err).sub(old.at.add(-old.err))
	shortest := next.at.add(-next.err).sub(old.at.add(old.err))
	return shift{
		least: moved - time.Duration(float64(longest)*(1+factor/2)),
		most:  moved - time.Duration(float64(shortest)*(1-factor/2)),
	}
}

// stepped reports that no drift explains the shift.
func (s shift) stepped() bool { return s.least > clockSlack || s.most < -clockSlack }

func (s shift) size() time.Duration { return s.least + (s.most-s.least)/2 }

// alike reports whether the shift can be one of size.
func (s shift) alike(size time.Duration) bool {
	return s.least-clockSlack <= size && size <= s.most+clockSlack
}

// maybe reports whether the clock can have moved by size: that of a node far away does not
// show a small step.
func (s shift) maybe(size time.Duration) bool {
	if s.stepped() {
		return s.alike(size)
	}
	return s.least <= size && size <= s.most
}

// cause is what a round of looking at all clocks found.
type cause int

const (
	causeOpen   cause = iota // more nodes have to be looked at
	causeNodes               // the nodes that stepped did so each by itself
	causeLocal               // it was the local clock
	causeEither              // it may be one or the other, and the nodes that could tell do not answer
)

// whoseStep judges the shifts of n nodes, of which some are not known: nil. typical is the
// median of those that stepped.
func whoseStep(n int, shifts []*shift, timeUp bool) (c cause, typical shift) {
	var steps []shift
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
		return causeNodes, shift{}
	}
	slices.SortFunc(steps, func(a, b shift) int { return cmp.Compare(a.size(), b.size()) })
	typical = steps[len(steps)/2]
	alike := 0
	for _, s := range shifts {
		if s != nil && s.maybe(typical.size()) {
			alike++
		}
	}
	switch {
	case alike >= quorum(n):
		return causeLocal, typical
	case alike+unknown < quorum(n):
		return causeNodes, typical
	case timeUp:
		return causeEither, typical
	}
	return causeOpen, typical
}

// watch compares what the lanes see of their nodes' clocks. As long as no clock steps it
// has nothing to do.
type watch struct {
	clock  *leaseClock
	lanes  []*lane
	keeper *keeper
	events *events

	epoch atomic.Int64 // rises before the clock is corrected; samples from before are worthless
	open  atomic.Bool  // some clock stepped, and it is not clear yet whose

	mu     sync.Mutex
	opened instant  // guarded by mu; when the step was seen that the round is about
	shifts []*shift // guarded by mu; by lane, since then
}

// observe takes by how much a lane saw its node's clock shift, up to its latest sample.
func (w *watch) observe(index int, s shift, latest sample, epoch int64) {
	stepped := s.stepped()
	if !stepped && !w.open.Load() {
		return // as nearly always
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch != w.epoch.Load() {
		w.order(index, orderTrust) // it was the local clock, as has been found out meanwhile
		return
	}
	if !w.open.Load() {
		if !stepped {
			return
		}
		w.open.Store(true)
		w.opened = latest.at.add(latest.err)
		w.shifts = make([]*shift, len(w.lanes))
		for i, n := range w.lanes {
			if i != index {
				n.wantSample.Store(true)
				n.poke()
			}
		}
	}
	// That a clock did not step is only known from what was sent after the step: before
	// that, a machine that stood still may have had replies under way.
	if asked := latest.at.add(-latest.err); stepped || w.shifts[index] == nil && asked >= w.opened {
		kept := s
		w.shifts[index] = &kept
	}
	w.judgeLocked(false)
}

// timeUp ends the round without the nodes that have not answered. A lane that is still in
// doubt has an order after that.
func (w *watch) timeUp(index int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() {
		w.judgeLocked(true)
	}
	if w.lanes[index].orders.Load() == 0 {
		w.order(index, orderDoubt)
	}
}

func (w *watch) judgeLocked(timeUp bool) {
	c, typical := whoseStep(len(w.lanes), w.shifts, timeUp)
	if c == causeOpen {
		return
	}
	w.open.Store(false)
	if c != causeNodes {
		w.correct(typical)
	}
	for i, s := range w.shifts {
		if s == nil || !s.stepped() {
			continue
		}
		switch c {
		case causeLocal:
			w.order(i, orderTrust)
		case causeNodes:
			w.events.nodeStepped(w.lanes[i].addr, s.size())
			w.order(i, orderMark)
		case causeEither:
			w.order(i, orderDoubt)
		}
	}
}

// correct has the leases end earlier by what the local clock may have stood still. What
// lanes saw of their nodes' clocks before is worth nothing after that: one that is back
// later cannot see the same step again.
func (w *watch) correct(s shift) {
	w.epoch.Add(1)
	if s.least > 0 {
		w.clock.stood.Add(int64(s.most))
		w.events.stoodStill(s.most)
		w.keeper.poke() // some leases are over
	}
	for _, n := range w.lanes { // all begin anew, or the next time would go unnoticed
		n.wantSample.Store(true)
		n.poke()
	}
}

func (w *watch) order(index int, o order) {
	w.lanes[index].orders.Or(int32(o))
	w.lanes[index].poke()
}

// forget leaves out what was seen of a node's clock: there is another node now.
func (w *watch) forget(index int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open.Load() {
		return
	}
	w.shifts[index] = nil
	if !slices.ContainsFunc(w.shifts, func(s *shift) bool { return s != nil && s.stepped() }) {
		w.open.Store(false)
	}
}

// order is what the watch has to say to a lane that saw its node's clock step.
type order int32

const (
	orderTrust order = 1 << iota // it was not the node
	orderDoubt                   // it may have been
	orderMark                    // it was
)

// moment is a reading of the local clock that a node's is compared with.
type moment struct {
	shown instant
	epoch int64
}

func (n *lane) moment() moment { return n.momentAt(n.now()) }

func (n *lane) momentAt(now instant) moment {
	return moment{shown: n.conf.clock.shown(now), epoch: n.watch.epoch.Load()}
}

// clockView is what a lane's goroutine knows of its node's clock.
type clockView struct {
	// What a new sample is compared with, however old: the latest, as a step is clearest
	// there, and the sharpest of this half of MaxTTL and of the last, for a clock that is
	// only fast, or steps while a reply is slow.
	latest, young, old base
	turned             instant // when young began
	epoch              int64   // in which they were taken

	suspect bool    // the clock stepped, and what that means is open: no votes
	judgeBy instant // when it has to be clear
	marking bool    // the node has to be told that it has no vote
	until   instant // no votes before this: for a node that cannot be told
}

type base struct {
	sample
	known bool
}

func newClockView() clockView { return clockView{until: math.MinInt64} }

func (v *clockView) forget() { v.latest.known, v.young.known, v.old.known = false, false, false }

// compare is by how much the clock shifted since one of the earlier samples, one that shows
// a step if there is such a one.
func (v *clockView) compare(next sample, maxTTL time.Duration, factor float64) (s shift, known bool) {
	for _, b := range [...]*base{&v.latest, &v.young, &v.old} {
		if !b.known {
			continue
		}
		if s, known = shiftBetween(b.sample, next, factor), true; s.stepped() {
			v.forget()
			break
		}
	}
	v.latest = base{next, true}
	switch {
	case !v.young.known || next.at.sub(v.turned) > maxTTL/2:
		v.old, v.young, v.turned = v.young, v.latest, next.at
	case next.err < v.young.err:
		v.young = v.latest
	}
	return s, known
}

// observeClock takes the node's time from the reply to what was sent at a moment.
func (n *lane) observeClock(micros int64, sent moment, received instant) {
	next := takeSample(micros, sent.shown, n.conf.clock.shown(received))
	if n.watch.epoch.Load() != sent.epoch {
		return // the clock was corrected meanwhile: one of the two is wrong by that
	}
	v := &n.view
	if v.epoch != sent.epoch {
		v.forget()
		v.epoch = sent.epoch
	}
	if moved, known := v.compare(next, n.conf.maxTTL, n.conf.drift); known && !broken.ignoresSteps {
		if moved.stepped() && !v.suspect {
			v.suspect, v.judgeBy = true, received.add(n.timeout)
		}
		n.watch.observe(n.index, moved, next, sent.epoch)
	}
	if old := n.sample.Load(); old == nil || old.better(next, n.conf.drift) {
		kept := next
		n.sample.Store(&kept)
	}
}

// heed does what the watch decided about the node's clock.
func (n *lane) heed(now instant) {
	v := &n.view
	if v.suspect && now >= v.judgeBy {
		n.watch.timeUp(n.index)
	}
	switch o := order(n.orders.Swap(0)); {
	case o&orderMark != 0:
		v.marking = true
	case o&orderDoubt != 0:
		// The verdict may have corrected the clock: now is from before that.
		v.suspect = false
		n.distrust(n.now().add(quarantine(n.conf.maxTTL, n.conf.drift)))
	case o&orderTrust != 0:
		v.suspect = false
		n.distrust(math.MinInt64)
	}
}

// distrust takes the node's vote away until then, here alone.
func (n *lane) distrust(until instant) {
	n.view.until = until
	n.distrustTo.Store(int64(until))
}

// voteless says why this node's yes counts for nothing here, whatever the node thinks;
// nil if it counts. The distance from other clocks matters for granting alone.
//
// Source: ALGORITHM section 9.
func (n *lane) voteless(now instant) (forAll, forGrants error) {
	switch v := &n.view; {
	case now < v.until:
		err := quarantined(v.until.sub(now))
		return err, err
	case v.suspect, v.marking:
		return errStepped, errStepped
	}
	err, _ := n.watch.tooFar(n.index, n.conf)
	if bad := err != nil; n.skewed.Swap(bad) != bad && bad {
		n.events.warning(n.addr, err)
	}
	return nil, err
}
