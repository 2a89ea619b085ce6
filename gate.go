package redlock

import (
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file is about the order among processes. Each resource has a gate, the one node
// that keeps the queue of those who wait for it and calls them one after the other
// (lua/queue.lua). That is for order alone: exclusion never depends on it, and clients
// may disagree about which node it is.

const (
	mostAgain  = 5                    // rounds in which busy nodes are asked again at once
	againPause = 2 * time.Millisecond // before each further one
	squatShare = 10                   // of the node timeout in which they are, where a quorum of them is busy
	leastHurry = 2 * time.Millisecond // for a gate that is slower than a quorum of the others
)

// gateOf is the gate of a resource: the node of the highest rendezvous hash among those
// that are up. Nodes go by the servers' identities there, as clients may have other names for
// them. That of a node which was never reached is not known, so another is taken if there is
// one.
//
// Source: ALGORITHM section 10.
func (p *pool) gateOf(resource string) int {
	h := node.Hash(resource)
	gate, highest, known := 0, uint64(0), false
	for i, n := range p.nodes {
		s := n.Standing()
		if s.Down != nil || known && !s.Reached {
			continue
		}
		if score := mix(h ^ s.Hash); score >= highest || s.Reached && !known {
			gate, highest, known = i, score, s.Reached
		}
	}
	return gate
}

// mix spreads the bits of a hash.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// approach is how an attempt goes about it.
type approach struct {
	waits     bool // if somebody else has the resource the process waits for it
	gateFirst bool // the other nodes are asked when the gate has granted
	patient   bool // others are known to wait: a quorum alone is not enough, the gate must have its say
}

// gateWord is what the gate said of those who wait, and what the attempt made of it.
type gateWord struct {
	heard   bool
	refused bool          // somebody has the resource, or has been called
	vetoed  bool          // the latter: nobody else gets it for now
	others  bool          // other processes wait
	left    time.Duration // of the holder's key or of the other's turn; negative if it has no end
	gate    int

	elsewhere bool // it granted, but a quorum of the nodes stays busy: somebody may well hold the resource without it
	waits     bool // the process goes on waiting, and the gate was told so
}

// who is the name by which the gate knows the process.
func (g *grant) who() string {
	if g.waits {
		return g.pool.channel
	}
	return wire.Nobody
}

// hearGateLocked takes what the gate said beside its vote.
func (g *grant) hearGateLocked(rep node.Reply) {
	switch rep.Code {
	case wire.Granted:
		g.word = gateWord{heard: true, others: rep.Extra > 0, gate: g.gate}
	case wire.Busy, wire.Queued:
		vetoed := rep.Code == wire.Queued
		g.word = gateWord{
			heard: true, refused: true, vetoed: vetoed, others: rep.Counter > 0 || vetoed,
			left: time.Duration(rep.Extra) * time.Millisecond, gate: g.gate,
		}
	}
}

// rests reports whether an attempt that failed has its process wait in the gate's queue:
// somebody else has the resource. Where it is the nodes that are in trouble the process asks
// again by itself.
//
// Source: ALGORITHM section 10, "rest".
func (w gateWord) rests(how approach) bool { return how.waits && (w.refused || w.elsewhere) }

// gateAwaitedLocked reports whether an attempt that could be decided has to wait for what
// the gate says. It does so for about as long again as it took the others.
//
// Source: ALGORITHM section 10.
func (g *grant) gateAwaitedLocked() bool {
	if g.ungated || g.places[g.gate].vote != awaited {
		return false
	}
	if g.hurry == 0 {
		now := g.pool.now()
		g.hurry = min(now.Add(max(now.Sub(g.start), leastHurry)), g.asked.Add(g.timeout()))
		g.wakeLocked()
	}
	return true
}

// askAgainLocked is for an attempt that too many nodes keep from a quorum because they are
// busy. The gate decides between them: where it has granted, whoever is in the way has
// released and the news is under way, or will be refused and roll back. So the nodes are
// asked again, as long as the attempt has time; a TryLock only does so at once. Where a
// quorum is busy somebody may well hold the resource, whose renewals lack the nodes that this
// attempt has: it lets them go a good deal sooner. It reports false if there is nothing to hope for.
//
// Source: ALGORITHM section 10.
func (g *grant) askAgainLocked() bool {
	if g.gateAwaitedLocked() {
		return true
	}
	now := g.pool.now()
	busy := g.countLocked(func(p *place) bool { return p.busy })
	if g.places[g.gate].vote != yes || now >= g.asked.Add(g.timeout()) {
		return false
	}
	switch {
	case g.againAt != 0: // soon
	case g.rounds < mostAgain:
		return g.reaskLocked()
	case !g.waits:
		return false
	case busy >= quorum(len(g.places)) && now >= g.asked.Add(g.timeout()/squatShare):
		g.word.elsewhere, g.word.left = true, -1
		return false
	default:
		g.againAt = now.Add(againPause)
		g.wakeLocked()
	}
	return true
}

// reaskLocked asks the nodes that are busy again. It reports false if none could be.
func (g *grant) reaskLocked() (sent bool) {
	g.rounds++
	for i := range g.places {
		if p := &g.places[i]; p.pending {
			p.pending = false
			g.askLocked(make([]node.Request, 1), i)
			sent = sent || p.vote == awaited
		}
	}
	return sent
}

// leaveQueue tells a gate that this process does not wait for a resource any more: the
// release of an attempt that was never made says just that.
func (p *pool) leaveQueue(resource string, gate int) {
	lc := p.conf.lockConfig
	g, err := newGrant(p, resource, lc)
	if err != nil {
		return // it will lose its place by not answering
	}
	n := p.nodes[gate]
	g.keys.AssumeSent(n)
	_ = n.Send(&node.Request{Op: wire.Release, Node: gate, Key: &g.keys, Who: p.channel, Timeout: lc.timeout(), To: g})
}

// listen has the process hear what a gate says, from now on and as soon as it can, and what is
// told there of locks that were broken.
func (p *pool) listen(gate int) {
	p.inboxes[gate].Start(p.hearing, func(serve func()) {
		p.listeners.Go(func() error { serve(); return nil })
	}, p.heard)
}

// heard takes what a gate said: to this process that it is its turn, or to all that a lock was
// broken.
func (p *pool) heard(channel, key string) {
	if channel == p.channel {
		p.called(key)
		return
	}
	for _, g := range p.keeper.all() {
		if g.keys.Lock == key {
			g.probe()
		}
	}
}

// hears reports whether the gate can call the process.
func (p *pool) hears(gate int) bool { return p.inboxes[gate].Ready() }

// called is told that it is this process's turn. If nobody waits here any more that is no
// news to the gate: a release that says so is on its way.
func (p *pool) called(key string) {
	p.turns.call(strings.TrimPrefix(key, p.conf.keyPrefix))
}
