package attempt

import (
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/wire"
)

// Way is how an attempt goes about it.
type Way struct {
	line.Strategy
	QueueNode int
	Shared    bool // the attempt is a reader's
	AnyOf     bool // it is for any of several resources
	Yields    bool // a process that waits may take another one of several: what the queue node has given is not contested
}

// approach is how an attempt deals with the node that keeps the queue of the processes that
// wait (queue.go). Exclusion never depends on it.
//
// Source: ALGORITHM section 10.
type approach struct {
	Way
	policy *askPolicy
	word   wire.Word // of the queue node

	taken   bool    // a quorum refused, although the queue node granted or had not replied
	readers bool    // other readers have the resource, and perhaps a process waits behind them
	waitsTo instant // a quorum waits for the queue node's answer until then; 0 = it does not wait
	waited  bool    // the quorum has waited long enough
	rounds  int     // how often the nodes that refused were asked again
	againAt instant // when the nodes that refused are asked again; 0 = not for now
}

// askPolicy has the times and numbers that tune how an attempt asks again.
type askPolicy struct {
	leastPatience time.Duration // how long a quorum waits at least for the queue node's answer
	roundsAtOnce  int           // how often nodes that refused are asked again at once
	roundPause    time.Duration // pause before they are asked again after that
	retryShare    time.Duration // if a quorum refuses, they are asked for the node timeout divided by this
}

var defaultAskPolicy = askPolicy{
	leastPatience: 2 * time.Millisecond,
	roundsAtOnce:  5,
	roundPause:    2 * time.Millisecond,
	retryShare:    10,
}

// anyAskPolicy is that of an attempt for any of several resources: another one may be free.
var anyAskPolicy = askPolicy{
	leastPatience: defaultAskPolicy.leastPatience,
	roundsAtOnce:  defaultAskPolicy.roundsAtOnce,
	roundPause:    defaultAskPolicy.roundPause,
	retryShare:    200,
}

// Word returns the word of the queue node.
func (a *Attempt) Word() wire.Word { return a.approach.word }

// Elsewhere reports whether the queue node granted, but a quorum refused: another process may hold the
// resource on the other nodes.
func (a *Attempt) Elsewhere() bool {
	return a.approach.taken && a.Nodes[a.approach.QueueNode].Vote == Yes
}

// Rests reports whether an attempt that failed leaves its process in the queue.
func (a *Attempt) Rests() bool { return a.approach.rests() }

// Waits reports whether the caller waits for another holder.
func (a *Attempt) Waits() bool { return a.approach.Waits }

// hear takes the word of the queue node.
func (p *approach) hear(w wire.Word) {
	if w.Heard {
		w.Foreign = w.Foreign || p.word.Foreign
		p.word = w
	}
}

// rests reports whether an attempt that failed leaves its process in the queue: another process has
// the resource, as the queue node or a quorum says. Where nodes are in trouble the process asks
// again by itself.
//
// Source: ALGORITHM section 10, "rest".
func (p *approach) rests() bool { return p.Waits && (p.word.Refused || p.taken) }

// meetReaders notes that other readers have the resource. The attempt needs the queue node's word
// then, or the silence of that node for a whole node timeout: a reader before it joins the others,
// and a Lock before it rests. Otherwise readers that come one after the other would pass a writer
// where the queue node is slow, or far away.
//
// Source: ALGORITHM section 12, "Order".
func (p *approach) meetReaders() {
	if !p.readers {
		p.readers, p.waitsTo, p.waited = true, 0, false
	}
}

// refuses reports whether the queue node's answer ends the attempt, whatever the votes: another
// process has been called, or a writer has the key there while the attempt would join other
// readers, or another process while the attempt yields.
func (p *approach) refuses() bool {
	return p.word.Vetoed || p.word.Refused && (p.readers && p.Shared || p.Yields)
}

// awaitsQueueNode reports whether an attempt that could be decided waits for the queue node. It
// does so for about as long again as the other nodes took.
//
// Source: ALGORITHM section 10.
func (a *Attempt) awaitsQueueNode(now instant) bool {
	p := &a.approach
	if p.waited || a.Nodes[p.QueueNode].Vote != Awaited {
		return false
	}
	if p.waitsTo == 0 {
		p.waitsTo = a.start.Add(a.Timeout)
		if !p.readers {
			p.waitsTo = min(p.waitsTo, now.Add(max(now.Sub(a.start), p.policy.leastPatience)))
		}
	}
	return true
}

// holdsOpen reports whether the votes of the other nodes have decided, and the attempt still waits
// for the queue node's answer. As soon as that has come nothing is held open, and the nodes that
// refused are asked again in time.
func (a *Attempt) holdsOpen() bool {
	p := &a.approach
	return p.waitsTo != 0 && !p.waited && a.Nodes[p.QueueNode].Vote == Awaited
}

// askAgain decides what to do when refusals keep an attempt from a quorum. The queue node decides
// between processes. If it has granted, the process in the way has released the resource and its
// releases are under way, or that process will be refused and roll back. So the nodes that refused
// are asked again while the attempt has time. A TryLock asks them again only a few times at once.
// If a quorum refuses, another process may hold the resource, and its renewals may lack the nodes
// that this attempt has. Then the attempt fails a good deal sooner. If the queue node has not
// replied, there is nothing to win, and to join its queue needs no reply.
//
// Source: ALGORITHM section 10.
func (a *Attempt) askAgain(now instant, do []Action) []Action {
	p := &a.approach
	if a.awaitsQueueNode(now) {
		return do
	}
	refused := a.count(func(n *Voter) bool { return n.refused })
	switch {
	case a.Nodes[p.QueueNode].Vote == Awaited && refused >= a.Need:
		p.taken = true
	case a.Nodes[p.QueueNode].Vote != Yes || now >= a.start.Add(a.Timeout):
	case p.againAt != 0:
		return do
	case p.rounds < p.policy.roundsAtOnce:
		do, sent := a.askRefused(do)
		if sent {
			return do
		}
	case !p.Waits:
	case refused >= a.Need && now >= a.start.Add(a.Timeout/p.policy.retryShare):
		p.taken = true
	default:
		p.againAt = now.Add(p.policy.roundPause)
		return do
	}
	a.enter(lost)
	return do
}

// askRefused asks the nodes that refused again. It reports false if there are none.
func (a *Attempt) askRefused(do []Action) (_ []Action, sent bool) {
	a.approach.rounds++
	for i := range a.Nodes {
		if n := &a.Nodes[i]; n.pending {
			n.pending, sent = false, true
			do = append(do, Action{Op: wire.Acquire, Node: i})
		}
	}
	return do, sent
}
