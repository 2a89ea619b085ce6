package redlock

import "time"

// This file is the hand-over: a lease that is unlocked while another caller of the same
// process waits for the resource goes to that caller as it is, keys and deadline, and
// no node is told. Its grant has reserved a block of fencing tokens for that.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".

// How often one grant may be handed over: as it has tokens, or less if other processes are
// known to want the resource. Then those who were in line when it was made get it, and after
// them more only until the time that it took to get the grant has paid off.
const (
	mostHandovers    = fenceBlock - 1
	crowdedHandovers = 16
	crowdedPayoff    = 8 // times what the grant took
)

// handOver ends a lease at now and gives what it stood on to the caller at the head of the
// line. It reports false, and has done nothing, if that cannot be.
func (l *Locker) handOver(le *Lease, now instant) bool {
	t, g := &l.pool.turns, le.grant
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.heirLocked(g)
	if c == nil {
		return false
	}
	next := g.passOn(le, c, now)
	if next == nil {
		return false
	}
	t.removeLocked(c)
	c.lease = next
	c.poke()
	return true
}

// heirLocked is the caller who may have what a grant stands on: it waits at the head of
// the line, and wants the lease to be as it is.
func (t *turns) heirLocked(g *grant) *caller {
	l := t.lines[g.resource]
	if l == nil || l.holder != g {
		return nil
	}
	if c := l.first; c != nil && c.idle && c.config == g.lockConfig && !closed(c.done) {
		return c
	}
	return nil
}

// passOn ends the only handle of a lease and makes one for its heir, in this order; nil
// if the lease cannot be passed on. The block ends early enough for the new lease to have
// its MinValidity by the grant alone, so that other processes get their turn even
// where the lease has been renewed.
func (g *grant) passOn(le *Lease, heir *caller, now instant) (next *Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := mostHandovers
	if g.word.others || g.contested {
		most = crowdedHandovers
		if now.Sub(g.start) >= crowdedPayoff*g.took {
			most = g.inLine
		}
	}
	switch {
	case g.adopted || g.cause != nil || le.done || len(g.handles) != 1 || g.handles[0] != le:
		return nil // somebody else uses it, or nobody can any more
	case broken.lateHandOver:
	case g.handed >= most || now >= instant(g.deadline.Load()):
		return nil
	case now.Sub(g.start) > g.minValidity() || g.uncapped.Sub(now) < g.minValidity():
		return nil
	}
	le.done = true
	if !broken.keepsHandle {
		if end := le.overLocked(ErrReleased); end != nil {
			end()
		}
	}
	g.pool.events.released(le)
	g.handed++
	next = &Lease{grant: g, locker: le.locker, fence: le.fence + 1, turn: g.handed, parent: heir.ctx, since: time.Now()}
	if broken.sameToken {
		next.fence = le.fence
	}
	g.handles[0] = next
	if g.maxHold > 0 { // which counts from now
		g.heldFrom = now
		g.deadline.Store(int64(min(g.uncapped, g.holdEnd())))
		g.pool.keeper.update(g)
	}
	g.pool.events.acquired(next, heir.began)
	return next
}
