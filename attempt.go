package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// Answers that an attempt gives in place of a node, or to a node.
var (
	errNodeTimeout = node.ErrTimeout
	errUnheard     = errors.New("another master has still to say whether its server is in use")
	errTwice       = &node.Marked{Sentinel: reason.SameServer, Err: errors.New("its server has voted under another address")}
	errNotAsked    = errors.New("not asked: it was taken at the master that keeps the queue")
)

// attempt is one attempt to take a resource, as a state machine: step takes an event and the
// present moment, and returns the requests to send. It knows no clock, network, goroutine,
// mutex or lease. acquire.go runs it; the exhaustive search of attempt_search_test.go runs it, too.
//
// The rules for votes and fencing tokens are in quorum.go. At the end of this file the attempt asks
// the queue node before or beside the others.
//
// Source: distlock, "The Redlock Algorithm", steps 2, 3 and 5; ALGORITHM section 3.
type attempt struct {
	rules   *rules.Rules
	need    int           // votes that make a quorum
	timeout time.Duration // of a node, from when it is sent a request
	start   instant
	useless instant // a grant at this moment has less than MinValidity left

	// skew reports a voter whose clock is too far from the others', or whose server is not the one that other clients use.
	// certain is false while two clocks disagree and no third one is known, and with errUnheard.
	skew func(node int, now instant) (err error, certain bool)

	phase     phase
	nodes     []voter // by index
	asked     instant // when the last request for votes was sent
	lateUntil instant // the attempt waits that long for nodes that were sent their request late
	answered  instant // when the answers first decided; 0 = not yet
	armed     instant // the moment of the next timeUp, as until returned it

	approach approach
	fencing  fencing
}

// phase is how far an attempt has come. It moves as transitions says.
type phase uint8

const (
	askingQueueNode phase = iota // the queue node alone has been asked
	asking                       // all nodes have been asked for their votes
	raising                      // a quorum voted; those whose counters are behind are asked to raise them
	won                          // a quorum has the key and knows the token
	lost                         // no quorum is possible, or the caller has stopped waiting
)

// transitions are the phases that may follow a phase.
var transitions = [...][]phase{
	askingQueueNode: {asking, lost},
	asking:          {raising, won, lost},
	raising:         {won, lost},
	won:             {lost}, // the grant came too late to be of use, or the caller has stopped waiting
	lost:            {},
}

func (p phase) over() bool { return p >= won }

// enter moves the attempt to a phase, if that may follow.
func (a *attempt) enter(p phase) {
	if slices.Contains(transitions[a.phase], p) {
		a.phase = p
	}
}

// voter has the state of one node in an attempt.
type voter struct {
	vote    answer
	knows   answer // whether the node counts at least the target
	counter int64  // given with the vote; 0 = no vote
	server  string // that voted
	refused bool   // another holder has the key there, or another process has its turn
	pending bool   // refused, but may be asked again: no vote is cast
	op      wire.Op
	err     error // the answer to op, if that was not yes
}

// answer is one node's answer to one question.
type answer uint8

const (
	awaited answer = iota
	yes
	no
)

// event is an input of an attempt.
type event struct {
	what  eventKind
	node  int
	vote  vote      // of voted
	err   error     // of raised: nil if the node has raised its counter
	later []instant // of timeUp, by node: until when the answer to a request may still come; 0 = it may not
}

type eventKind uint8

const (
	begun  eventKind = iota
	voted            // a node answered the acquire, or could not be asked
	raised           // a node answered the raise, or could not be asked
	timeUp           // the moment that until returned has come
	called           // the queue node has called the process
	gaveUp           // the caller has stopped waiting
)

// vote is a node's answer to the acquire.
type vote struct {
	counter int64
	server  string
	refused bool  // another holder has the key there, or another process has its turn
	err     error // why this is no vote; nil if it is one
	readers bool  // other readers have the key there
	word    wire.Word
}

// action is a request to send: an acquire, or a raise from a counter to a target.
type action struct {
	op              wire.Op
	node            int
	counter, target int64
}

// step takes an event that happens now, and appends to do what it asks for.
func (a *attempt) step(e event, now instant, do []action) []action {
	switch e.what {
	case begun:
		return a.begin(now, do)
	case voted:
		a.approach.hear(e.vote.word)
		switch n := &a.nodes[e.node]; {
		case n.vote != awaited:
			return do
		case a.phase.over():
			n.err = e.vote.err // for the error of the attempt
			return do
		}
		if e.vote.readers {
			a.approach.meetReaders()
		}
		do = a.take(e.node, e.vote, do)
	case raised:
		if a.phase != raising || a.nodes[e.node].knows != awaited {
			return do
		}
		a.takeRaise(e.node, e.err)
	case timeUp:
		if a.phase.over() || a.armed < a.until() {
			return do
		}
		return a.elapse(e.later, now, do)
	case called:
		if a.phase.over() {
			return do
		}
		do = a.answerCall(now, do)
	case gaveUp:
		a.enter(lost)
		return do
	}
	return a.judge(now, do)
}

