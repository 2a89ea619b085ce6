package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file is one attempt, from top to bottom: ask the nodes, count their votes,
// agree on the fencing token, judge the validity; or undo it all.

// attempt makes one attempt. If it fails, releases are on their way to all nodes.
//
// Source: distlock, "The Redlock Algorithm", steps 1 to 5; ALGORITHM section 3.
func (p *pool) attempt(ctx context.Context, resource string, lc lockConfig, how approach) (*grant, error) {
	if closed(ctx.Done()) {
		return nil, endedBy(ctx)
	}
	if err := p.set.Misconfigured(); err != nil {
		return nil, fmt.Errorf("redlock: lock %q: %w: %w", resource, ErrNotAcquired, err)
	}
	g, err := newGrant(p, resource, lc)
	if err != nil {
		return nil, fmt.Errorf("%w: no random attempt id: %w", ErrNotAcquired, err)
	}
	if err := p.admission.enter(ctx, p.closing); err != nil {
		return nil, fmt.Errorf("redlock: lock %q: %w: %w", resource, ErrNotAcquired, err)
	}
	g.approach = how
	granted, rests := false, false
	defer func() { // also if a method of ctx panics
		p.admission.leave(g.answeredIn(), g.timeout())
		if !granted {
			g.sendReleases(p.now(), rests)
		}
	}()
	p.set.AwaitClocks(ctx, p.closing, g.timeout())
	g.gate = p.gateOf(resource)
	g.ask()
	err = g.await(ctx)
	if err == nil {
		granted = true
		return g, nil
	}
	if verdict, ok := err.(*QuorumError); ok && !verdict.permanent() && p.goesOn(ctx, resource) {
		rests = verdict.gate.rests(how)
		verdict.gate.waits = rests
	}
	return nil, err
}

// goesOn reports whether the process goes on waiting for a resource when an attempt of the
// head of the line has failed: it does so itself, or another caller does.
func (p *pool) goesOn(ctx context.Context, resource string) bool {
	return p.opened.Err() == nil && (!closed(ctx.Done()) || p.turns.behind(resource))
}

// endedBy is the error of a call whose context was over before a node was asked.
func endedBy(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrNotAcquired, contextError(ctx))
}

// contextError is ctx.Err(), with the cause if there is another one.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// ask sends the acquire to all nodes at once, or to the gate alone.
//
// Source: distlock, steps 1 and 2; ALGORITHM section 3, points 1 and 2, and section 10.
func (g *grant) ask() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start = g.pool.now()
	g.heldFrom = g.start
	g.seed = g.pool.set.Seed(g.timeout())
	if g.gateFirst {
		for i := range g.places {
			g.places[i].op, g.places[i].err = wire.Acquire, errNotAsked
		}
		g.asked = g.start
		g.askLocked(make([]node.Request, 1), g.gate)
	} else {
		g.askAllLocked(g.start)
	}
	g.judgeLocked()
}

// askAllLocked sends the acquire to all nodes that have not been asked.
func (g *grant) askAllLocked(now instant) {
	first := !g.gateFirst
	g.asked, g.spread = now, true
	reqs := make([]node.Request, len(g.places))
	for i := range g.places {
		if first || i != g.gate {
			g.places[i].err = nil
			g.askLocked(reqs[i:], i)
		}
	}
}

// askLocked sends the acquire to one node, with the first of some requests.
func (g *grant) askLocked(reqs []node.Request, i int) {
	r := &reqs[0]
	*r = node.Request{Op: wire.Acquire, Node: i, Key: &g.keys, Target: g.seed, Timeout: g.timeout(), To: g}
	if i == g.gate {
		r.Who = g.who()
	}
	g.places[i].asked = r
	if err := g.pool.nodes[i].Send(r); err != nil {
		g.refuseLocked(i, wire.Acquire, err)
	}
}

