package redlock

import (
	"context"
	"errors"
	"slices"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file ends a lease, or undoes an attempt: it tells every node to drop the key.
// internal/node/retry.go repeats a release until the node confirms it.

// unlock ends a hold. last reports that it was the last hold of its lease; the releases
// have then been sent.
func (p *pool) unlock(le *hold) (last bool, err error) {
	now := p.now()
	if p.passToNext(le, now) {
		return false, nil
	}
	last, err = le.end(ErrReleased, now)
	if last {
		p.release(le, now)
	}
	return last, err
}

// unlockKept ends a lease that was kept until end for its minimum hold.
func (p *pool) unlockKept(kept *hold, end instant) {
	now := p.now()
	if p.passToNext(kept, now) {
		return
	}
	if last, _ := kept.end(ErrReleased, end); last {
		p.release(kept, now)
	}
}

// release sends the releases of a lease whose last hold was ended at now.
func (p *pool) release(le *hold, now instant) {
	le.grant.sendReleases(now, released)
	p.renewer.remove(le.grant)
	p.lines.Freed(le.grant.key(), le.grant)
}

// ending is how an attempt or a lease ends at the queue node.
type ending uint8

const (
	released ending = iota // the process does not wait
	listens                // the process goes on waiting after a failed attempt, and can be called
	polls                  // the same, but the process cannot be called
)

// sendReleases tells all nodes to drop the key. Each node gets the release after all earlier
// requests of the same attempt. end is the ending at the queue node.
//
// Source: distlock, step 5; ALGORITHM sections 5 and 10.
func (g *grant) sendReleases(now instant, end ending) {
	g.keys.Abandon()
	reqs := make([]node.Request, len(g.nodes))
	present := g.pool.queueNodeOf(g.resource) // another node may keep the queue by now
	process := g.releasedBy()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, n := range g.pool.nodes {
		r := &reqs[i]
		*r = node.Request{Op: wire.Release, Node: i, Key: &g.keys, Counter: g.nodes[i].counter, Target: g.target, Timeout: g.Timeout(), Shared: g.shared, To: g}
		switch {
		case end != released && i == g.queueNode:
			asRest(r, process, end == listens, g.several)
		case end == released && (i == g.queueNode || i == present):
			r.Process = process
		}
		g.nodes[i].state = max(g.nodes[i].state, keyUnanswered) // the second release of a broken lease keeps the answers to the first
		g.noteLocked(i, wire.Release, errUndecided)
		_ = n.Send(r, now) // Send accepts every release
	}
}

// asRest makes a request the rest of a process. several is the number of resources if the process wants any
// of several, otherwise 0.
func asRest(r *node.Request, process string, listening bool, several int) {
	r.Op, r.Process, r.Target = wire.Rest, process, int64(several)*wire.PerResource
	if listening {
		r.Target += wire.Listens
	}
}

// releasedBy returns the name of the process that the queue node removes from its queue at the
// release. If the lease was lost before, the callers of this process that wait now came later:
// the process keeps its place.
func (g *grant) releasedBy() string {
	g.mu.Lock()
	lost, name, key := errors.Is(g.term.Cause(), ErrLost), g.name, g.key()
	g.mu.Unlock()
	if lost && g.pool.lines.Waits(key, 0) {
		return wire.NoProcess
	}
	return name
}

// releasedLocked takes a node's answer to the release. A node that could not be reached at
// first may answer later.
func (g *grant) releasedLocked(i int, rep node.Reply) {
	p := &g.nodes[i]
	if p.state == keyDropped {
		return
	}
	err := rep.Refusal(&g.keys)
	switch {
	case err == nil:
		p.state = keyDropped
	case err == node.ErrAdopted:
		p.state = keyAdopted
	case err == node.ErrGone:
		p.state = keyGone
	case p.state >= keyExpired:
	case err == node.ErrExpired:
		p.state = keyExpired
	case err != node.ErrUnsent:
		p.state = keyFailed
	case g.pool.nodes[i].Standing().Down != nil:
		p.state = keyDown
	default:
		p.state = keyUnsent
	}
	if err != nil {
		g.noteLocked(i, wire.Release, err)
	}
	g.signal.Set()
}

// endAll ends all holds of a lease. If that ended the lease, endAll returns the last hold,
// and the caller has to release the keys.
func (g *grant) endAll(cause error) *hold {
	g.mu.Lock()
	holds := slices.Clone(g.holds)
	g.mu.Unlock()
	for _, le := range holds {
		if last, _ := le.end(cause, g.pool.now()); last {
			return le
		}
	}
	return nil
}

// awaitRelease waits until a quorum has confirmed the release. The other nodes are told in the
// background.
//
// Source: ALGORITHM section 5 ("returns when q nodes confirmed").
func (g *grant) awaitRelease() error {
	timer := g.pool.timers.start(g.Timeout())
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

// releaseVerdict judges the answers so far. A node that never got a request of the attempt has no
// key of it: that counts as a confirmation. If the node is down, it counts only after all others
// have answered: it has no vote for the next caller, who needs those of the others.
func (g *grant) releaseVerdict(timeUp bool) (err error, decided bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in := func(states ...keyState) int {
		return g.countLocked(func(p *nodeKey) bool { return slices.Contains(states, p.state) })
	}
	need, gone := g.pool.need, in(keyGone, keyAdopted)
	switch {
	case in(keyDropped, keyUnsent) >= need:
		return nil, true
	case gone >= need && in(keyAdopted) > 0:
		return notHeld("unlock", g.resource, errLostAdopted), true
	case gone >= need:
		return notHeld("unlock", g.resource, g.releaseErrorLocked(node.ErrGone)), true
	case !timeUp && in(keyUnanswered) > 0:
		return nil, false
	case in(keyDropped, keyUnsent, keyDown)+gone >= need:
		return nil, true // a quorum is free of the key: some nodes dropped it, the others lacked it
	}
	return g.releaseErrorLocked(ErrNoQuorum), true
}

func (g *grant) releaseErrorLocked(reasons ...error) error {
	confirmed := func(p *nodeKey) bool { return p.state == keyDropped }
	return g.quorumErrorLocked("unlock", g.countLocked(confirmed), func(p *nodeKey) bool { return !confirmed(p) }, reasons...)
}

// awaitRepeated waits until a quorum is free of the key, after a release that no quorum
// confirmed in time. The release is repeated until the key has expired. If a node answers that
// it has no such key, an earlier release has arrived there.
//
// Source: ALGORITHM section 5.
func (g *grant) awaitRepeated(ctx context.Context) error {
	for {
		g.mu.Lock()
		free := g.countLocked((*nodeKey).frees)
		settled := free >= g.pool.need
		g.mu.Unlock()
		if settled {
			g.signal.Set() // another Unlock may wait, too
			return nil
		}
		if over := until(ctx, g.pool.closing, g.signal, 0); over != nil {
			g.signal.Set()
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.releaseErrorLocked(ErrNoQuorum, over)
		}
	}
}
