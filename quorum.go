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

// exclusive reports whether a lease that has its key on held of n nodes still keeps every other
// holder out, because the other nodes are too few for a quorum of need.
//
// Source: ALGORITHM section 6, "Lost now".
func exclusive(n, need, held int) bool { return held > n-need }

// fenceBlock is the number of fencing tokens that one grant reserves. The counter is the last
// token of the block. The first lease of the grant has the first token, and each hand-over
// inside the process takes the next one.
//
// Source: ALGORITHM section 1, "B", and section 4.
const fenceBlock = wire.Block

// firstFence returns the first token of the block that ends at counter.
func firstFence(counter int64) int64 { return counter - fenceBlock + 1 }
