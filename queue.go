package redlock

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file orders processes. One node keeps the queue of the processes that wait for a
// resource, and calls them one after the other (internal/wire/lua/queue.lua). The queue is for
// order alone: exclusion never depends on it, and clients may disagree about the queue node.

// queuePolicy has the times and numbers that tune the order among processes.
//
// Source: ALGORITHM section 10.
type queuePolicy struct {
	// Of one attempt: see attempt.go.
	leastPatience time.Duration // how long a quorum waits at least for the queue node's answer
	roundsAtOnce  int           // how often nodes that refused are asked again at once
	roundPause    time.Duration // pause before they are asked again after that
	retryShare    time.Duration // if a quorum refuses, they are asked for the node timeout divided by this

	// Between attempts: see waitline.go.
	firstDelay  time.Duration // largest pause before the second attempt
	mostDelay   time.Duration // largest pause between attempts
	queuedDelay time.Duration // largest pause of a process in the queue
	restDelay   time.Duration // pause of a process that has joined the queue without an attempt
	mostSpread  int           // a process waits for 1 ms for each process before it, but for no more than so many
	askAllEvery time.Duration // how often a process that keeps asking the queue node asks all nodes
	roomDelay   time.Duration // usual pause of a process that may keep a holder's renewals from the queue node
	mostRefused int           // attempts in a row that may do so before the process pauses for roomDelay
}

var defaultQueuePolicy = queuePolicy{
	leastPatience: 2 * time.Millisecond,
	roundsAtOnce:  5,
	roundPause:    2 * time.Millisecond,
	retryShare:    10,
	firstDelay:    2 * time.Millisecond,
	mostDelay:     100 * time.Millisecond,
	queuedDelay:   time.Second,
	restDelay:     250 * time.Millisecond,
	mostSpread:    100,
	askAllEvery:   700 * time.Millisecond,
	roomDelay:     160 * time.Millisecond,
	mostRefused:   2,
}

// retryDelay returns the pause after the given number of failed attempts: a random part of a
// limit that doubles, so that callers that collided do not collide again.
func (q *queuePolicy) retryDelay(failed int) time.Duration {
	limit := q.mostDelay
	if failed < 10 {
		limit = min(q.firstDelay<<max(failed-1, 0), q.mostDelay)
	}
	return rand.N(limit) + time.Microsecond
}

// patience returns how long a process in the queue waits for its turn, before it asks again: holders die,
// and messages get lost. left is the rest of the key or turn in the way, as the queue node told it; it is
// negative if that has no end.
func (q *queuePolicy) patience(left time.Duration) time.Duration {
	if left >= 0 && left < q.queuedDelay {
		return left + time.Millisecond
	}
	return q.queuedDelay*4/5 + rand.N(q.queuedDelay*2/5+1)
}

// room returns how long a process pauses, so that a holder's renewals can get the queue node.
func (q *queuePolicy) room() time.Duration { return q.roomDelay*3/4 + rand.N(q.roomDelay/2) }

// queueNodeOf returns the node that keeps the queue of a resource: the one with the highest
// rendezvous hash among the nodes that are up. The hash is of the servers' identities, because
// clients may have different addresses for a server. The identity of a node that was never
// reached is not known, so such a node is chosen only if there is no other.
//
// Source: ALGORITHM section 10.
func (p *pool) queueNodeOf(resource string) int {
	h := node.Hash(resource)
	best, highest, known := 0, uint64(0), false
	for i, n := range p.nodes {
		s := n.Standing()
		if s.Down != nil || known && !s.Reached {
			continue
		}
		if score := mix(h ^ s.Hash); score >= highest || s.Reached && !known {
			best, highest, known = i, score, s.Reached
		}
	}
	return best
}

// mix spreads the bits of a hash.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// heardFrom returns what the queue node says beside its vote.
func heardFrom(rep node.Reply) queueReply {
	switch {
	case rep.Err != nil:
	case rep.Code == wire.Granted:
		return queueReply{heard: true, others: rep.Extra > 0}
	case rep.Code == wire.Busy, rep.Code == wire.Queued:
		vetoed := rep.Code == wire.Queued
		return queueReply{
			heard: true, refused: true, vetoed: vetoed, others: rep.Counter > 0 || vetoed,
			left: time.Duration(rep.Extra) * time.Millisecond, foreign: rep.Code == wire.Busy && rep.Extra == wire.Abrupt && rep.Owner == "",
		}
	}
	return queueReply{}
}

