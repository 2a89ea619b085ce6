package node

import "time"

// Rules are the decisions that a node's vote rests on. Algorithm has the right ones. Tests pass
// in wrong ones, to see that the checkers notice.
type Rules struct {
	// Counts reports whether the reply of a node without a vote counts as a vote.
	Counts func(Reply) bool

	// Run is the identity that requests carry, of those of the first server and the present one.
	Run func(first, present string) string

	// Heeds reports whether a clock that is off, or has moved, by d matters where it is found to.
	Heeds func(d time.Duration) bool
}

// Algorithm has the rules of the algorithm.
//
// Source: ALGORITHM sections 8 and 9.
var Algorithm = Rules{
	Counts: func(Reply) bool { return false },
	Run:    func(_, present string) string { return present },
	Heeds:  func(time.Duration) bool { return true },
}
