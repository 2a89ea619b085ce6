package redlock

import "github.com/d0720281/redlock/internal/node"

// rules are the decisions that exclusion and the order of the fencing tokens rest on. A Locker
// has its own, which algorithm made. Tests pass in wrong ones, to see that the checkers notice.
//
// Source: ALGORITHM section 16.
type rules struct {
	// newID is the id of an attempt. Two attempts with one id would both be granted the resource.
	newID func() string

	// quorum is the number of votes that decides among n nodes.
	quorum func(n int) int

	// agreed reports whether so many voters that count the target are enough to grant the lease.
	agreed func(known, need int) bool

	// validFrom is the moment that the validity of a lease counts from, of the moments at which
	// its attempt began and was decided.
	validFrom func(start, decided instant) instant

	// isOver reports whether a lease has ended. A round that is complete later extends nothing.
	isOver func(deadline, now instant) bool

	// handsOver reports whether a lease can go to the next caller of the process.
	handsOver func(g *grant, now instant) bool

	// retire ends the handle of the caller that a lease is taken from. What it returns ends
	// the handle's context.
	retire func(le *Lease) (end func())

	// successor is the fencing token of the next caller.
	successor func(fence int64) int64

	// ignores reports whether a survey passes although a group refuses it for this reason.
	ignores func(refusal error) bool

	node node.Rules // about one node's vote
}

// algorithm makes the rules of a Locker. Tests alone replace it.
var algorithm = func() rules {
	return rules{
		newID:     newID,
		quorum:    quorum,
		agreed:    func(known, need int) bool { return known >= need },
		validFrom: func(start, _ instant) instant { return start },
		isOver:    func(deadline, now instant) bool { return now >= deadline },
		handsOver: (*grant).handsOverLocked,
		retire:    func(le *Lease) func() { return le.overLocked(ErrReleased) },
		successor: func(fence int64) int64 { return fence + 1 },
		ignores:   func(error) bool { return false },
		node:      node.Algorithm,
	}
}
