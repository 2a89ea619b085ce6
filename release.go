package redlock

import "slices"

// This file ends a lease, or undoes an attempt: every node is told to drop the
// key. What a node does not confirm its lane repeats (lane.go, settle).

// sendReleases tells all nodes to drop the key. On each lane this comes behind
// whatever was sent for the same attempt before.
//
// Source: distlock, step 5; ALGORITHM section 5.
func (g *grant) sendReleases(now instant) {
	g.abandoned.Store(true)
	reqs := make([]request, len(g.places))
	end := now.add(g.timeout())
	gate := g.pool.gateOf(g.resource) // it may be another one by now
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, lane := range g.pool.lanes {
		reqs[i] = request{op: opRelease, node: i, grant: g, counter: g.places[i].counter, target: g.target, end: end}
		if stays := g.cause == nil && g.stays; !stays && (i == g.gate || i == gate) {
			reqs[i].who = g.name()
		}
		_ = lane.send(&reqs[i]) // a release is always taken
	}
}

// releasedLocked takes a node's answer to the release. A node that could not be
// reached at first may still answer later.
func (g *grant) releasedLocked(node int, rep reply) {
	p := &g.places[node]
	if p.release == yes {
		return
	}
	switch err := rep.refusal("", ""); err {
	case nil:
		p.release = yes
	default:
		p.release, p.unsent = no, err == errUnsent
		g.noteLocked(node, opRelease, err)
	}
	g.wakeLocked()
}

// endAll ends all handles of a lease. If that ended the lease it returns the last of
// them: its keys have to be released.
func (g *grant) endAll(cause error) *Lease {
	g.mu.Lock()
	handles := slices.Clone(g.handles)
	g.mu.Unlock()
	for _, le := range handles {
		if last, _ := le.end(cause, g.pool.now()); last {
			return le
		}
	}
	return nil
}

// awaitRelease waits until a quorum confirmed the release. That leaves the nodes
// which have not to their lanes.
//
// Source: ALGORITHM section 5 ("returns when q nodes confirmed").
func (g *grant) awaitRelease() error {
	timer := g.pool.timers.start(g.timeout())
	defer g.pool.timers.stop(timer)
	for timeUp := false; ; {
		if err, decided := g.releaseVerdict(timeUp); decided {
			return err
		}
		select {
		case <-g.signal:
		case <-timer.C:
			timeUp = true
		}
	}
}

// releaseVerdict judges the answers so far. A node that never got a message of the
// attempt has no key of it, which is as good as a confirmation.
func (g *grant) releaseVerdict(timeUp bool) (err error, decided bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := func(p *place) bool { return p.release == no && p.err == errGone }
	free := func(p *place) bool { return p.release == yes || p.unsent }
	n := len(g.places)
	switch {
	case g.countLocked(free) >= quorum(n):
		return nil, true
	case g.countLocked(gone) >= quorum(n):
		return notHeld("unlock", g.resource, g.releaseErrorLocked(errGone)), true
	case !timeUp && g.countLocked(func(p *place) bool { return p.release == awaited }) > 0:
		return nil, false
	case g.countLocked(free)+g.countLocked(gone) >= quorum(n):
		return nil, true // dropped here, missing there: a quorum is free of the key
	}
	return g.releaseErrorLocked(ErrNoQuorum), true
}

func (g *grant) releaseErrorLocked(reason error) error {
	confirmed := func(p *place) bool { return p.release == yes }
	return g.quorumErrorLocked("unlock", g.countLocked(confirmed), func(p *place) bool { return !confirmed(p) }, reason)
}
