package redlock

import "github.com/d0720281/redlock/internal/wire"

// This file counts votes. It uses no clock, network or lock, so that a reader can compare it
// with the algorithm, and quorum_test.go can check every case.

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
