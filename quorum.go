package redlock

import "github.com/d0720281/redlock/internal/wire"

// This file counts votes, and has the part of an attempt that agrees on the fencing token. It uses
// no clock, network or mutex, so that a reader can compare it with the algorithm, and
// quorum_test.go can check every case.

// quorum returns the number of votes that decides among n nodes. Two quorums always share a
// node; that node keeps two holders apart.
//
// Source: distlock, step 3 ("N/2+1"); ALGORITHM section 1.
func quorum(n int) int { return n/2 + 1 }

// tally is the result of a count of votes.
type tally int

const (
	undecided  tally = iota // the missing votes can still decide
	reached                 // a quorum said yes
	impossible              // the missing votes cannot make a quorum any more
)

// decide judges the votes of n nodes, need of which make a quorum: yes nodes have voted for, and
// no nodes have voted against or will not vote.
//
// Source: ALGORITHM section 3, points 4 and 5.
func decide(n, need, yes, no int) tally {
	switch {
	case yes >= need:
		return reached
	case n-no < need:
		return impossible
	}
	return undecided
}

// exclusive reports whether a lease that has its key on held of n nodes still keeps every other
// holder out, because the other nodes are too few for a quorum of need.
//
// Source: ALGORITHM section 6, "Lost now".
func exclusive(n, need, held int) bool { return held > n-need }

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

// fenceBlock is the number of fencing tokens that one grant reserves. The counter is the last
// token of the block. The first lease of the grant has the first token, and each hand-over
// inside the process takes the next one.
//
// Source: ALGORITHM section 1, "B", and section 4.
const fenceBlock = wire.Block

// firstFence returns the first token of the block that ends at counter.
func firstFence(counter int64) int64 { return counter - fenceBlock + 1 }

// fencing is how an attempt agrees on its fencing token. The target is the largest counter that
// came with a vote. A quorum has to count at least that much before the lease is granted, so that
// every later attempt meets a node that counts on from there.
//
// Source: ALGORITHM section 4.
type fencing struct {
	target   int64   // 0 until a quorum has voted
	least    int64   // the target of an adoption that knows the former token is no smaller
	raiseEnd instant // a node timeout after that
}

// agree fixes the target. If a quorum counts that much already, which is the usual case, the
// attempt has won. Otherwise the voters that are behind are asked to raise their counters.
func (a *attempt) agree(now instant, do []action) []action {
	counters := make([]int64, 0, 8)
	for i := range a.nodes {
		counters = append(counters, a.nodes[i].counter)
	}
	a.fencing.target = max(fenceTarget(counters), a.fencing.least)
	if a.rules.Agreed(fenceKnown(counters, a.fencing.target) >= a.need) {
		a.enter(won)
		return do
	}
	a.enter(raising)
	a.fencing.raiseEnd = now.Add(a.timeout)
	for i := range a.nodes {
		switch n := &a.nodes[i]; {
		case n.vote == yes:
			do = a.fence(i, do)
		case n.pending:
			n.cast()
		}
	}
	a.judgeRaise()
	return do
}

// fence asks a voter to raise its counter, if there is a target and the counter is below it.
func (a *attempt) fence(i int, do []action) []action {
	n := &a.nodes[i]
	switch {
	case a.phase != raising:
	case n.counter == a.fencing.target:
		n.knows = yes
	case n.counter > a.fencing.target:
		n.knows = no // a vote from after the target was fixed; it joins no count
	default:
		do = append(do, action{op: wire.Raise, node: i, counter: n.counter, target: a.fencing.target})
	}
	return do
}

// takeRaise notes a node's answer to the raise. The counter that came with the vote stays what
// the node knows the key by.
func (a *attempt) takeRaise(i int, err error) {
	n := &a.nodes[i]
	n.knows = yes
	if err != nil {
		n.knows = no
		n.note(wire.Raise, err)
	}
}

// judgeRaise counts the nodes that know the target.
func (a *attempt) judgeRaise() {
	known := a.count(func(n *voter) bool { return n.knows == yes })
	out := a.count(func(n *voter) bool { return n.knows == no })
	switch decide(len(a.nodes), a.need, known, out) {
	case reached:
		a.enter(won)
	case impossible:
		a.enter(lost)
	}
}