// leaveQueue tells a queue node that this process does not wait for a resource any more. It
// sends the release of an attempt that was never made.
func (p *pool) leaveQueue(line lineKey, queueNode int) {
	lc := p.conf.lockConfig
	k := new(node.Key)
	p.initKey(k, line.resource, lc)
	n := p.nodes[queueNode]
	k.AssumeSent(n)
	_ = n.Send(&node.Request{Op: wire.Release, Node: queueNode, Key: k, Process: p.queuesAs(line), Timeout: lc.timeout(), To: unheard{}}, p.now())
}

// rest joins the queue of a resource without an attempt, which would be refused: other processes wait.
//
// Source: ALGORITHM section 10, "How a process waits".
func (p *pool) rest(c *caller) {
	g := newGrant(p, c.line.key.resource, c.config)
	queueNode := p.queueNodeOf(g.resource)
	listening := p.waitAt(queueNode) == listens
	p.waitlines.rested(c, queueNode, listening)
	n := p.nodes[queueNode]
	g.keys.AssumeSent(n)
	r := &node.Request{Node: queueNode, Key: &g.keys, Timeout: g.timeout(), Shared: g.shared, To: g}
	asRest(r, p.queuesAs(g.line()), listening)
	_ = n.Send(r, p.now())
}

// waitAt has the process listen to a queue node, and returns how it waits there.
func (p *pool) waitAt(queueNode int) ending {
	p.listen(queueNode)
	if p.subscriptions[queueNode].Ready() {
		return listens
	}
	return polls
}

// ended takes the reply of a queue node to the end of an attempt or a lease.
func (p *pool) ended(r *node.Request, rep node.Reply, g *grant) {
	switch {
	case rep.Err != nil || r.Process == "":
	case r.Op == wire.Release:
		p.waitlines.hear(g.resource, queueReply{heard: true, others: rep.Counter > 0}, g.ttl)
	case r.Process != wire.NoProcess:
		p.waitlines.placed(g.line(), int(rep.Extra), rep.Counter > 0)
	}
}

// unheard receives the answers that no caller waits for.
type unheard struct{}

func (unheard) Receive(*node.Request, node.Reply) {}

// listen subscribes the process to a queue node, in the background: to the calls of the process,
// and to the messages about broken locks.
func (p *pool) listen(queueNode int) {
	p.subscriptions[queueNode].Start(p.hearing, func(serve func()) {
		p.listeners.Go(func() error { serve(); return nil })
	}, p.heard)
}

// heard takes a message of a queue node: a call of this process, or a message to all processes
// that a lock was broken.
func (p *pool) heard(channel, key string) {
	if channel == p.channel {
		p.called(key)
		return
	}
	for _, g := range p.renewer.all() {
		if g.keys.Lock == key {
			g.probe()
		}
	}
}

// called is told that it is this process's turn. If no caller waits here any more that is no
// news to the queue node: a release that says so is on its way.
func (p *pool) called(key string) {
	line := lineKey{resource: strings.TrimPrefix(key, p.conf.keyPrefix)}
	line.resource, line.shared = strings.CutSuffix(line.resource, wire.OfReaders)
	p.waitlines.call(line)
}

// queuesAs returns the name by which the callers of a line wait at a queue node.
func (p *pool) queuesAs(line lineKey) string {
	if line.shared {
		return p.channel + wire.OfReaders
	}
	return p.channel
}

// otherLibrary leaves room for clients of another library that lock the same key, such as redsync during a
// migration. They poll a few times a second, and stand in no queue. So a process that met such a client
// within the last minute pauses for a gap once its leases have followed each other for a share of time. With the
// empty prefix, by which it may share every key, it does so each second without having met one.
//
// Source: ALGORITHM section 10, "Other libraries".
type otherLibrary struct {
	met   time.Time // when a key of the other library was last in the way
	since time.Time // when the present leases began to follow each other
	freed time.Time // when the last of them ended
}

const (
	otherMemory = time.Minute
	otherShare  = 100 * time.Millisecond
	otherGap    = 50 * time.Millisecond
)

// pause returns how long this process leaves the resource free before it asks for it.
func (o *otherLibrary) pause(emptyPrefix bool, now time.Time) time.Duration {
	share, free := otherShare, now.Sub(o.freed)
	if now.Sub(o.met) >= otherMemory {
		share = time.Second
		if !emptyPrefix {
			return 0
		}
	}
	if free >= otherGap {
		o.since = now
	}
	if now.Sub(o.since) < share {
		return 0
	}
	return otherGap - free
}
