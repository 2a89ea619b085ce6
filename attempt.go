package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// This file is one attempt, from top to bottom: ask the nodes, count their votes,
// agree on the fencing token, judge the validity; or undo it all.

// attempt makes one attempt. If it fails, releases are on their way to all nodes.
//
// Source: distlock, "The Redlock Algorithm", steps 1 to 5; ALGORITHM section 3.
func (p *pool) attempt(ctx context.Context, resource string, lc lockConfig, how approach) (*grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, endedBy(ctx)
	}
	if err := p.roster.misconfiguration(); err != nil {
		return nil, fmt.Errorf("redlock: lock %q: %w: %w", resource, ErrNotAcquired, err)
	}
	g, err := newGrant(p, resource, lc)
	if err != nil {
		return nil, fmt.Errorf("%w: no random attempt id: %w", ErrNotAcquired, err)
	}
	g.approach, g.gate = how, p.gateOf(resource)
	g.ask()
	if err := g.await(ctx); err != nil {
		g.sendReleases(p.now())
		return nil, err
	}
	return g, nil
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
	g.hint = g.pool.hint(g.timeout())
	if g.gateFirst {
		for i := range g.places {
			g.places[i].op, g.places[i].err = opAcquire, errNotAsked
		}
		g.asked = g.start
		g.askLocked(make([]request, 1), g.gate)
	} else {
		g.askAllLocked(g.start)
	}
	g.judgeLocked()
}

// askAllLocked sends the acquire to all nodes that have not been asked.
func (g *grant) askAllLocked(now instant) {
	first := !g.gateFirst
	g.asked, g.spread = now, true
	reqs := make([]request, len(g.places))
	for i := range g.places {
		if first || i != g.gate {
			g.places[i].err = nil
			g.askLocked(reqs[i:], i)
		}
	}
}

// askLocked sends the acquire to one node, with the first of some requests.
func (g *grant) askLocked(reqs []request, node int) {
	reqs[0] = request{op: opAcquire, node: node, grant: g, target: g.hint, end: g.asked.add(g.timeout())}
	if node == g.gate {
		reqs[0].who = g.who()
	}
	if err := g.pool.lanes[node].send(&reqs[0]); err != nil {
		g.refuseLocked(node, opAcquire, err)
	}
}

// votedLocked takes a node's answer to the acquire.
//
// Source: ALGORITHM section 3, point 3.
func (g *grant) votedLocked(r *request, rep reply) {
	node := r.node
	p := &g.places[node]
	if r.who != "" && rep.err == nil {
		g.hearGateLocked(rep, r.who)
	}
	err := rep.refusal(g.key, g.counterKey)
	if rep.hasKey() { // too late for a vote or not, with a vote or not
		p.held, p.had, p.keepsTo = true, true, g.keyLife(g.start)
	}
	if err == nil && p.vote != yes && g.votedBeforeLocked(rep.server) {
		err = errTwice
	}
	if err == nil {
		p.counter = rep.counter
	}
	switch {
	case p.vote != awaited:
		return
	case err != nil:
		p.busy = rep.err == nil && (rep.code == codeBusy || rep.code == codeQueued)
		if p.busy && node != g.gate && g.target == 0 && g.verdict == undecided {
			p.pending = true // perhaps it only has not heard of the release yet
			g.noteLocked(node, opAcquire, err)
		} else {
			g.refuseLocked(node, opAcquire, err)
		}
	default:
		p.vote, p.server, p.busy, p.pending = yes, rep.server, false, false
		g.fenceLocked(node)
	}
	g.judgeLocked()
}

// votedBeforeLocked reports whether a server has voted by another name: names can move
// while an attempt is under way.
func (g *grant) votedBeforeLocked(server string) bool {
	return server != "" && slices.ContainsFunc(g.places, func(p place) bool { return p.vote == yes && p.server == server })
}

func (g *grant) refuseLocked(node int, o op, err error) {
	g.places[node].vote, g.places[node].fence = no, no
	g.noteLocked(node, o, err)
}

// castLocked makes the answer of a node that was busy its vote.
func (p *place) castLocked() { p.vote, p.fence, p.pending = no, no, false }

// fenceLocked sees to it that a voter counts at least the target, once there is one.
//
// Source: ALGORITHM section 4.
func (g *grant) fenceLocked(node int) {
	p := &g.places[node]
	switch {
	case g.target == 0 || g.verdict != undecided:
	case p.counter == g.target:
		p.fence = yes
	case p.counter > g.target:
		p.fence = no // a grant from after the target was fixed; it joins no count
	default:
		r := &request{op: opRaise, node: node, grant: g, counter: p.counter, target: g.target, end: g.raiseEnd}
		if err := g.pool.lanes[node].send(r); err != nil {
			p.fence = no
			g.noteLocked(node, opRaise, err)
		}
	}
}

// raisedLocked takes a node's answer to the raise.
func (g *grant) raisedLocked(node int, rep reply) {
	p := &g.places[node]
	if err := rep.refusal(g.key, g.counterKey); err != nil {
		p.fence = no
		g.noteLocked(node, opRaise, err)
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
		switch decide(n, votes, refused) {
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
		g.raiseEnd = g.pool.now().add(g.timeout())
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
		err, maybe := g.pool.watch.tooFar(i, g.pool.conf)
		switch {
		case err == nil && maybe != nil && left > 0:
			wait = true
		case maybe != nil:
			g.places[i].counter = 0
			g.refuseLocked(i, opAcquire, maybe)
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
			over = ctx.Err() // it may have ended while the votes came in
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
	timer.Reset(max(g.armed.sub(g.pool.now()), time.Microsecond))
	return true
}

// awaitedUntilLocked is until when to wait for what is awaited just now.
func (g *grant) awaitedUntilLocked() instant {
	switch {
	case g.target != 0: // the second round
		return max(min(g.raiseEnd, g.start.add(g.ttl-g.minValidity())), g.asked.add(g.timeout()))
	case g.hurry != 0 && !g.ungated:
		return g.hurry
	case g.againAt != 0:
		return min(g.againAt, g.asked.add(g.timeout()))
	}
	return g.asked.add(g.timeout())
}

// timeUp counts the nodes that have not answered in time as refusals.
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
	for i := range g.places {
		switch p := &g.places[i]; {
		case !g.spread && i != g.gate:
		case p.vote == awaited && p.busy:
			p.castLocked() // as it said
		case p.vote == awaited:
			g.refuseLocked(i, opAcquire, errNodeTimeout)
		case g.target != 0 && p.fence == awaited:
			p.fence = no
			g.noteLocked(i, opRaise, errNodeTimeout)
		}
	}
	g.judgeLocked()
}

// conclude ends the attempt. over says that the caller will not have the lease,
// whatever the votes.
//
// Source: ALGORITHM section 3, point 4 ("deadline D"); section 1, "MinValidity".
func (g *grant) conclude(over error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Not if it does from now on: nobody would know of that. And where somebody has the
	// resource without the gate nobody is to be called.
	g.stays = g.word.refused || g.word.elsewhere
	granted := g.countLocked(func(p *place) bool { return p.vote == yes && p.fence != no })
	refused := func(p *place) bool { return p.vote != yes || p.fence == no }
	if err := g.pool.roster.misconfiguration(); err != nil && over == nil {
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
		_, inQuarantine := p.err.(quarantined)
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
		g.stood = g.pool.conf.clock.stood.Load()
	}
}

// holdEnd is the latest end of the lease.
func (g *grant) holdEnd() instant {
	if g.maxHold == 0 {
		return never
	}
	return g.heldFrom.add(g.maxHold)
}