// begin asks all nodes at once, or the queue node alone.
//
// Source: distlock, steps 1 and 2; ALGORITHM section 3, points 1 and 2, and section 10.
func (a *attempt) begin(now instant, do []action) []action {
	a.asked = now
	if a.approach.QueueNodeFirst {
		for i := range a.nodes {
			a.nodes[i].note(wire.Acquire, errNotAsked)
		}
		return append(do, action{op: wire.Acquire, node: a.approach.node})
	}
	a.enter(asking)
	return a.askOthers(-1, do)
}

// answerCall has the attempt go on as one that begins with the call: no other process is let in
// now, so all nodes are asked, and the queue node is not waited for.
//
// Source: ALGORITHM section 10, "Called".
func (a *attempt) answerCall(now instant, do []action) []action {
	a.approach.Patient = false
	if a.phase != askingQueueNode {
		return do
	}
	a.enter(asking)
	a.asked = now
	return a.askOthers(a.approach.node, do)
}

// askOthers sends the acquire to all nodes but one.
func (a *attempt) askOthers(but int, do []action) []action {
	for i := range a.nodes {
		if i != but {
			a.nodes[i].note(wire.Acquire, nil)
			do = append(do, action{op: wire.Acquire, node: i})
		}
	}
	return do
}

// take notes a node's answer to the acquire.
//
// Source: ALGORITHM section 3, point 3.
func (a *attempt) take(i int, v vote, do []action) []action {
	n := &a.nodes[i]
	if v.err == nil && a.votedAs(v.server) {
		v.err = errTwice
	}
	switch {
	case v.err == nil:
		n.vote, n.counter, n.server, n.refused, n.pending = yes, v.counter, v.server, false, false
		return a.fence(i, do)
	case v.refused && i != a.approach.node && a.phase != raising:
		n.refused, n.pending = true, true // perhaps it only has not heard of the release yet
		n.note(wire.Acquire, v.err)
	default:
		n.refused = v.refused
		n.refuse(v.err)
	}
	return do
}

// votedAs reports whether a server has voted under another address: addresses can move
// while an attempt is under way.
func (a *attempt) votedAs(server string) bool {
	return server != "" && slices.ContainsFunc(a.nodes, func(n voter) bool { return n.vote == yes && n.server == server })
}

func (n *voter) note(o wire.Op, err error) { n.op, n.err = o, err }

// refuse notes that a node gives no vote, and why.
func (n *voter) refuse(err error) {
	n.vote, n.knows, n.counter, n.pending = no, no, 0, false
	n.note(wire.Acquire, err)
}

// cast makes a refusal that was pending the node's vote.
func (n *voter) cast() { n.vote, n.knows, n.pending = no, no, false }

// count returns the number of nodes for which is returns true.
func (a *attempt) count(is func(*voter) bool) int {
	n := 0
	for i := range a.nodes {
		if is(&a.nodes[i]) {
			n++
		}
	}
	return n
}

// judge moves an attempt that is not over on as soon as the answers allow that.
//
// Source: ALGORITHM section 3, points 4 and 5, and section 4.
func (a *attempt) judge(now instant, do []action) []action {
	if a.approach.refuses() {
		a.enter(lost)
		return do
	}
	switch a.phase {
	case askingQueueNode:
		return a.judgeQueueNode(now, do)
	case asking:
		return a.judgeVotes(now, do)
	case raising:
		a.judgeRaise()
	}
	return do
}

// judgeVotes counts the votes.
//
// Source: distlock, step 3; ALGORITHM section 3, points 4 and 5.
func (a *attempt) judgeVotes(now instant, do []action) []action {
	votes := a.count(func(n *voter) bool { return n.vote == yes })
	refused := a.count(func(n *voter) bool { return n.vote == no || n.pending })
	v := decide(len(a.nodes), a.need, votes, refused)
	if v == undecided {
		return do
	}
	if a.answered == 0 {
		a.answered = now
	}
	switch {
	case v == impossible:
		return a.askAgain(now, do)
	case (a.approach.Patient || a.approach.readers) && a.awaitsQueueNode(now):
		return do
	}
	switch refused, wait := a.refuseSkewed(now); {
	case wait:
		return do
	case refused:
		return a.judgeVotes(now, do)
	}
	return a.agree(now, do)
}

