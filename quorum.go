package redlock

import "github.com/d0720281/redlock/internal/wire"

// This file counts votes. Nothing in it knows a clock, a network or a lock, so
// that it can be read beside the algorithm and checked by going through every
// case (quorum_test.go).

// quorum is the number of votes that decides among n nodes. Two quorums always
// share a node; that node is what keeps two holders apart.
//
// Source: distlock, step 3 ("N/2+1"); ALGORITHM section 1.
func quorum(n int) int { return n/2 + 1 }

// tally is what a count of votes amounts to.
type tally int

const (
	undecided  tally = iota // the missing votes can still tip it
	reached                 // a quorum said yes
	impossible              // the missing votes cannot make a quorum any more
)

// decide judges yes votes for, and no votes against or missing for good, of n, where need
// votes make a quorum.
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

// exclusive reports whether a lease that holds its key on held of n nodes still
// keeps every other holder out: the rest are too few to make a quorum.
//
// Source: ALGORITHM section 6, "Lost now".
func exclusive(n, need, held int) bool { return held > n-need }

// fenceTarget is the fencing counter of an attempt: the largest that its voters
// gave. A counter of 0 marks a node that gave no vote.
//
// Source: ALGORITHM section 3, point 4.
func fenceTarget(counters []int64) int64 {
	var target int64
	for _, c := range counters {
		target = max(target, c)
	}
	return target
}

// fenceKnown counts the voters whose counter is the target already. When they
// are a quorum, any later attempt meets one of them and counts on from there.
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

// fenceBlock is the number of fencing tokens that one grant reserves. The
// counter is the last of the block; the lease uses the first, the others are
// for handing the key over inside the process.
//
// Source: ALGORITHM section 1, "B", and section 4.
const fenceBlock = wire.Block

// firstFence is the first token of the block that ends at counter.
func firstFence(counter int64) int64 { return counter - fenceBlock + 1 }
