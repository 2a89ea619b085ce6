package attempt

import "github.com/d0720281/redlock/internal/wire"

// This file counts votes, and has the part of an attempt that agrees on the fencing token, so that a
// reader can compare both with the algorithm, and votes_test.go can check every case.

// Tally is the result of a count of votes.
type Tally int

// The results.
const (
	Undecided  Tally = iota // the missing votes can still decide
	Reached                 // a quorum said yes
	Impossible              // the missing votes cannot make a quorum any more
)

// Decide judges the votes of n nodes, need of which make a quorum: yes nodes have voted for, and
// no nodes have voted against or will not vote.
//
// Source: ALGORITHM section 3, points 4 and 5.
func Decide(n, need, Yes, No int) Tally {
	switch {
	case Yes >= need:
		return Reached
	case n-No < need:
		return Impossible
	}
	return Undecided
}

// fenceTarget returns the fencing counter of an attempt: the largest counter that its voters
// gave. A node that gave no vote has counter 0.
//
// Source: ALGORITHM section 3, point 4.
func fenceTarget(counters []int64) int64 {
	var target int64
	for _, c := range counters {
		target = max(target, c)
	}
	return target
}

// fenceKnown returns the number of voters whose counter is the target already. If they are a
// quorum, every later attempt meets one of them and counts on from there.
//
// Source: ALGORITHM section 4, the set W.
func fenceKnown(counters []int64, target int64) int {
	known := 0
	for _, c := range counters {
		if c == target {
			known++
		}
	}
	return known
}

// fencing is how an attempt agrees on its fencing token. The target is the largest counter that
// came with a vote. A quorum has to count at least that much before the lease is granted, so that
// every later attempt meets a node that counts on from there.
//
// Source: ALGORITHM section 4.
type fencing struct {
	target   int64   // 0 until a quorum has voted
	raiseEnd instant // a node timeout after that
}

// agree fixes the target. If a quorum counts that much already, which is the usual case, the
// attempt has won. Otherwise the voters that are behind are asked to raise their counters.
func (a *Attempt) agree(now instant, do []Action) []Action {
	counters := make([]int64, 0, 8)
	for i := range a.Nodes {
		counters = append(counters, a.Nodes[i].Counter)
	}
	a.fencing.target = max(fenceTarget(counters), a.Least)
	if a.Rules.Agreed(fenceKnown(counters, a.fencing.target) >= a.Need) {
		a.enter(won)
		return do
	}
	a.enter(raising)
	a.fencing.raiseEnd = now.Add(a.Timeout)
	for i := range a.Nodes {
		switch n := &a.Nodes[i]; {
		case n.Vote == Yes:
			do = a.fence(i, do)
		case n.pending:
			n.cast()
		}
	}
	a.judgeRaise()
	return do
}

// fence asks a voter to raise its counter, if there is a target and the counter is below it.
func (a *Attempt) fence(i int, do []Action) []Action {
	n := &a.Nodes[i]
	switch {
	case a.phase != raising:
	case n.Counter == a.fencing.target:
		n.knows = Yes
	case n.Counter > a.fencing.target:
		n.knows = No // a vote from after the target was fixed; it joins no count
	default:
		do = append(do, Action{Op: wire.Raise, Node: i, Counter: n.Counter, Target: a.fencing.target})
	}
	return do
}

// takeRaise notes a node's answer to the raise. The counter that came with the vote stays what
// the node knows the key by.
func (a *Attempt) takeRaise(i int, err error) {
	n := &a.Nodes[i]
	n.knows = Yes
	if err != nil {
		n.knows = No
		n.note(wire.Raise, err)
	}
}

// judgeRaise counts the nodes that know the target.
func (a *Attempt) judgeRaise() {
	known := a.count(func(n *Voter) bool { return n.knows == Yes })
	out := a.count(func(n *Voter) bool { return n.knows == No })
	switch Decide(len(a.Nodes), a.Need, known, out) {
	case Reached:
		a.enter(won)
	case Impossible:
		a.enter(lost)
	}
}