// refuseSkewed looks at the voters' clocks, now that they are a quorum. A voter whose clock is
// too far from the others' is refused. While it is not certain which clock that is, and some
// node has still to answer, the attempt waits.
//
// Source: ALGORITHM section 9.
func (a *attempt) refuseSkewed(now instant) (refused, wait bool) {
	left := a.count(func(n *voter) bool { return n.vote == awaited && !n.pending })
	for i := range a.nodes {
		if a.nodes[i].vote != yes {
			continue
		}
		err, certain := a.skew(i, now)
		switch {
		case err != nil && !certain && left > 0:
			wait = true
		case err == errUnheard: // no node is left that could say more
		case err != nil:
			a.nodes[i].refuse(err)
			refused = true
		}
	}
	return refused, wait && !refused
}

// until returns the moment up to which the attempt waits for the answers that it awaits now.
func (a *attempt) until() instant {
	answers := max(a.asked.Add(a.timeout), a.lateUntil)
	switch {
	case a.phase == raising:
		return max(min(a.fencing.raiseEnd, a.useless), answers)
	case a.holdsOpen():
		return a.approach.waitsTo
	case a.approach.againAt != 0:
		return min(a.approach.againAt, answers)
	}
	return answers
}

// arm fixes the moment of the next timeUp, and returns it.
func (a *attempt) arm() instant {
	a.armed = a.until()
	return a.armed
}

// elapse counts the nodes that have not answered in time as refusals. The time of each counts
// from when it was sent its request, which on a busy connection is later than asked.
func (a *attempt) elapse(later []instant, now instant, do []action) []action {
	switch {
	case a.phase == raising:
	case a.holdsOpen():
		a.approach.waited = true
		return a.judge(now, do)
	case a.approach.againAt != 0 && a.armed == a.approach.againAt:
		a.approach.againAt = 0
		do, sent := a.askRefused(do)
		if sent {
			return do
		}
		return a.judge(now, do)
	}
	next := never
	for i := range a.nodes {
		n := &a.nodes[i]
		switch {
		case a.phase == askingQueueNode && i != a.approach.node:
		case n.vote != awaited && n.knows != awaited || n.vote == yes && a.phase != raising:
		case now < a.useless && later[i] > now && !n.pending:
			next = min(next, later[i])
		case n.vote == awaited && n.refused:
			n.cast()
		case n.vote == awaited:
			n.refuse(errNodeTimeout)
		default:
			n.knows = no
			n.note(wire.Raise, errNodeTimeout)
		}
	}
	if next < never {
		a.lateUntil = min(next, a.useless)
	}
	return a.judge(now, do)
}

// granted returns the number of voters that did all they were asked for.
func (a *attempt) granted() int {
	return a.count(func(n *voter) bool { return !n.failed() })
}

// failed reports whether the error of an attempt names the node.
func (n *voter) failed() bool { return n.vote != yes || n.knows == no }

// approach is how an attempt deals with the node that keeps the queue of the processes that
// wait (queue.go). Exclusion never depends on it.
//
// Source: ALGORITHM section 10.
type approach struct {
	line.Strategy
	policy *askPolicy
	node   int       // the queue node
	shared bool      // the attempt is a reader's
	word   wire.Word // of the queue node

	// elsewhere: the queue node granted, but a quorum refused. Another process may hold the
	// resource on the other nodes.
	elsewhere bool
	unheard   bool // a quorum refused, and the queue node had not replied

	yields  bool    // a process that waits may take another one of several: what the queue node has given is not contested
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
func (p *approach) rests() bool { return p.Waits && (p.word.Refused || p.elsewhere || p.unheard) }

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
	return p.word.Vetoed || p.word.Refused && (p.readers && p.shared || p.yields)
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
	if p.waited || a.nodes[p.node].vote != awaited {
		return false
	}
	if p.waitsTo == 0 {
		p.waitsTo = a.asked.Add(a.timeout)
		if !p.readers {
			p.waitsTo = min(p.waitsTo, now.Add(max(now.Sub(a.start), p.policy.leastPatience)))
		}
	}
	return true
}

// holdsOpen reports whether the votes of the other nodes have decided, and the attempt still waits
// for the queue node's answer. As soon as that has come nothing is held open, and the nodes that
// refused are asked again in time.
func (a *attempt) holdsOpen() bool {
	p := &a.approach
	return p.waitsTo != 0 && !p.waited && a.nodes[p.node].vote == awaited
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
func (a *attempt) askAgain(now instant, do []action) []action {
	p := &a.approach
	if a.awaitsQueueNode(now) {
		return do
	}
	refused := a.count(func(n *voter) bool { return n.refused })
	switch {
	case a.nodes[p.node].vote == awaited && refused >= a.need:
		p.unheard = true
	case a.nodes[p.node].vote != yes || now >= a.asked.Add(a.timeout):
	case p.againAt != 0:
		return do
	case p.rounds < p.policy.roundsAtOnce:
		do, sent := a.askRefused(do)
		if sent {
			return do
		}
	case !p.Waits:
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