// votedLocked takes a node's answer to the acquire.
//
// Source: ALGORITHM section 3, point 3.
func (g *grant) votedLocked(r *node.Request, rep node.Reply) {
	i := r.Node
	p := &g.places[i]
	if p.asked == r {
		p.asked = nil
	}
	if r.Who != "" && rep.Err == nil {
		g.hearGateLocked(rep)
	}
	err := rep.Refusal(&g.keys)
	if rep.HasKey() { // too late for a vote or not, with a vote or not
		p.held, p.had, p.keepsTo = true, true, g.keyLife(g.start)
	}
	if err == nil && p.vote != yes && g.votedBeforeLocked(rep.Server) {
		err = errTwice
	}
	if err == nil {
		p.counter = rep.Counter
	}
	switch {
	case p.vote != awaited:
		return
	case err != nil:
		p.busy = rep.Err == nil && (rep.Code == wire.Busy || rep.Code == wire.Queued)
		if p.busy && i != g.gate && g.target == 0 && g.verdict == undecided {
			p.pending = true // perhaps it only has not heard of the release yet
			g.noteLocked(i, wire.Acquire, err)
		} else {
			g.refuseLocked(i, wire.Acquire, err)
		}
	default:
		p.vote, p.server, p.busy, p.pending = yes, rep.Server, false, false
		g.fenceLocked(i)
	}
	g.judgeLocked()
}

// votedBeforeLocked reports whether a server has voted by another name: names can move
// while an attempt is under way.
func (g *grant) votedBeforeLocked(server string) bool {
	return server != "" && slices.ContainsFunc(g.places, func(p place) bool { return p.vote == yes && p.server == server })
}

func (g *grant) refuseLocked(i int, o wire.Op, err error) {
	g.places[i].vote, g.places[i].fence, g.places[i].asked = no, no, nil
	g.noteLocked(i, o, err)
}

// castLocked makes the answer of a node that was busy its vote.
func (p *place) castLocked() { p.vote, p.fence, p.pending = no, no, false }

// fenceLocked sees to it that a voter counts at least the target, once there is one.
//
// Source: ALGORITHM section 4.
func (g *grant) fenceLocked(i int) {
	p := &g.places[i]
	switch {
	case g.target == 0 || g.verdict != undecided:
	case p.counter == g.target:
		p.fence = yes
	case p.counter > g.target:
		p.fence = no // a grant from after the target was fixed; it joins no count
	default:
		p.asked = &node.Request{Op: wire.Raise, Node: i, Key: &g.keys, Counter: p.counter, Target: g.target, Timeout: g.timeout(), To: g}
		if err := g.pool.nodes[i].Send(p.asked); err != nil {
			p.fence, p.asked = no, nil
			g.noteLocked(i, wire.Raise, err)
		}
	}
}

// raisedLocked takes a node's answer to the raise.
func (g *grant) raisedLocked(r *node.Request, rep node.Reply) {
	p := &g.places[r.Node]
	if p.asked == r {
		p.asked = nil
	}
	if err := rep.Refusal(&g.keys); err != nil {
		p.fence = no
		g.noteLocked(r.Node, wire.Raise, err)
	} else {
		p.fence = yes // the counter that came with the grant stays what the node knows it by
	}
	g.judgeLocked()
}

// judgeLocked comes to the verdict as soon as the votes allow one.
//
// Source: ALGORITHM section 3, points 4 and 5, and section 4.
func (g *grant) judgeLocked() {
	if g.verdict != undecided {
		return
	}
	n := len(g.places)
	if g.word.vetoed {
		g.concludeLocked(impossible)
		return
	}
	if !g.spread {
		switch gate := &g.places[g.gate]; {
		case gate.vote == awaited:
			return
		case gate.busy:
			g.concludeLocked(impossible)
			return
		}
		g.askAllLocked(g.pool.now()) // also if it is the gate that has failed
		g.wakeLocked()
	}
	if g.target == 0 {
		votes := g.countLocked(func(p *place) bool { return p.vote == yes })
		refused := g.countLocked(func(p *place) bool { return p.vote == no || p.pending })
		v := decide(n, votes, refused)
		if v != undecided && g.answered == 0 {
			g.answered = g.pool.now()
		}
		switch v {
		case undecided:
			return
		case impossible:
			if !g.askAgainLocked() {
				g.concludeLocked(impossible)
			}
			return
		}
		if g.patient && g.gateAwaitedLocked() {
			return
		}
		switch some, wait := g.skewedLocked(); {
		case some:
			g.judgeLocked()
			return
		case wait:
			return
		}
		counters := make([]int64, 0, 8)
		for i := range g.places {
			counters = append(counters, g.places[i].counter)
		}
		target := fenceTarget(counters)
		g.target = target
		if fenceKnown(counters, target) >= quorum(n) || broken.oneRound {
			g.concludeLocked(reached) // all counters equal: the steady state
			return
		}
		g.raiseEnd = g.pool.now().Add(g.timeout())
		for i := range g.places {
			switch p := &g.places[i]; {
			case p.vote == yes:
				g.fenceLocked(i)
			case p.pending:
				p.castLocked()
			}
		}
	}
	known := g.countLocked(func(p *place) bool { return p.fence == yes })
	out := g.countLocked(func(p *place) bool { return p.fence == no })
	if v := decide(n, known, out); v != undecided {
		g.concludeLocked(v)
	}
}

