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

// This file watches the clocks. A node expires keys by its wall clock. If that clock is put
// forward, the node drops a lock that its holder still counts on. Each reply tells the node's
// time, and two replies tell whether that clock moved like the local clock. If the clock of one
// node did not, that clock was stepped. If the clocks of a quorum did not, all by the same time,
// the local clock stood still, for example in a virtual machine that was paused.
//
// Source: ALGORITHM section 9.

// clockSlack is how far two clocks may move apart between two readings without a step.
const clockSlack = 5 * time.Millisecond

// shift has the bounds of how far a node's clock moved against the local clock between two
// samples.
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

// stepped reports whether drift cannot explain the shift.
func (s shift) stepped() bool { return s.least > clockSlack || s.most < -clockSlack }

func (s shift) size() time.Duration { return s.least + (s.most-s.least)/2 }

// alike reports whether the shift can be one of size.
func (s shift) alike(size time.Duration) bool {
	return s.least-clockSlack <= size && size <= s.most+clockSlack
}

// maybe reports whether the clock can have moved by size. The samples of a node far away do not
// show a small step.
func (s shift) maybe(size time.Duration) bool {
	if s.stepped() {
		return s.alike(size)
	}
	return s.least <= size && size <= s.most
}

// cause is the result of a round that compares all clocks.
type cause int

const (
	causeOpen   cause = iota // more nodes have to be looked at
	causeNodes               // the clocks of some nodes stepped, each by itself
	causeLocal               // the local clock stood still
	causeEither              // either of them; the nodes that could tell do not answer
)

// whoseStep judges the shifts of the nodes; a shift that is not known is nil. typical is the
// median of the shifts that are steps.
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

// watch compares the clocks of all nodes. While no clock steps, it has nothing to do. Its mutex
// is locked after those of the nodes.
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

// observe takes the shift of a node's clock up to its latest sample.
func (w *watch) observe(index int, s shift, latest sample, epoch int64, out *outcomes) {
	stepped := s.stepped()
	if !stepped && !w.open.Load() {
		return // as nearly always
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch != w.epoch.Load() {
		w.decide(index, trust) // meanwhile the step was found to be the local clock's
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
	// Only a request that was sent after the step shows that a clock did not step. The reply to
	// an earlier one may have been under way while this machine stood still.
	if asked := latest.at.Add(-latest.err); stepped || w.shifts[index] == nil && asked >= w.opened {
		kept := s
		w.shifts[index] = &kept
	}
	w.judgeLocked(false, out)
}

// timeUp ends the round without the nodes that have not answered. Each node in doubt then has a
// verdict.
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

// longestStandstill bounds a correction: no lease lives longer, and the clock of leases must not
// wrap, however far a node's clock jumps.
const longestStandstill = 48 * time.Hour

// correct makes the leases end earlier, by the time for which the local clock may have stood
// still. It discards the earlier samples of all nodes, so that a node that answers later does not
// show the same step again.
func (w *watch) correct(s shift, out *outcomes) {
	w.epoch.Add(1)
	if s.least > 0 {
		w.set.conf.Clock.StoodStill(min(s.most, longestStandstill))
		out.after(func() {
			w.set.conf.Events.StoodStill(s.most)
			w.set.conf.Corrected() // some leases are over
		})
	}
	for _, n := range w.set.nodes { // all begin anew, or the next standstill would not be noticed
		n.wantSample.Store(true)
		n.poke()
	}
}

// forget discards the shift of a node's clock, after the node has become another server.
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

// verdict is the watch's decision about a node whose clock seemed to step.
type verdict int32

const (
	trust verdict = 1 << iota // the node's clock did not step
	doubt                     // the node's clock may have stepped
	mark                      // the node's clock stepped
)

func (w *watch) decide(index int, v verdict) {
	w.set.nodes[index].verdicts.Or(int32(v))
	w.set.nodes[index].poke()
}

// moment is a reading of the local clock, for comparison with a node's clock.
type moment struct {
	shown clock.Instant
	epoch int64
}

func (n *Node) momentAt(now clock.Instant) moment {
	return moment{shown: n.conf.Clock.Shown(now), epoch: n.set.watch.epoch.Load()}
}

// clockView is what is known of a node's clock.
type clockView struct {
	// A new sample is compared with these, however old they are. A step is clearest against the
	// latest sample. The sharpest samples of this half of MaxTTL and of the half before show a
	// clock that is fast, or that steps while a reply is slow.
	latest, young, old base
	turned             clock.Instant // when young began
	epoch              int64         // in which the samples were taken

	suspect  bool          // a clock stepped, and it is not clear yet whose: no votes
	judgeBy  clock.Instant // when that is decided at the latest
	marking  bool          // the node has to be told that it has no vote
	markSent bool          // the request that tells it is under way
}

type base struct {
	sample
	known bool
}

func newClockView() clockView { return clockView{} }

func (v *clockView) forget() { v.latest.known, v.young.known, v.old.known = false, false, false }

// compare returns the shift of the clock since one of the earlier samples, if possible since a
// sample that shows a step.
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

// observeLocked takes the node's time from the reply to a request that was sent at a moment.
func (n *Node) observeLocked(micros int64, sent moment, received clock.Instant, out *outcomes) {
	next := takeSample(micros, sent.shown, n.conf.Clock.Shown(received))
	if n.set.watch.epoch.Load() != sent.epoch {
		return // the clock was corrected meanwhile, so the two readings cannot be compared
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
		out.tell(n, n.now())
	}
	return t
}

// heedLocked carries out the watch's decision about the node's clock.
func (n *Node) heedLocked(now clock.Instant, out *outcomes) {
	v := &n.view
	if v.suspect && !v.marking && now >= v.judgeBy {
		n.set.watch.timeUp(n.index, out)
	}
	switch o := verdict(n.verdicts.Swap(0)); {
	case o&mark != 0:
		v.marking = true
	case o&doubt != 0:
		// With the verdict the clock may have been corrected: now is from before the correction.
		v.suspect = false
		n.distrustLocked(out)
	case o&trust != 0:
		v.suspect = false
		n.standLocked(func(s *Standing) { s.void, s.distrustTo = nil, clock.Start })
	}
}
