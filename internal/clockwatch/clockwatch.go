// Package clockwatch compares the wall clocks of the nodes with the local clock and with each
// other. A node expires keys by its wall clock. If that clock is put forward, the node drops a
// lock that its holder still counts on.
//
// [Watch.Observe] takes a sample of a node's clock and returns a [Verdict]. If the clock of one
// node did not move like the local clock, that clock was stepped. If the clocks of a quorum did
// not, all by the same time, the local clock stood still, for example in a virtual machine that
// was paused. Then the watch corrects the [clock.Lease]. The package knows a node by its number
// alone, and asks none: the caller carries out the orders of a verdict.
//
// The watch notices a step with the next sample. It does not notice a step that is smaller than
// what round trips, drift and 5 ms can explain. It takes the clocks of a quorum that step alike
// for a local clock that stood still.
//
// Source: ALGORITHM section 9.
package clockwatch

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/rules"
)

// Config is what a Watch has to know.
type Config struct {
	Nodes   int
	Quorum  int           // nodes that decide
	MaxTTL  time.Duration // the largest TTL of any lease
	MaxSkew time.Duration // how far a node's clock may be from the median of all
	Drift   float64       // factor by which clocks may run apart
	Clock   *clock.Lease  // the local clock
	Rules   *rules.Rules
}

// Watch compares the clocks of all nodes. Its mutex is locked after those of the nodes. While no
// clock steps, Observe does not lock it.
type Watch struct {
	conf   Config
	clocks []*nodeClock // by node

	epoch atomic.Int64 // rises before the clock is corrected; samples from before are worthless
	open  atomic.Bool  // a round is open: some clock stepped, and it is not clear yet whose

	mu      lockorder.Mutex[lockorder.Watch]
	opened  clock.Instant // guarded by mu; when the step was seen that the round is about
	shifts  []*Shift      // guarded by mu; by node, since then; nil for not known
	decided []bool        // guarded by mu; by node: a verdict about its last step was returned
}

// nodeClock is what is known of a node's clock.
type nodeClock struct {
	view view                   // for the calls of Observe and Forget alone
	best atomic.Pointer[sample] // nil until there is one
}

// New returns a Watch without samples.
func New(c Config) *Watch {
	w := &Watch{conf: c, shifts: make([]*Shift, c.Nodes), decided: make([]bool, c.Nodes)}
	for range c.Nodes {
		w.clocks = append(w.clocks, new(nodeClock))
	}
	return w
}

// Moment is a reading of the local clock, for comparison with a node's clock.
type Moment struct {
	shown clock.Instant
	epoch int64
}

// Moment returns the reading at an instant.
func (w *Watch) Moment(now clock.Instant) Moment {
	return Moment{shown: w.conf.Clock.Shown(now), epoch: w.epoch.Load()}
}

// Verdict is what a sample shows. If no clock is wrong, it is zero.
type Verdict struct {
	Stale   bool  // the sample shows nothing: the local clock was corrected between request and reply
	Stepped bool  // the node's clock or the local one stepped; an Order about the node will say which
	TooFar  error // why the node has no vote for grants: its clock is too far from the others

	StoodStill time.Duration // if not 0, the local clock stood still for so long at most: it was corrected
	Orders     []Order
}

// Order is what the caller has to do about a node.
type Order struct {
	Node int
	Do   Action
	By   time.Duration // with Mark: by how much
}

// Action is one of the following, or a set of them.
type Action int32

// The actions. Mark precedes Doubt, and Doubt precedes Trust.
const (
	Ask   Action = 1 << iota // take a new sample of the clock
	Trust                    // the clock did not step
	Doubt                    // the clock may have stepped
	Mark                     // the clock stepped
)