// skewedLocked looks at the voters' clocks again now that they are a quorum: some may have
// voted before enough was known of the other clocks to tell. Those that are off are
// refused; while it is not clear which are, and somebody has still to answer, the
// attempt waits.
//
// Source: ALGORITHM section 9.
func (g *grant) skewedLocked() (some, wait bool) {
	left := g.countLocked(func(p *place) bool { return p.vote == awaited && !p.pending })
	for i := range g.places {
		if g.places[i].vote != yes {
			continue
		}
		err, certain := g.pool.nodes[i].TooFar()
		switch {
		case err != nil && !certain && left > 0:
			wait = true
		case err != nil:
			g.places[i].counter = 0
			g.refuseLocked(i, wire.Acquire, err)
			some = true
		}
	}
	return some, wait
}

func (g *grant) concludeLocked(v verdict) {
	g.verdict = v
	g.wakeLocked()
}

// await waits for the verdict and turns it into a lease's deadline or an error.
func (g *grant) await(ctx context.Context) error {
	timer := g.pool.timers.start(g.timeout())
	defer g.pool.timers.stop(timer)
	g.rearm(timer)
	for {
		var over error
		select {
		case <-g.signal:
		case <-timer.C:
			g.timeUp()
		case <-ctx.Done():
			over = contextError(ctx)
		case <-g.pool.closing:
			over = ErrClosed
		}
		if over == nil {
			if g.rearm(timer) {
				continue
			}
			if closed(ctx.Done()) { // while the votes came in
				over = contextError(ctx)
			}
		}
		return g.conclude(over)
	}
}

// rearm sets the timer to when something awaited is late; false if there is a verdict.
func (g *grant) rearm(timer *time.Timer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.verdict != undecided {
		return false
	}
	g.armed = g.awaitedUntilLocked()
	timer.Reset(max(g.armed.Sub(g.pool.now()), time.Microsecond))
	return true
}

// awaitedUntilLocked is until when to wait for what is awaited just now.
func (g *grant) awaitedUntilLocked() instant {
	switch {
	case g.lateUntil > g.asked.Add(g.timeout()): // some have been sent late
		return g.lateUntil
	case g.target != 0: // the second round
		return max(min(g.raiseEnd, g.start.Add(g.ttl-g.minValidity())), g.asked.Add(g.timeout()))
	case g.hurry != 0 && !g.ungated:
		return g.hurry
	case g.againAt != 0:
		return min(g.againAt, g.asked.Add(g.timeout()))
	}
	return g.asked.Add(g.timeout())
}

