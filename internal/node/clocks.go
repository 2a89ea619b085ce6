package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file passes samples of the nodes' clocks to the clock watch, and carries out its verdicts.
//
// Source: ALGORITHM section 9.

// observeLocked takes the node's time from the reply to a request that was sent at a moment.
func (n *Node) observeLocked(micros int64, sent clockwatch.Moment, received clock.Instant, out *outcomes) {
	n.heard.Store(int64(received))
	v := n.set.watch.Observe(n.index, micros, sent, received)
	if v.Stale {
		return
	}
	if v.Stepped {
		n.standLocked(func(s *Standing) { s.suspectUntil(received.Add(n.conf.Timeout)) })
	}
	n.set.carryOut(v, out)
	n.set.endSurveys()
	n.skewedLocked(v.TooFar, out)
}

// carryOut reports a verdict, and passes its orders to the nodes. It locks no mutex of a node:
// each node carries out its orders itself.
func (s *Set) carryOut(v clockwatch.Verdict, out *outcomes) {
	if v.StoodStill > 0 {
		out.after(func() {
			s.conf.Events.StoodStill(v.StoodStill)
			s.conf.Corrected() // some leases are over
		})
	}
	for _, o := range v.Orders {
		n := s.nodes[o.Node]
		if o.Do == clockwatch.Mark {
			out.after(func() { s.conf.Events.Stepped(n, o.By) })
		}
		n.order(o.Do)
	}
}

// order gives the node an order of the clock watch.
func (n *Node) order(do clockwatch.Action) {
	n.orders.Or(int32(do))
	n.wake.Set()
}

// ordered takes the orders of some kinds.
func (n *Node) ordered(kinds clockwatch.Action) clockwatch.Action {
	return clockwatch.Action(n.orders.And(int32(^kinds))) & kinds
}

// heedLocked carries out the decision about the node's clock.
func (n *Node) heedLocked(now clock.Instant, out *outcomes) {
	if now >= n.Standing().judgeAt() {
		n.set.carryOut(n.set.watch.TimeUp(n.index), out)
	}
	switch o := n.ordered(clockwatch.Trust | clockwatch.Doubt | clockwatch.Mark); {
	case o&clockwatch.Mark != 0:
		n.standLocked(func(s *Standing) { s.lose(ErrStepped) })
	case o&clockwatch.Doubt != 0:
		// With the verdict the clock may have been corrected: now is from before the correction.
		n.distrustLocked(undecided, out)
	case o&clockwatch.Trust != 0:
		n.standLocked((*Standing).acquit)
	}
}

// skewedLocked notes why the node's clock is too far from the others, or nil if it is not.
func (n *Node) skewedLocked(err error, out *outcomes) {
	was := n.standing.Load().skewed
	if err == nil && was == nil {
		return
	}
	n.standLocked(func(s *Standing) { s.skewed = err })
	if err != nil && was == nil {
		out.after(func() { n.conf.Events.Warning(n, err) })
	}
}

// clockTask asks for the node's time, and with the guard for the marker, too.
func (n *Node) clockTask() *task {
	if !n.guard.on {
		return n.sampleTask()
	}
	t := n.markerTask(wire.Look, Marker{})
	t.done = func(a answers) {
		if a.err != nil {
			return // the next connection begins with a look
		}
		n.locked(func(out *outcomes) {
			if refused, ok := a.values[0].(resp.Error); ok && Says(refused, "NOSCRIPT") && n.link != nil {
				n.link.knows[&wire.Marker] = false
				n.order(clockwatch.Ask)
			} else {
				_, _ = n.readMarker(a.values[0], a.sent, a.received, out) // what the node refuses to tell, it refuses an acquire, too
				n.answeredLocked(a.received)
			}
		})
	}
	return t
}

// answeredLocked notes that the node has answered a survey.
func (n *Node) answeredLocked(received clock.Instant) {
	n.answered.Store(int64(received))
	n.set.endSurveys()
}

// sampleTask asks for the node's time.
func (n *Node) sampleTask() *task {
	t := wordsTask("TIME")
	t.done = func(a answers) {
		if a.err != nil {
			return // the next connection begins with a sample
		}
		if micros, err := readTime(a.values[0]); err == nil {
			n.locked(func(out *outcomes) {
				n.observeLocked(micros, a.sent, a.received, out)
				n.answeredLocked(a.received)
			})
		}
	}
	return t
}

// survey is a wait for what the nodes say of their clocks and lists of masters.
type survey struct {
	began clock.Instant
	over  chan struct{}
}