// Observe takes a node's time, in microseconds, from the reply to a request that was sent at a
// moment. No other call of Observe or Forget about the node may be under way.
func (w *Watch) Observe(node int, micros int64, sent Moment, received clock.Instant) (v Verdict) {
	next := takeSample(micros, sent.shown, w.conf.Clock.Shown(received))
	if w.epoch.Load() != sent.epoch {
		v.Stale = true // the two readings cannot be compared
		return v
	}
	c := w.clocks[node]
	if c.view.epoch != sent.epoch {
		c.view.forget()
		c.view.epoch = sent.epoch
	}
	if moved, known := c.view.compare(next, w.conf.MaxTTL, w.conf.Drift); known && w.conf.Rules.Heeds(moved.size()) {
		v.Stepped = moved.stepped()
		w.weigh(node, moved, next, sent.epoch, &v)
	}
	if old := c.best.Load(); old == nil || old.better(next, w.conf.Drift) {
		kept := next
		c.best.Store(&kept)
	}
	if err, certain := w.tooFar(node, next.at); certain {
		v.TooFar = err
	}
	return v
}

// weigh takes the shift of a node's clock up to its latest sample.
func (w *Watch) weigh(node int, s Shift, latest sample, epoch int64, v *Verdict) {
	stepped := s.stepped()
	if !stepped && !w.open.Load() {
		return // as nearly always
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch != w.epoch.Load() {
		w.decideLocked(Order{Node: node, Do: Trust}, v) // meanwhile the step was found to be the local clock's
		return
	}
	if !w.open.Load() {
		if !stepped {
			return
		}
		w.open.Store(true)
		w.opened = latest.at.Add(latest.err)
		clear(w.shifts)
		for i := range w.clocks {
			if i != node {
				v.Orders = append(v.Orders, Order{Node: i, Do: Ask})
			}
		}
	}
	if stepped {
		w.decided[node] = false
	}
	// Only a request that was sent after the step shows that a clock did not step. The reply to
	// an earlier one may have been under way while this machine stood still.
	if asked := latest.at.Add(-latest.err); stepped || w.shifts[node] == nil && asked >= w.opened {
		kept := s
		w.shifts[node] = &kept
	}
	w.judgeLocked(false, v)
}

// TimeUp ends the round without the nodes that have not answered, because a node has been in
// doubt for long enough. After that each node in doubt has a verdict.
func (w *Watch) TimeUp(node int) (v Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() {
		w.judgeLocked(true, &v)
	}
	if !w.decided[node] {
		w.decideLocked(Order{Node: node, Do: Doubt}, &v)
	}
	return v
}

func (w *Watch) judgeLocked(timeUp bool, v *Verdict) {
	c, typical := WhoseStep(w.conf.Quorum, w.shifts, timeUp)
	if c == CauseOpen {
		return
	}
	w.open.Store(false)
	if c != CauseNodes {
		w.correctLocked(typical, v)
	}
	do := [...]Action{CauseNodes: Mark, CauseLocal: Trust, CauseEither: Doubt}[c]
	for i, s := range w.shifts {
		if s != nil && s.stepped() {
			w.decideLocked(Order{Node: i, Do: do, By: s.size()}, v)
		}
	}
}

func (w *Watch) decideLocked(o Order, v *Verdict) {
	w.decided[o.Node] = true
	v.Orders = append(v.Orders, o)
}

// longestStandstill bounds a correction: no lease lives longer, and the clock of leases must not
// wrap, however far a node's clock jumps.
const longestStandstill = 48 * time.Hour

// correctLocked makes the leases end earlier, by the time for which the local clock may have
// stood still. It discards the earlier samples of all nodes, so that a node that answers later
// does not show the same step again.
func (w *Watch) correctLocked(s Shift, v *Verdict) {
	w.epoch.Add(1)
	if s.Least > 0 {
		w.conf.Clock.StoodStill(min(s.Most, longestStandstill))
		v.StoodStill = s.Most
	}
	for i := range w.clocks { // all begin anew, or the next standstill would not be noticed
		v.Orders = append(v.Orders, Order{Node: i, Do: Ask})
	}
}

// Forget discards what is known of a node's clock, after the node has become another server. No
// call of Observe about the node may be under way.
func (w *Watch) Forget(node int) {
	c := w.clocks[node]
	c.view.forget()
	c.best.Store(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open.Load() {
		return
	}
	w.shifts[node] = nil
	if !slices.ContainsFunc(w.shifts, func(s *Shift) bool { return s != nil && s.stepped() }) {
		w.open.Store(false)
	}
}

// InDoubt reports whether some clock stepped, and it is not clear yet whose.
func (w *Watch) InDoubt() bool { return w.open.Load() }
