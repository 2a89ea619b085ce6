package redlock

// sabotage is ways to build the algorithm wrongly. Each of them must be noticed by the
// checkers of the tests, or those prove nothing.
//
// Source: ALGORITHM section 13, "Negative controls".
type sabotage struct {
	reuseID           bool // every attempt at a resource has the same id
	validityFromReply bool // the deadline is counted from the last reply
	lateExtension     bool // a round that is complete after the deadline revives the lease
	oneRound          bool // the fencing token is not agreed on by a quorum
	sameToken         bool // a lease that is handed over keeps its fencing token
	keepsHandle       bool // the handle that it is handed over from goes on
	lateHandOver      bool // it is handed over whatever it has left
	fewerVotes        int  // how many are missing for a quorum
}

// broken is what is wrong with this build: nothing. Tests alone change it, while no
// Locker exists; nothing that is exported leads here.
var broken sabotage
