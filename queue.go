package redlock

import (
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file orders processes. One node keeps the queue of the processes that wait for a
// resource, and calls them one after the other (internal/wire/lua/queue.lua). The queue is for
// order alone: exclusion never depends on it, and clients may disagree about the queue node.

// queueNodeOf returns the node that keeps the queue of a resource: the one with the highest
// rendezvous hash among the nodes that are up. The hash is of the servers' identities, because
// clients may have different addresses for a server. The identity of a node that was never
// reached is not known, so such a node is chosen only if there is no other.
//
// Source: ALGORITHM section 10.
func (p *pool) queueNodeOf(resource string) int {
	h := node.Hash(wire.QueueOf(resource))
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

// leaveQueue tells a queue node that this process does not wait for a resource any more. It
// sends the release of an attempt that was never made. It does nothing for line.Nowhere.
func (p *pool) leaveQueue(key line.Key, queueNode int) {
	if queueNode == line.Nowhere {
		return
	}
	lc := p.conf.lockConfig
	k := new(node.Key)
	p.initKey(k, key.Alone(), lc)
	k.ID = p.conf.newToken(lc.owner, 0)
	n := p.nodes[queueNode]
	k.AssumeSent(n)
	_ = n.Send(&node.Request{Op: wire.Release, Node: queueNode, Key: k, Process: key.Ticket(p.channel), Timeout: lc.Timeout(), To: ignored{}}, p.now())
}

// rest joins the queue of a resource without an attempt, which would be refused: other processes
// wait.
//
// Source: ALGORITHM section 10, "How a process waits".
func (p *pool) rest(resource string, c *caller, attempts int) {
	lc, key, k := c.Call.config, c.Key(), new(node.Key)
	queueNode := p.queueNodeOf(resource)
	listening := p.waitAt(queueNode) == listens
	p.lines.Rested(c, queueNode, listening)
	p.initKey(k, resource, lc)
	k.ID = p.conf.newToken(lc.owner, 0)
	n := p.nodes[queueNode]
	k.AssumeSent(n)
	r := &node.Request{Node: queueNode, Key: k, Timeout: lc.Timeout(), Shared: lc.shared, To: rested{p, key, lc.TTL, attempts}}
	asRest(r, key.Ticket(p.channel), listening, lc.several)
	_ = n.Send(r, p.now())
	if key.Slot > 0 && p.lines.Served(c) { // no other caller of the process needs the place
		p.leaveQueue(c.Key(), queueNode)
	}
}

// rested receives the answer to a rest.
type rested struct {
	pool   *pool
	line   line.Key
	ttl    time.Duration
	number int // of the line's last attempt
}

func (to rested) Receive(r *node.Request, rep node.Reply) {
	to.pool.hear(r, rep, to.line, to.ttl, to.number)
}

// hear tells a line what the queue node reports in a reply.
func (p *pool) hear(r *node.Request, rep node.Reply, key line.Key, ttl time.Duration, number int) wire.Word {
	w := rep.Word(r)
	if w.Heard || w.Joined {
		p.lines.Hear(key, w, ttl, number)
	}
	return w
}

// waitAt has the process listen to a queue node, and returns how it waits there.
func (p *pool) waitAt(queueNode int) ending {
	p.listen(queueNode)
	if p.subscriptions[queueNode].Ready() {
		return listens
	}
	return polls
}

// ignored receives the answers that no caller waits for.
type ignored struct{}

func (ignored) Receive(*node.Request, node.Reply) {}

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
	p.lines.Call(line.CalledTo(strings.TrimPrefix(key, p.conf.keyPrefix)))
}