// timeUp counts the nodes that have not answered in time as refusals. The time of each counts
// from when it was sent its request, which a busy node is a little later.
func (g *grant) timeUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.verdict != undecided || g.armed < g.awaitedUntilLocked() {
		return // something has changed meanwhile
	}
	switch {
	case g.target != 0:
	case g.hurry != 0 && !g.ungated:
		g.ungated = true
		g.judgeLocked()
		return
	case g.againAt != 0 && g.armed == g.againAt:
		g.againAt = 0
		if !g.reaskLocked() {
			g.judgeLocked()
		}
		return
	}
	now, next := g.pool.now(), never
	end := g.start.Add(g.ttl - g.minValidity())
	for i := range g.places {
		p := &g.places[i]
		if p.asked != nil && now < end {
			due, hasTurn := g.pool.nodes[i].DueAt(p.asked)
			if due == 0 && hasTurn { // as others are before it
				due = g.asked.Add(2 * g.timeout())
			}
			if due > now {
				next = min(next, due)
				continue
			}
		}
		switch {
		case !g.spread && i != g.gate:
		case p.vote == awaited && p.busy:
			p.castLocked() // as it said
		case p.vote == awaited:
			g.refuseLocked(i, wire.Acquire, errNodeTimeout)
		case g.target != 0 && p.fence == awaited:
			p.fence = no
			g.noteLocked(i, wire.Raise, errNodeTimeout)
		}
	}
	if next < never {
		g.lateUntil = min(next, end)
	}
	g.judgeLocked()
}

// answeredIn is how long it took until a quorum of the nodes had answered, or until the
// attempt was over.
func (g *grant) answeredIn() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answered != 0 {
		return g.answered.Sub(g.asked)
	}
	return g.pool.now().Sub(g.asked)
}

// conclude ends the attempt. over says that the caller will not have the lease,
// whatever the votes.
//
// Source: ALGORITHM section 3, point 4 ("deadline D"); section 1, "MinValidity".
func (g *grant) conclude(over error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	granted := g.countLocked(func(p *place) bool { return p.vote == yes && p.fence != no })
	refused := func(p *place) bool { return p.vote != yes || p.fence == no }
	if err := g.pool.set.Misconfigured(); err != nil && over == nil {
		over = err
	}
	if over != nil {
		g.verdict = impossible
		return g.quorumErrorLocked("lock", granted, refused, ErrNotAcquired, over)
	}
	if g.verdict == reached {
		start := g.start
		if broken.validityFromReply {
			start = g.pool.now()
		}
		g.setDeadlineLocked(start)
		if left := g.validity(); left >= g.minValidity() {
			return nil
		} else {
			g.verdict = impossible
			tooLate := fmt.Errorf("only %v of the validity was left", max(left, 0))
			return g.quorumErrorLocked("lock", granted, refused, ErrNotAcquired, ErrNoQuorum, tooLate)
		}
	}
	g.verdict = impossible
	return g.quorumErrorLocked("lock", granted, refused, append([]error{ErrNotAcquired}, g.reasonsLocked()...)...)
}

// reasonsLocked says why there is no quorum: it is taken if only the other holder is in
// the way, and waiting helps if otherwise only nodes in quarantine are.
func (g *grant) reasonsLocked() []error {
	var busy, waiting, failed int
	for i := range g.places {
		p := &g.places[i]
		_, inQuarantine := p.err.(node.Quarantine)
		switch {
		case p.busy:
			busy++
		case p.vote == no && inQuarantine:
			waiting++
		case p.vote == no, p.fence == no:
			failed++
		}
	}
	n := len(g.places)
	switch {
	case busy > 0 && decide(n, 0, failed+waiting) != impossible:
		return []error{ErrTaken}
	case waiting > 0 && decide(n, 0, failed) != impossible:
		return []error{ErrNoQuorum, ErrQuarantine}
	}
	return []error{ErrNoQuorum}
}

// setDeadlineLocked moves the deadline to where a round that began at start puts
// it. It never moves back.
//
// Source: ALGORITHM section 13, I8.
func (g *grant) setDeadlineLocked(start instant) {
	d := deadline(start, g.ttl, driftAllowance(g.ttl, g.pool.conf.drift), g.grace)
	g.uncapped = max(g.uncapped, d)
	d = min(d, g.holdEnd())
	if d > instant(g.deadline.Load()) {
		g.deadline.Store(int64(d))
		g.stood = g.pool.conf.clock.Stood()
	}
}

// holdEnd is the latest end of the lease.
func (g *grant) holdEnd() instant {
	if g.maxHold == 0 {
		return never
	}
	return g.heldFrom.Add(g.maxHold)
}
