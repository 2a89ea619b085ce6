package redlock

import (
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// This file hands a lease over inside the process. If a lease is unlocked while another caller
// of the process waits for the resource, that caller gets the keys and the deadline as they
// are, and no node is told. Each grant has reserved a block of fencing tokens for that.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".

// How often one grant may be handed over: as often as it has tokens, or less if other processes
// are known to want the resource. Then the callers that were in line at the grant get the lease,
// and further callers only until the time that it took to get the grant has paid off.
const (
	mostHandovers    = fenceBlock - 1
	crowdedHandovers = 16
	crowdedPayoff    = 8 // times the duration of the attempt that was granted
)

// handOver has what decides how often a lease goes to the next caller of the process.
type handOver struct {
	since     instant       // when the time of its present holder began
	count     int           // how often the lease has been handed over
	took      time.Duration // from the start of the attempt to the grant
	inLine    int           // callers of this process that waited at the grant, at most crowdedHandovers
	heard     bool          // the queue node has replied, so this process is in its queue no more
	contested bool          // other processes want the resource, or readers of this process
}

// most returns how often a lease that was granted at start may be handed over by now.
func (h *handOver) most(start, now instant) int {
	switch {
	case !h.contested:
		return mostHandovers
	case now.Sub(start) >= crowdedPayoff*h.took:
		return h.inLine
	}
	return crowdedHandovers
}

// passToNext ends a lease at now and gives its grant to the caller at the head of the line. It
// reports false, and has done nothing, if the lease cannot be handed over.
func (p *pool) passToNext(le *Lease, now instant) bool {
	t := &p.waitlines
	t.mu.Lock()
	c, queuedAt, end := t.passLocked(le, now)
	t.mu.Unlock()
	if c == nil {
		return false
	}
	if queuedAt >= 0 {
		p.leaveQueue(le.grant.line(), queuedAt)
	}
	if end != nil {
		lockorder.MustBeFree()
		end()
	}
	c.poke()
	return true
}

// passLocked is the part of passToNext under the waitlines' mutex. After unlocking it, the
// caller leaves the queue at queuedAt, calls end, which ends the context of the present holder, and then
// wakes c.
func (t *waitlines) passLocked(le *Lease, now instant) (c *caller, queuedAt int, end func()) {
	l := t.lines[le.grant.line()]
	if l != nil {
		c = l.heir(le.grant)
	}
	if c == nil || closed(c.done) {
		return nil, -1, nil
	}
	if readers := t.lines[lineKey{resource: le.grant.resource, shared: true}]; readers != nil && readers.first != nil {
		le.grant.yields()
	}
	next, end := le.grant.passOn(le, c, now)
	if next == nil {
		return nil, -1, nil
	}
	queuedAt, wake := l.handedTo(c, next)
	wake.poke()
	t.inLine--
	return c, queuedAt, end
}

// yields notes that others want the resource than the callers that the lease is handed over to.
func (g *grant) yields() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hand.contested = true
}

// passOn ends the only handle of a lease, and then makes a handle for its heir. next is nil if
// the lease cannot be passed on. The caller calls end after it has unlocked the mutexes.
func (g *grant) passOn(le *Lease, heir *caller, now instant) (next *Lease, end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.adopted || g.cause != nil || le.done || len(g.handles) != 1 || g.handles[0] != le:
		return nil, nil // another caller may use the lease, or the lease is over
	case !g.pool.conf.rules.HandsOver(g.handsOverLocked(now)):
		return nil, nil
	}
	le.done = true
	if !g.pool.conf.rules.KeepsHandle {
		end = le.overLocked(ErrReleased)
	}
	g.pool.events.released(le, nil)
	g.hand.count++
	g.name = g.pool.queuesAs(g.line()) // the release takes the process out of the queue, also if a TryLock got the lease
	next = &Lease{grant: g, fence: g.pool.conf.rules.Successor(le.fence), turn: g.hand.count, parent: heir.ctx, since: time.Now()}
	g.handles[0], g.keepTo = next, 0
	if g.maxHold > 0 { // the bound of the new holder counts from now
		g.hand.since = now
		g.limits.deadline.Store(int64(min(g.limits.uncapped, g.holdEnd())))
		g.pool.renewer.update(g)
	}
	g.pool.events.acquired(next, heir.began)
	return next, end
}

// handsOverLocked reports whether a lease may go to the next caller at now. The hand-overs end
// while the grant alone still gives the next lease its MinValidity. So other processes get their
// turn even if the lease has been renewed.
func (g *grant) handsOverLocked(now instant) bool {
	return g.hand.count < g.hand.most(g.start, now) && now < g.deadline() &&
		now.Sub(g.start) <= g.minValidity() && g.limits.uncapped.Sub(now) >= g.minValidity()
}
