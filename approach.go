package redlock

import (
	"time"

	"github.com/d0720281/redlock/internal/wire"
)

// approach is how an attempt deals with the node that keeps the queue of the processes that
// wait (queue.go). Exclusion never depends on it.
//
// Source: ALGORITHM section 10.
type approach struct {
	strategy
	policy *queuePolicy
	node   int        // the queue node
	shared bool       // the attempt is a reader's
	reply  queueReply // what the queue node said

	// elsewhere says that the queue node granted, but a quorum of the nodes refuses: a process
	// may hold the resource without the queue node.
	elsewhere bool

	readers bool    // other readers have the resource, and perhaps a process waits behind them
	closes  instant // a quorum waits for the queue node's answer until then; 0 = it does not wait
	closed  bool    // the quorum has waited long enough
	rounds  int     // how often the nodes that refused were asked again
	againAt instant // when the nodes that refused are asked again; 0 = not for now
}

// strategy is how the head of a line approaches the nodes.
type strategy struct {
	waits          bool // the process waits for the resource if another one has it
	queueNodeFirst bool // the other nodes are asked when the queue node has granted
	patient        bool // other processes are known to wait: a quorum waits for the queue node's answer
}

// queueReply is the queue node's answer about the queue, which comes with its vote.
type queueReply struct {
	heard   bool
	node    int
	refused bool          // another process has the resource, or has been called
	vetoed  bool          // another process has been called: no other process gets the resource for now
	others  bool          // other processes wait
	left    time.Duration // of the holder's key or of the other process's turn; negative if it has no end
	foreign bool          // the attempt met the key of another library
}

// hear takes what the queue node said beside its vote.
func (p *approach) hear(r queueReply) {
	if r.heard {
		r.foreign = r.foreign || p.reply.foreign
		p.reply = r
	}
}

// rests reports whether an attempt that failed leaves its process in the queue: another process
// has the resource. Where nodes are in trouble the process asks again by itself.
//
// Source: ALGORITHM section 10, "rest".
func (p *approach) rests() bool { return p.waits && (p.reply.refused || p.elsewhere) }

// meetReaders notes that other readers have the resource. The attempt needs the queue node's word then,
// or the silence of that node for a whole node timeout: a reader before it joins the others, and a Lock
// before it rests. Otherwise readers that come one after the other would pass a writer where the queue
// node is slow, or far away.
//
// Source: ALGORITHM section 13, "Order".
func (p *approach) meetReaders() {
	if !p.readers {
		p.readers, p.closes, p.closed = true, 0, false
	}
}

// refuses reports whether the queue node's answer ends the attempt, whatever the votes: another process
// has been called, or a writer has the key there while the attempt would join other readers.
func (p *approach) refuses() bool {
	return p.reply.vetoed || p.reply.refused && p.readers && p.shared
}

// judgeQueueNode asks the other nodes once the queue node has granted, or has failed.
func (a *attempt) judgeQueueNode(now instant, do []action) []action {
	n := &a.nodes[a.approach.node]
	switch {
	case n.vote == awaited:
		return do
	case n.refused:
		a.enter(lost)
		return do
	}
	a.enter(asking)
	a.asked = now
	return a.judgeVotes(now, a.askOthers(a.approach.node, do))
}

// awaitsQueueNode reports whether an attempt that could be decided waits for the queue node. It
// does so for about as long again as the other nodes took.
//
// Source: ALGORITHM section 10.
func (a *attempt) awaitsQueueNode(now instant) bool {
	p := &a.approach
	if p.closed || a.nodes[p.node].vote != awaited {
		return false
	}
	if p.closes == 0 {
		p.closes = a.asked.Add(a.timeout)
		if !p.readers {
			p.closes = min(p.closes, now.Add(max(now.Sub(a.start), p.policy.leastPatience)))
		}
	}
	return true
}

// askAgain decides what to do when refusals keep an attempt from a quorum. The queue node
// decides between processes. If it has granted, the process in the way has released the
// resource and its releases are under way, or that process will be refused and roll back. So
// the nodes that refused are asked again while the attempt has time. A TryLock asks them again
// only a few times at once. If a quorum refuses, another process may hold the resource, and its
// renewals may lack the nodes that this attempt has. Then the attempt fails a good deal sooner.
//
// Source: ALGORITHM section 10.
func (a *attempt) askAgain(now instant, do []action) []action {
	p := &a.approach
	if a.awaitsQueueNode(now) {
		return do
	}
	refused := a.count(func(n *voter) bool { return n.refused })
	switch {
	case a.nodes[p.node].vote != yes || now >= a.asked.Add(a.timeout):
	case p.againAt != 0:
		return do
	case p.rounds < p.policy.roundsAtOnce:
		do, sent := a.askRefused(do)
		if sent {
			return do
		}
	case !p.waits:
	case refused >= a.need && now >= a.asked.Add(a.timeout/p.policy.retryShare):
		p.elsewhere = true
	default:
		p.againAt = now.Add(p.policy.roundPause)
		return do
	}
	a.enter(lost)
	return do
}

// askRefused asks the nodes that refused again. It reports false if there are none.
func (a *attempt) askRefused(do []action) (_ []action, sent bool) {
	a.approach.rounds++
	for i := range a.nodes {
		if n := &a.nodes[i]; n.pending {
			n.pending, sent = false, true
			do = append(do, action{op: wire.Acquire, node: i})
		}
	}
	return do, sent
}