// await returns the survey that calls wait for at a place, which it begins if there is none.
func await(at *atomic.Pointer[survey], now clock.Instant) *survey {
	own := &survey{now, make(chan struct{})}
	for {
		if at.CompareAndSwap(nil, own) {
			return own
		}
		if other := at.Load(); other != nil {
			return other
		}
	}
}

// Survey asks the nodes for their clocks and for the lists of masters in use, if the median of the clocks is not
// known, because the process is new or was idle for long, or if a node has refused the list. It waits, for d at most,
// until the median is known, no other clock can be read, ctx ends or done is closed. A node whose clock is not known
// then may lack a vote. A new process waits for up to 2d, as it has to connect first: the vote of a server that it meets
// during an attempt does not count. It waits as long again for the nodes that have not answered yet: they may refuse
// the list. So does a process whose list is refused, for d at most. Survey returns the present moment, which is now
// if it has not waited.
//
// Source: ALGORITHM section 8, "Membership".
func (s *Set) Survey(ctx context.Context, done <-chan struct{}, now clock.Instant, d time.Duration) clock.Instant {
	refused := s.Refused() != nil
	if s.Median(now) != 0 && !refused {
		return now
	}
	clocks, all := await(&s.awaitsClocks, now), await(&s.awaitsAll, now)
	for _, n := range s.nodes {
		n.order(clockwatch.Ask)
	}
	s.endSurveys() // the median may have become known meanwhile
	over, most := clocks.over, d
	switch {
	case refused:
		over = all.over
	case s.isNew():
		most = 2 * d
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case <-over:
			if over == all.over || !s.surveyed.CompareAndSwap(false, true) {
				return s.conf.Clock.Instant()
			}
			over = all.over
			timer.Reset(min(s.conf.Clock.Instant().Sub(now), d))
			continue
		case <-timer.C:
		case <-ctx.Done():
		case <-done:
		}
		return s.conf.Clock.Instant()
	}
}

// isNew reports whether this client has not met a quorum yet.
func (s *Set) isNew() bool {
	met := 0
	for _, n := range s.nodes {
		if n.server.Load() != nil {
			met++
		}
	}
	return met < s.conf.Quorum
}

// endSurveys wakes the calls that wait for the nodes, if there is nothing more to wait for.
func (s *Set) endSurveys() {
	s.endSurvey(&s.awaitsClocks, func() bool { return s.Median(s.conf.Clock.Instant()) != 0 })
	s.endSurvey(&s.awaitsAll, func() bool { return false })
}

// endSurvey ends a survey that is done, for which no node is open, or that too few nodes can answer.
func (s *Set) endSurvey(at *atomic.Pointer[survey], isDone func() bool) {
	known := at.Load()
	if known == nil {
		return
	}
	down, open := 0, 0 // nodes that cannot answer, and nodes that have not answered yet
	for _, n := range s.nodes {
		if n.standing.Load().Down != nil {
			down++
		} else if n.answered.Load() < int64(known.began) {
			open++
		}
	}
	if open > 0 && len(s.nodes)-down >= s.conf.Quorum && !isDone() {
		return
	}
	if at.CompareAndSwap(known, nil) {
		close(known.over)
	}
}

// Seed returns where a fencing counter that no node has should start, in microseconds, or 0 if too
// few clocks are known.
func (s *Set) Seed(now clock.Instant, timeout time.Duration) int64 {
	return s.watch.Seed(s.watch.Moment(now), timeout)
}

// Median returns the present median of the nodes' clocks, in microseconds, or 0 if too few clocks
// are known.
func (s *Set) Median(now clock.Instant) int64 { return s.watch.Median(s.watch.Moment(now)) }

// InDoubt reports whether some clock stepped, and it is not clear yet whose.
func (s *Set) InDoubt() bool { return s.watch.InDoubt() }

// TooFar returns an error if a voter's clock is too far from the others at the present moment. If
// certain is false, the two clocks in the middle disagree, and this clock or another one is too
// far.
func (n *Node) TooFar(now clock.Instant) (err error, certain bool) {
	return n.set.watch.TooFar(n.index, n.set.watch.Moment(now))
}

// TooFarNow is TooFar at this moment, for a person: it reports a clock also while that is not certain.
func (n *Node) TooFarNow() error {
	err, _ := n.TooFar(n.now())
	return err
}

// Skew returns how far the node's clock is from the median of all clocks, and whether that is too
// far. known reports whether enough clocks are known.
func (n *Node) Skew() (far time.Duration, tooFar, known bool) {
	return n.set.watch.Skew(n.index, n.set.watch.Moment(n.now()))
}
