package redlock

import "github.com/d0720281/redlock/internal/wire"

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
func (a *attempt) agree(now instant, do []action) []action {
	counters := make([]int64, 0, 8)
	for i := range a.nodes {
		counters = append(counters, a.nodes[i].counter)
	}
	a.fencing.target = fenceTarget(counters)
	if a.rules.agreed(fenceKnown(counters, a.fencing.target), a.need) {
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
