// Package rules has a hook at each decision that exclusion and the order of the fencing tokens rest
// on. The algorithm is in the code that uses the hooks. They return what it decides, unless a test
// puts a wrong decision in its place, to see that the checkers notice.
//
// Source: ALGORITHM section 13, "Negative controls".
package rules

import (
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// Rules are the hooks of one Locker.
type Rules struct {
	ID        func(random string) string                       // of an attempt
	Quorum    func(votes int) int                              // votes that decide
	Agreed    func(agreed bool) bool                           // enough voters count the fencing target
	ValidFrom func(start, decided clock.Instant) clock.Instant // from when a validity counts: the start of the attempt
	Over      func(over bool) bool                             // a lease has ended, and a late round extends nothing
	HandsOver func(may bool) bool                              // a lease can go to the next caller of the process
	Successor func(fence int64) int64                          // fencing token after a hand-over
	Run       func(first, present string) string               // identity of a server that requests carry: the present one
	Heeds     func(by time.Duration) bool                      // a clock that is off, or has moved, matters
	Arrives   func(may bool) bool                              // a lost request may arrive after the release was confirmed

	KeepsHold      bool // the hold that a lease is taken from does not end
	CountsVoteless bool // the reply of a node without a vote counts as a vote
}

// Change is called for the Rules of each new Locker. Package inject sets it for tests; otherwise it
// is nil.
var Change func(*Rules)

// New returns the rules of a Locker.
func New() *Rules {
	r := &Rules{
		ID:        func(random string) string { return random },
		Quorum:    func(votes int) int { return votes },
		Agreed:    func(agreed bool) bool { return agreed },
		ValidFrom: func(start, _ clock.Instant) clock.Instant { return start },
		Over:      func(over bool) bool { return over },
		HandsOver: func(may bool) bool { return may },
		Successor: func(fence int64) int64 { return fence + 1 },
		Run:       func(_, present string) string { return present },
		Heeds:     func(time.Duration) bool { return true },
		Arrives:   func(may bool) bool { return may },
	}
	if Change != nil {
		Change(r)
	}
	return r
}
