// Package attempt is one attempt to take a resource, as a state machine: Step takes an event and the
// present moment, and returns the requests to send. It knows no clock, network, goroutine, mutex or
// lease.
//
// attempt.go has the phases, votes.go the rules for votes and fencing tokens, and approach.go what an
// attempt does about the node that keeps the queue. The exhaustive searches of attempt_search_test.go
// and queue_search_test.go run the same code as a Locker.
package attempt

import (
	"errors"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// Errors that an attempt notes in place of a node's answer.
var (
	ErrUnheard     = errors.New("another master has still to say whether its server is in use")
	errNodeTimeout = node.ErrTimeout
	errTwice       = &node.Marked{Sentinel: reason.SameServer, Err: errors.New("its server has voted under another address")}
)

type instant = clock.Instant

// Config has what is alike for the attempts of one kind.
type Config struct {
	Rules   *rules.Rules
	Need    int           // votes that make a quorum
	Timeout time.Duration // of a node, from when it is sent a request

	// Skew reports a voter whose clock is too far from the others', or whose server is not the one that other clients use.
	// certain is false while two clocks disagree and no third one is known, and with ErrUnheard.
	Skew func(node int, now clock.Instant) (err error, certain bool)
}

// Attempt is one attempt to take a resource.
//
// Source: distlock, "The Redlock Algorithm", steps 2, 3 and 5; ALGORITHM section 3.
type Attempt struct {
	Config
	Nodes []Voter // by index
	Least int64   // the target is at least this: of an adoption, larger than all tokens of the former lease; otherwise 0

	start   instant
	useless instant // a grant at this moment has less than MinValidity left

	phase     phase
	lateUntil instant // the attempt waits that long for nodes that were sent their request late
	answered  instant // when the answers first decided; 0 = not yet
	armed     instant // the moment of the next timeUp, as until returned it

	approach approach
	fencing  fencing
}

// Prepare sets the moment at which the attempt begins, and that from which on a grant is of no use.
func (a *Attempt) Prepare(w Way, start, useless clock.Instant) {
	a.start, a.useless = start, useless
	a.approach = approach{Way: w, policy: &defaultAskPolicy}
	if w.AnyOf {
		a.approach.policy = &anyAskPolicy
	}
}

// Over reports whether the attempt has ended.
func (a *Attempt) Over() bool { return a.phase.over() }

// Won reports whether a quorum has the key and knows the token.
func (a *Attempt) Won() bool { return a.phase == won }

// Target returns the fencing counter of the attempt; 0 until a quorum has voted.
func (a *Attempt) Target() int64 { return a.fencing.target }

// AnsweredIn returns the time until the answers decided; until now if they have not.
func (a *Attempt) AnsweredIn(now clock.Instant) time.Duration {
	if a.answered != 0 {
		now = a.answered
	}
	return now.Sub(a.start)
}

// phase is how far an attempt has come. It moves as transitions says.
type phase uint8

const (
	asking  phase = iota // all nodes have been asked for their votes
	raising              // a quorum voted; those whose counters are behind are asked to raise them
	won                  // a quorum has the key and knows the token
	lost                 // no quorum is possible, or the caller has stopped waiting
)

// transitions are the phases that may follow a phase.
var transitions = [...][]phase{
	asking:  {raising, won, lost},
	raising: {won, lost},
	won:     {lost}, // the grant came too late to be of use, or the caller has stopped waiting
	lost:    {},
}

func (p phase) over() bool { return p >= won }

// enter moves the attempt to a phase, if that may follow.
func (a *Attempt) enter(p phase) {
	if slices.Contains(transitions[a.phase], p) {
		a.phase = p
	}
}

// Voter has the state of one node in an attempt.
type Voter struct {
	Vote    Answer
	Counter int64 // given with the vote; 0 = no vote
	Op      wire.Op
	Err     error // the answer to Op, if that was not yes

	knows   Answer // whether the node counts at least the target
	server  string // that voted
	refused bool   // another holder has the key there, or another process has its turn
	pending bool   // refused, but may be asked again: no vote is cast
}

// Answer is one node's answer to one question.
type Answer uint8

// The answers.
const (
	Awaited Answer = iota
	Yes
	No
)

// Event is an input of an attempt.
type Event struct {
	What  EventKind
	Node  int
	Vote  Vote            // of Voted
	Err   error           // of Raised: nil if the node has raised its counter
	Later []clock.Instant // of TimeUp, by node: until when the answer to a request may still come; 0 = it may not
}

// EventKind is what happens to an attempt.
type EventKind uint8

// The events.
const (
	Begun  EventKind = iota
	Voted            // a node answered the acquire, or could not be asked
	Raised           // a node answered the raise, or could not be asked
	TimeUp           // the moment that Arm returned has come
	GaveUp           // the caller has stopped waiting
)

// Vote is a node's answer to the acquire.
type Vote struct {
	Counter int64
	Server  string
	Refused bool  // another holder has the key there, or another process has its turn
	Err     error // why this is no vote; nil if it is one
	Readers bool  // other readers have the key there
	Word    wire.Word
}

// Action is a request to send: an acquire, or a raise from a counter to a target.
type Action struct {
	Op              wire.Op
	Node            int
	Counter, Target int64
}

// Step takes an event that happens now, and appends to do what it asks for.
func (a *Attempt) Step(e Event, now clock.Instant, do []Action) []Action {
	switch e.What {
	case Begun:
		return a.begin(do)
	case Voted:
		a.approach.hear(e.Vote.Word)
		switch n := &a.Nodes[e.Node]; {
		case n.Vote != Awaited:
			return do
		case a.phase.over():
			n.Err = e.Vote.Err // for the error of the attempt
			return do
		}
		if e.Vote.Readers {
			a.approach.meetReaders()
		}
		do = a.take(e.Node, e.Vote, do)
	case Raised:
		if a.phase != raising || a.Nodes[e.Node].knows != Awaited {
			return do
		}
		a.takeRaise(e.Node, e.Err)
	case TimeUp:
		if a.phase.over() || a.armed < a.until() {
			return do
		}
		return a.elapse(e.Later, now, do)
	case GaveUp:
		a.enter(lost)
		return do
	}
	return a.judge(now, do)
}

// begin asks all nodes at once.
//
// Source: distlock, steps 1 and 2; ALGORITHM section 3, points 1 and 2.
func (a *Attempt) begin(do []Action) []Action {
	for i := range a.Nodes {
		a.Nodes[i].note(wire.Acquire, nil)
		do = append(do, Action{Op: wire.Acquire, Node: i})
	}
	return do
}

// take notes a node's answer to the acquire.
//
// Source: ALGORITHM section 3, point 3.
func (a *Attempt) take(i int, v Vote, do []Action) []Action {
	n := &a.Nodes[i]
	if v.Err == nil && a.votedAs(v.Server) {
		v.Err = errTwice
	}
	switch {
	case v.Err == nil:
		n.Vote, n.Counter, n.server, n.refused, n.pending = Yes, v.Counter, v.Server, false, false
		return a.fence(i, do)
	case v.Refused && i != a.approach.QueueNode && a.phase != raising:
		n.refused, n.pending = true, true // perhaps it only has not heard of the release yet
		n.note(wire.Acquire, v.Err)
	default:
		n.refused = v.Refused
		n.refuse(v.Err)
	}
	return do
}

// votedAs reports whether a server has voted under another address: addresses can move
// while an attempt is under way.
func (a *Attempt) votedAs(server string) bool {
	return server != "" && slices.ContainsFunc(a.Nodes, func(n Voter) bool { return n.Vote == Yes && n.server == server })
}

func (n *Voter) note(o wire.Op, err error) { n.Op, n.Err = o, err }

// refuse notes that a node gives no vote, and why.
func (n *Voter) refuse(err error) {
	n.Vote, n.knows, n.Counter, n.pending = No, No, 0, false
	n.note(wire.Acquire, err)
}

// cast makes a refusal that was pending the node's vote.
func (n *Voter) cast() { n.Vote, n.knows, n.pending = No, No, false }

// count returns the number of nodes for which is returns true.
func (a *Attempt) count(is func(*Voter) bool) int {
	n := 0
	for i := range a.Nodes {
		if is(&a.Nodes[i]) {
			n++
		}
	}
	return n
}

// judge moves an attempt that is not over on as soon as the answers allow that.
//
// Source: ALGORITHM section 3, points 4 and 5, and section 4.
func (a *Attempt) judge(now instant, do []Action) []Action {
	if a.approach.refuses() {
		a.enter(lost)
		return do
	}
	switch a.phase {
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
func (a *Attempt) judgeVotes(now instant, do []Action) []Action {
	votes := a.count(func(n *Voter) bool { return n.Vote == Yes })
	refused := a.count(func(n *Voter) bool { return n.Vote == No || n.pending })
	v := Decide(len(a.Nodes), a.Need, votes, refused)
	if v == Undecided {
		return do
	}
	if a.answered == 0 {
		a.answered = now
	}
	switch {
	case v == Impossible:
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
func (a *Attempt) refuseSkewed(now instant) (refused, wait bool) {
	left := a.count(func(n *Voter) bool { return n.Vote == Awaited && !n.pending })
	for i := range a.Nodes {
		if a.Nodes[i].Vote != Yes {
			continue
		}
		err, certain := a.Skew(i, now)
		switch {
		case err != nil && !certain && left > 0:
			wait = true
		case err == ErrUnheard: // no node is left that could say more
		case err != nil:
			a.Nodes[i].refuse(err)
			refused = true
		}
	}
	return refused, wait && !refused
}

// until returns the moment up to which the attempt waits for the answers that it awaits now.
func (a *Attempt) until() instant {
	answers := max(a.start.Add(a.Timeout), a.lateUntil)
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

// Arm fixes the moment of the next TimeUp, and returns it.
func (a *Attempt) Arm() clock.Instant {
	a.armed = a.until()
	return a.armed
}

// Armed returns the moment that Arm returned last.
func (a *Attempt) Armed() clock.Instant { return a.armed }

// Due reports whether the caller must look at the attempt before the moment that Arm returned.
func (a *Attempt) Due() bool { return a.phase.over() || a.until() < a.armed }

// elapse counts the nodes that have not answered in time as refusals. The time of each counts
// from when it was sent its request, which on a busy connection is later than the start.
func (a *Attempt) elapse(later []instant, now instant, do []Action) []Action {
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
	next := clock.Never
	for i := range a.Nodes {
		n := &a.Nodes[i]
		switch {
		case n.Vote != Awaited && n.knows != Awaited || n.Vote == Yes && a.phase != raising:
		case now < a.useless && later[i] > now && !n.pending:
			next = min(next, later[i])
		case n.Vote == Awaited && n.refused:
			n.cast()
		case n.Vote == Awaited:
			n.refuse(errNodeTimeout)
		default:
			n.knows = No
			n.note(wire.Raise, errNodeTimeout)
		}
	}
	if next < clock.Never {
		a.lateUntil = min(next, a.useless)
	}
	return a.judge(now, do)
}

// Granted returns the number of voters that did all they were asked for.
func (a *Attempt) Granted() int {
	return a.count(func(n *Voter) bool { return !n.Failed() })
}

// Failed reports whether the error of an attempt names the node.
func (n *Voter) Failed() bool { return n.Vote != Yes || n.knows == No }
