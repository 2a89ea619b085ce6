package redlock

import (
	"fmt"
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

// cause is what a round of looking at all clocks found.
type cause int

const (
	causeUnknown cause = iota // more nodes have to be looked at
	causeNodes                // the nodes that stepped did so each by itself
	causeLocal                // it was the local clock
)

// whoseStep judges the shifts of n nodes, of which some are not known yet: nil.
func whoseStep(n int, shifts []*shift, timeUp bool) (c cause, size time.Duration) {
	var sizes []time.Duration
	unknown := 0
	for _, s := range shifts {
		switch {
		case s == nil:
			unknown++
		case s.stepped():
			sizes = append(sizes, s.size())
		}
	}
	slices.Sort(sizes)
	alike := 0
	if len(sizes) > 0 {
		size = sizes[len(sizes)/2]
	}
	for _, s := range shifts {
		if s != nil && s.stepped() && s.alike(size) {
			alike++
		}
	}
	switch {
	case alike >= quorum(n):
		return causeLocal, size
	case !timeUp && alike+unknown >= quorum(n):
		return causeUnknown, 0
	}
	return causeNodes, 0
}

// watch compares what the lanes see of their nodes' clocks. As long as no clock steps it
// has nothing to do.
type watch struct {
	clock  *leaseClock
	lanes  []*lane
	keeper *keeper
	events *events

	epoch atomic.Int64 // rises when all samples taken before have become worthless
	open  atomic.Bool  // some clock stepped, and it is not clear yet whose

	mu     sync.Mutex
	opened instant  // guarded by mu; when the step was seen that the round is about
	shifts []*shift // guarded by mu; by lane, since then
}

// observe takes by how much a lane saw its node's clock shift, between its latest sample
// and one of the epoch before.
func (w *watch) observe(index int, s shift, latest sample, epoch int64) {
	stepped := s.stepped()
	if !stepped && !w.open.Load() {
		return // as nearly always
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch != w.epoch.Load() {
		w.lanes[index].orders.Store(int32(orderTrust)) // the sample is from before the local clock stood still
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

// timeUp ends the round without the nodes that have not answered.
func (w *watch) timeUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() {
		w.judgeLocked(true)
	}
}

func (w *watch) judgeLocked(timeUp bool) {
	c, size := whoseStep(len(w.lanes), w.shifts, timeUp)
	if c == causeUnknown {
		return
	}
	w.open.Store(false)
	if c == causeLocal {
		w.epoch.Add(1)
		if size > 0 {
			w.clock.stood.Add(int64(size))
			w.events.stoodStill(size)
			w.keeper.poke() // some leases are over
		}
	}
	for i, s := range w.shifts {
		switch {
		case s == nil || !s.stepped():
			continue
		case c == causeLocal:
			w.lanes[i].orders.Store(int32(orderTrust))
		default:
			w.lanes[i].orders.Store(int32(orderMark))
			w.events.nodeStepped(w.lanes[i].addr, s.size())
		}
		w.lanes[i].poke()
	}
}

// skew is how far a node's clock is from the median of all that are known, if they are
// enough to tell.
func (w *watch) skew(index int) (distance time.Duration, known bool) {
	var room [9]int64
	now, all := w.clock.shown(instant(w.clock.Now())), room[:0]
	for _, n := range w.lanes {
		if s := n.sample.Load(); s != nil {
			all = append(all, s.estimate(now))
		}
	}
	own := w.lanes[index].sample.Load()
	if own == nil || len(all) < quorum(len(w.lanes)) {
		return 0, false
	}
	slices.Sort(all)
	median := all[len(all)/2]
	if len(all)%2 == 0 {
		median -= (median - all[len(all)/2-1]) / 2
	}
	return time.Duration(own.estimate(now)-median) * time.Microsecond, true
}

// order is what the watch has to say to a lane that saw its node's clock step.
type order int32

const (
	orderNone  order = iota
	orderTrust       // it was not the node
	orderMark        // it was
)

// clockView is what a lane's goroutine knows of its node's clock.
type clockView struct {
	last    sample  // the latest
	known   bool    // that it tells something
	epoch   int64   // in which it was taken
	suspect bool    // the clock stepped, and what that means is open: no votes
	judgeBy instant // when it has to be clear
	marking bool    // the node has to be told that it has no vote
	until   instant // no votes before this: for a node that cannot be told
}

func newClockView() clockView { return clockView{until: math.MinInt64} }

// observeClock takes the node's time from a reply.
func (n *lane) observeClock(micros int64, sent, received instant) {
	next := takeSample(micros, n.conf.clock.shown(sent), n.conf.clock.shown(received))
	v := &n.view
	epoch := n.watch.epoch.Load()
	if v.epoch != epoch {
		v.known, v.epoch = false, epoch
	}
	last, known := v.last, v.known && !broken.ignoresSteps && next.at.sub(v.last.at) <= n.conf.maxTTL
	v.last, v.known = next, true
	if known {
		moved := shiftBetween(last, next, n.conf.drift)
		if moved.stepped() && !v.suspect {
			v.suspect, v.judgeBy = true, received.add(n.timeout)
		}
		n.watch.observe(n.index, moved, next, epoch)
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
		n.watch.timeUp()
	}
	switch order(n.orders.Swap(int32(orderNone))) {
	case orderTrust:
		v.suspect, v.known = false, false
	case orderMark:
		v.marking = true
	}
}

// voteless says why this node's yes counts for nothing here, whatever the node thinks;
// nil if it counts. The distance from other clocks matters for granting alone.
//
// Source: ALGORITHM section 9.
func (n *lane) voteless(now instant) (forAll, forGrants error) {
	if v := &n.view; v.suspect || v.marking || now < v.until {
		return errStepped, errStepped
	}
	distance, known := n.watch.skew(n.index)
	bad := known && !broken.ignoresSteps && distance.Abs() > maxSkew(n.conf.maxTTL, n.conf.drift)
	var err error
	if bad {
		err = fmt.Errorf("clock is %v from the median of all nodes: no vote until it agrees", distance.Round(time.Millisecond))
	}
	if n.skewed.Swap(bad) != bad && bad {
		n.events.warning(n.addr, err)
	}
	return nil, err
}

// maxSkew is how far a node's clock may be from the median of all.
//
// Source: ALGORITHM section 1, "MaxSkew".
func maxSkew(maxTTL time.Duration, factor float64) time.Duration {
	return quarantine(maxTTL, factor) / 2
}
