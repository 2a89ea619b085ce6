package redlock

import (
	"strings"
	"time"
)

// This file is about the order among processes. Each resource has a gate, the one node
// that keeps the queue of those who wait for it and calls them one after the other
// (lua/queue.lua). That is for order alone: exclusion never depends on it, and clients
// may disagree about which node it is.

// Keys beside the lock key that the gate uses, see lua/queue.lua.
const (
	queueSuffix = "~queue"
	seenSuffix  = "~seen"
	turnSuffix  = "~turn"
)

const (
	mostAgain  = 5                    // rounds in which busy nodes are asked again at once
	againPause = 2 * time.Millisecond // before each further one
	squatShare = 10                   // of the node timeout in which they are, where a quorum of them is busy
	leastHurry = 2 * time.Millisecond // for a gate that is slower than a quorum of the others
)

// nobody is who waits where nobody does, or cannot be called.
const nobody = "-"

// gateOf is the gate of a resource: the node of the highest rendezvous hash among those
// that are up.
//
// Source: ALGORITHM section 10.
func (p *pool) gateOf(resource string) int {
	h := hashOf(resource)
	gate, highest := 0, uint64(0)
	for i, n := range p.lanes {
		if score := mix(h ^ n.hash); score >= highest && !n.isDown.Load() {
			gate, highest = i, score
		}
	}
	return gate
}

// hashOf is FNV-1a, which is the same in every process.
func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads the bits of a hash.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// approach is how an attempt goes about it.
type approach struct {
	waits     bool // the process is to be put into the queue if somebody else has the resource
	gateFirst bool // the other nodes are asked when the gate has granted
	patient   bool // others are known to wait: a quorum alone is not enough, the gate must have its say
}

// gateWord is what the gate said of those who wait.
type gateWord struct {
	heard   bool
	refused bool          // somebody has the resource, or has been called
	vetoed  bool          // the latter: nobody else gets it for now
	queued  bool          // this process is in the queue now
	others  bool          // other processes are
	left    time.Duration // of the holder's key or of the other's turn; negative if it has no end
	gate    int

	elsewhere bool // it granted, but a quorum of the nodes stays busy: somebody may well hold the resource without it
}

// who is the name by which the gate is to call the process.
func (g *grant) who() string {
	if g.pool.lanes[g.gate].inbox.ready.Load() {
		return g.name()
	}
	return nobody
}

// name is that by which the gate may know it.
func (g *grant) name() string {
	if g.waits {
		return g.pool.channel
	}
	return nobody
}

// hearGateLocked takes what the gate said beside its vote.
func (g *grant) hearGateLocked(rep reply, who string) {
	switch rep.code {
	case codeGranted:
		g.word = gateWord{heard: true, others: rep.extra > 0, gate: g.gate}
	case codeBusy, codeQueued:
		n := gateWord{heard: true, refused: true, queued: who != nobody, left: time.Duration(rep.extra) * time.Millisecond, gate: g.gate}
		others := rep.counter
		if n.queued {
			others--
		}
		n.vetoed = rep.code == codeQueued
		n.others = others > 0 || n.vetoed
		g.word = n
	}
}

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
		g.hurry = min(now.add(max(now.sub(g.start), leastHurry)), g.asked.add(g.timeout()))
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
	if g.places[g.gate].vote != yes || now >= g.asked.add(g.timeout()) {
		return false
	}
	switch {
	case g.againAt != 0: // soon
	case g.rounds < mostAgain:
		return g.reaskLocked()
	case !g.waits:
		return false
	case busy >= quorum(len(g.places)) && now >= g.asked.add(g.timeout()/squatShare):
		g.word.elsewhere = true
		return false
	default:
		g.againAt = now.add(againPause)
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
			g.askLocked(make([]request, 1), i)
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
	n := p.lanes[gate]
	g.traces[gate].sent = true
	_ = n.send(&request{op: opRelease, node: gate, grant: g, who: p.channel, end: p.now().add(lc.timeout())})
}

// listen has the process hear what the gate says, from now on.
func (p *pool) listen(gate int) {
	in := p.lanes[gate].inbox
	in.start.Do(func() {
		p.listeners.Go(func() error { in.serve(p.hearing, p.called); return nil })
	})
}

// called is told that it is this process's turn. If nobody waits here any more that is no
// news to the gate: a release that says so is on its way.
func (p *pool) called(key string) {
	p.turns.call(strings.TrimPrefix(key, p.conf.keyPrefix))
}
