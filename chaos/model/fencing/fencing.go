// Package fencing models the fencing tokens of writers and readers: the counters of the nodes,
// which a writer moves and a reader only looks at, the round that raises them, the block of tokens
// that the grant of a writer reserves, and the hand-over of a lease to the next caller of the same
// process.
//
// Where counters do not expire there is no time. A message or its reply takes any time or is
// lost. A claim can vanish at any moment: it expired, was released, or its process was paused.
// Only a hand-over depends on time: a lease is not over while the claims that it counted
// exist.
//
// A store keeps the largest token of a writer, and refuses what is smaller. Tokens are right if the
// store refuses no reader that holds its lease, and every reader that comes after a writer has
// written:
//
//   - writers have tokens of their own, larger for a writer that began after another had succeeded;
//   - a reader's is at least those of all writers and readers that had succeeded when it began;
//   - a writer's is larger than those of all readers that had succeeded when it began;
//   - the same holds for two attempts that began together and whose leases were valid one after the
//     other: those that still had a quorum of claims when they succeeded.
//
// Source: ALGORITHM sections 4, 10, "Hand-over inside the process", and 12.
package fencing

import (
	"slices"

	"github.com/d0720281/redlock/chaos/model/search"
)

const (
	nodes        = 3
	quorum       = 2
	mostAttempts = 3
)

// What can break.
const (
	SameToken     = "two leases have the same token"
	TokenFalls    = "a writer has a token smaller than a lease before it"
	TwoHolds      = "two holds of one lease are valid"
	ReaderFalls   = "a reader has a token smaller than a lease before it"
	ReaderPasses  = "a reader that is over is not told from the writer after it"
	ReaderRefused = "a reader that holds is refused because of the writer before it"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Readers []bool // of each attempt; false for a writer
	Block   int
	Start   [nodes]int // the counter of each node at first; 0 if it has none

	// What can go wrong.
	Twice int  // acquires that arrive a second time
	Wipe  bool // a counter is lost, or comes back as it was earlier, and starts again from the clock

	// If counters expire, a grant starts a missing counter from the clocks.
	Expiry      bool
	Ticks       int        // of the true time, which is 0 at first
	Ahead       [nodes]int // of each node's clock at first; further off than MaxSkew it has no vote
	Corrections int        // of such clocks
	Margin      int        // a counter lives for so long after the node's clock has passed it
	Restarts    int        // of nodes, which come back empty
	Copies      int        // of nodes that restart with an earlier counter, and with their clock ahead by CopyAhead
	CopyAhead   int
	Quarantine  int // ticks without a vote after a restart

	// Rules left out, or broken.
	NoRaise       bool // the token is the largest counter of the votes, without a second round
	RaiseAnywhere bool // a counter is raised even where the attempt has no claim
	RaiseByID     bool // a counter is raised for a writer, whichever of its grants was counted
	ClockBehind   bool // a clock from which a lost counter starts is behind
	CountsOld     bool // a counter that came back as it was earlier counts
	UnsureStart   bool // it counts as earlier up to the node's clock at the restart, which nothing has confirmed
	KeepToken     bool // a hand-over gives the same token again
	PastBlock     bool // a hand-over continues beyond the end of the block
	HandOverLate  bool // a lease is handed over after its end
	KeepHold      bool // the old hold ends only after the new one exists
	ExpireEarly   bool // a counter expires however far ahead of the node's clock it is
	FarCounts     bool // a client counts a node whose clock is further off than other clients, and the node, allow for
	SeedFar       bool // a node whose clock is far off has started a counter from that clock
	Least         bool // a reader takes the smallest counter of the votes
	FirstOfBlock  bool // a reader takes the first token of the block that it sees, not the end
}

// MaxSkew is how far a node's clock may be off, in ticks. MaxAhead is how far a counter may be ahead of
// that clock.
const (
	MaxSkew  = 1
	MaxAhead = mostAttempts
)

// Default has all rules. The nodes have no counters, or have equal ones for readers to look at.
func Default(readers ...bool) Config {
	c := Config{Readers: readers, Block: 1}
	if c.mixed() {
		c.Start = [nodes]int{1, 1, 1}
	}
	return c
}

type node struct {
	owner   uint8 // attempt + 1 of a writer
	grant   uint8 // the counter given with the key
	readers uint8 // a bit for each attempt
	counter uint8
	ahead   int8  // how far its clock is ahead of the true time
	quar    uint8 // ticks without a vote
	unsure  bool  // it has restarted, and nothing has confirmed its clock since: the quarantine has not begun
	from    uint8 // a smaller counter counts as missing

	acquire [mostAttempts]uint8 // how often it is still to arrive
	vote    [mostAttempts]uint8 // the counter given to the attempt, as far as the attempt knows
	raise   [mostAttempts]raise
	lost    uint8 // attempts that have counted a claim here that has vanished since, a bit each
}

type raise uint8

const (
	notRaised raise = iota
	raising
	raised
	refused
)

type phase uint8

const (
	idle phase = iota
	asking
	decided // the token is known, but perhaps no quorum has it
	won
)

type attempt struct {
	phase phase
	token uint8 // a reader's, or the end of a writer's block
	used  uint8 // tokens of the block
	floor uint8 // the largest token that was in use when it started
	open  uint8 // holds of the lease that count as held
	valid bool  // a quorum of the claims that it counted was there when it succeeded
}

type state struct {
	node    [nodes]node
	attempt [mostAttempts]attempt
	twice   uint8 // acquires that have been sent again
	time    uint8
	right   uint8 // corrections of clocks
	empty   uint8 // restarts of nodes without a counter
	copied  uint8 // restarts of nodes with an earlier counter
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: func(s state) state {
		search.Sort(s.node[:])
		return s
	}}
	for i := range nodes {
		n := &m.Start.node[i]
		n.counter, n.ahead = uint8(c.Start[i]), int8(c.Ahead[i])
		if c.SeedFar && c.far(n) {
			n.counter = uint8(c.Ahead[i] + c.Block)
		}
	}
	return m
}

// mixed reports whether readers and writers meet. What has become of the claims of an attempt
// matters only then, and to a hand-over.
func (c Config) mixed() bool { return slices.Contains(c.Readers, true) }
