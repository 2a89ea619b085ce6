package node

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/resp"
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

// shift is by how much a node's clock moved against the local one between two samples: by
// something from least to most.
type shift struct{ least, most time.Duration }

func shiftBetween(old, next sample, drift float64) shift {
	moved := time.Duration(next.micros-old.micros) * time.Microsecond
	longest := next.at.Add(next.err).Sub(old.at.Add(-old.err))
	shortest := next.at.Add(-next.err).Sub(old.at.Add(old.err))
	return shift{
		least: moved - time.Duration(float64(longest)*(1+drift/2)),
		most:  moved - time.Duration(float64(shortest)*(1-drift/2)),
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

// whoseStep judges the shifts of some nodes, of which some are not known: nil. typical is the
// median of those that stepped.
func whoseStep(quorum int, shifts []*shift, timeUp bool) (c cause, typical shift) {
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
	case alike >= quorum:
		return causeLocal, typical
	case alike+unknown < quorum:
		return causeNodes, typical
	case timeUp:
		return causeEither, typical
	}
	return causeOpen, typical
}

// watch compares what is seen of all nodes' clocks. As long as no clock steps it has nothing
// to do. Its mutex comes after those of the nodes.
type watch struct {
	set *Set

	epoch  atomic.Int64 // rises before the clock is corrected; samples from before are worthless
	open   atomic.Bool  // some clock stepped, and it is not clear yet whose
	wanted atomic.Bool  // ready is awaited

	mu     lockorder.Mutex[lockorder.Watch]
	opened clock.Instant // guarded by mu; when the step was seen that the round is about
	shifts []*shift      // guarded by mu; by node, since then
	ready  chan struct{} // guarded by mu; closed when the time is known, see AwaitClocks
}

// observe takes by how much a node's clock was seen to shift, up to its latest sample.
func (w *watch) observe(index int, s shift, latest sample, epoch int64, out *outcomes) {
	stepped := s.stepped()
	if !stepped && !w.open.Load() {
		return // as nearly always
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch != w.epoch.Load() {
		w.decide(index, trust) // it was the local clock, as has been found out meanwhile
		return
	}
	if !w.open.Load() {
		if !stepped {
			return
		}
		w.open.Store(true)
		w.opened = latest.at.Add(latest.err)
		w.shifts = make([]*shift, len(w.set.nodes))
		for i, n := range w.set.nodes {
			if i != index {
				n.wantSample.Store(true)
				n.poke()
			}
		}
	}
	// That a clock did not step is only known from what was sent after the step: before
	// that, a machine that stood still may have had replies under way.
	if asked := latest.at.Add(-latest.err); stepped || w.shifts[index] == nil && asked >= w.opened {
		kept := s
		w.shifts[index] = &kept
	}
	w.judgeLocked(false, out)
}

// timeUp ends the round without the nodes that have not answered. A node that is still in
// doubt has a verdict after that.
func (w *watch) timeUp(index int, out *outcomes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() {
		w.judgeLocked(true, out)
	}
	if w.set.nodes[index].verdicts.Load() == 0 {
		w.decide(index, doubt)
	}
}

func (w *watch) judgeLocked(timeUp bool, out *outcomes) {
	c, typical := whoseStep(w.set.conf.Quorum, w.shifts, timeUp)
	if c == causeOpen {
		return
	}
	w.open.Store(false)
	if c != causeNodes {
		w.correct(typical, out)
	}
	for i, s := range w.shifts {
		if s == nil || !s.stepped() {
			continue
		}
		switch c {
		case causeLocal:
			w.decide(i, trust)
		case causeNodes:
			n, by := w.set.nodes[i], s.size()
			out.after(func() { w.set.conf.Events.Stepped(n, by) })
			w.decide(i, mark)
		case causeEither:
			w.decide(i, doubt)
		}
	}
}

// longestStandstill is what a correction is bounded by: no lease lives longer, and the clock
// of leases must not wrap however far a node's clock jumps.
const longestStandstill = 48 * time.Hour

// correct has the leases end earlier by what the local clock may have stood still. What was
// seen of the nodes' clocks before is worth nothing after that: a node that is back later
// cannot see the same step again.
func (w *watch) correct(s shift, out *outcomes) {
	w.epoch.Add(1)
	if s.least > 0 {
		w.set.conf.Clock.StoodStill(min(s.most, longestStandstill))
		out.after(func() {
			w.set.conf.Events.StoodStill(s.most)
			w.set.conf.Corrected() // some leases are over
		})
	}
	for _, n := range w.set.nodes { // all begin anew, or the next time would go unnoticed
		n.wantSample.Store(true)
		n.poke()
	}
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

// InDoubt reports whether some clock stepped, and it is not clear yet whose.
func (s *Set) InDoubt() bool { return s.watch.open.Load() }

// verdict is what the watch has to say to a node whose clock was seen to step.
type verdict int32

const (
	trust verdict = 1 << iota // it was not the node
	doubt                     // it may have been
	mark                      // it was
)

func (w *watch) decide(index int, v verdict) {
	w.set.nodes[index].verdicts.Or(int32(v))
	w.set.nodes[index].poke()
}

// moment is a reading of the local clock that a node's is compared with.
type moment struct {
	shown clock.Instant
	epoch int64
}

func (n *Node) momentAt(now clock.Instant) moment {
	return moment{shown: n.conf.Clock.Shown(now), epoch: n.set.watch.epoch.Load()}
}

// clockView is what is known of a node's clock.
type clockView struct {
	// What a new sample is compared with, however old: the latest, as a step is clearest
	// there, and the sharpest of this half of MaxTTL and of the last, for a clock that is
	// only fast, or steps while a reply is slow.
	latest, young, old base
	turned             clock.Instant // when young began
	epoch              int64         // in which they were taken

	suspect  bool          // the clock stepped, and what that means is open: no votes
	judgeBy  clock.Instant // when it has to be clear
	marking  bool          // the node has to be told that it has no vote
	markSent bool          // and that is under way
}

type base struct {
	sample
	known bool
}

func newClockView() clockView { return clockView{} }

func (v *clockView) forget() { v.latest.known, v.young.known, v.old.known = false, false, false }

// compare is by how much the clock shifted since one of the earlier samples: one that shows a
// step, if there is any.
func (v *clockView) compare(next sample, maxTTL time.Duration, drift float64) (s shift, known bool) {
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

// observeLocked takes the node's time from the reply to what was sent at a moment.
func (n *Node) observeLocked(micros int64, sent moment, received clock.Instant, out *outcomes) {
	next := takeSample(micros, sent.shown, n.conf.Clock.Shown(received))
	if n.set.watch.epoch.Load() != sent.epoch {
		return // the clock was corrected meanwhile: one of the two is wrong by that
	}
	v := &n.view
	if v.epoch != sent.epoch {
		v.forget()
		v.epoch = sent.epoch
	}
	if moved, known := v.compare(next, n.conf.MaxTTL, n.conf.Drift); known && n.conf.Rules.Heeds(moved.size()) {
		if moved.stepped() && !v.suspect {
			v.suspect, v.judgeBy = true, received.Add(n.conf.Timeout)
			n.standLocked(func(s *Standing) { s.void = ErrStepped })
		}
		n.set.watch.observe(n.index, moved, next, sent.epoch, out)
	}
	if old := n.sample.Load(); old == nil || old.better(next, n.conf.Drift) {
		kept := next
		n.sample.Store(&kept)
		n.set.watch.tell(next.at)
	}
	n.judgeSkewLocked(next.at, out)
}

// judgeSkewLocked notes whether the node's clock is too far from the others.
func (n *Node) judgeSkewLocked(shown clock.Instant, out *outcomes) {
	err, _ := n.set.watch.tooFar(n.index, shown)
	was := n.standing.Load().skewed
	if err == nil && was == nil {
		return
	}
	n.standLocked(func(s *Standing) { s.skewed = err })
	if err != nil && was == nil {
		out.after(func() { n.conf.Events.Warning(n, err) })
	}
}

// sampleTask asks for the node's time.
func (n *Node) sampleTask() *task {
	t := &task{
		replies: 1,
		write: func(_ *Node, _ *link, _ int64, b []byte) []byte {
			return resp.AppendString(resp.AppendCommand(b, 1), "TIME")
		},
	}
	t.done = func(values []any, sent moment, received clock.Instant, err error) {
		if err != nil {
			return // the next connection begins with a sample
		}
		var out outcomes
		if micros, err := readTime(values[0]); err == nil {
			n.mu.Lock()
			n.observeLocked(micros, sent, received, &out)
			n.mu.Unlock()
		}
		out.tell(n)
	}
	return t
}

// heedLocked does what the watch decided about the node's clock.
func (n *Node) heedLocked(now clock.Instant, out *outcomes) {
	v := &n.view
	if v.suspect && !v.marking && now >= v.judgeBy {
		n.set.watch.timeUp(n.index, out)
	}
	switch o := verdict(n.verdicts.Swap(0)); {
	case o&mark != 0:
		v.marking = true
	case o&doubt != 0:
		// The verdict may have corrected the clock: now is from before that.
		v.suspect = false
		n.distrustLocked(out)
	case o&trust != 0:
		v.suspect = false
		n.standLocked(func(s *Standing) { s.void, s.distrustTo = nil, clock.Start })
	}
}
