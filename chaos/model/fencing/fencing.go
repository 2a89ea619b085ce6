// Package fencing models the fencing tokens: the counters of the nodes, the round that
// raises them, the block of tokens that a grant reserves, and the hand-over of a lease to
// the next caller of the same process.
//
// Where counters do not expire there is no time. A message or its reply takes any time or is
// lost. A key can vanish at any moment: it expired, was released, or its process was paused.
// Only a hand-over depends on time: a lease is not over while the keys that it counted
// exist.
//
// Source: ALGORITHM sections 4 and 10, "Hand-over inside the process".
package fencing

import "github.com/d0720281/redlock/chaos/model/search"

const (
	nodes        = 3
	quorum       = 2
	mostAttempts = 3
)

// What can break.
const (
	SameToken  = "two leases have the same token"
	TokenFalls = "a lease has a token smaller than one before it"
	TwoHandles = "two handles of one lease are valid"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Attempts int
	Block    int
	Clocks   [nodes]int // where the counter of a node starts; different unless the hint is given

	// What can go wrong.
	Twice int  // acquires that arrive a second time
	Wipe  bool // a counter is lost, and starts again from the clock

	// If counters expire, a counter of 0 is missing, and a grant starts it from the clocks.
	Expiry      bool
	Ticks       int        // of the true time, which is 0 at first
	Ahead       [nodes]int // of each node's clock at first; a node that is further off than MaxSkew has no vote
	Corrections int        // of such clocks
	Margin      int        // a counter lives for so long after the node's clock has passed it
	Restarts    int        // of nodes, which come back empty
	Quarantine  int        // ticks without a vote after that

	// Rules left out, or broken.
	NoRaise       bool // the token is the largest counter of the votes, without a second round
	RaiseAnywhere bool // a counter is raised even where the key is not held
	RaiseByID     bool // a counter is raised for the attempt, whichever of its grants was counted
	ClockBehind   bool // a clock from which a lost counter starts is behind
	KeepToken     bool // a hand-over gives the same token again
	PastBlock     bool // a hand-over continues beyond the end of the block
	HandOverLate  bool // a lease is handed over after its end
	KeepHandle    bool // the old handle ends only after the new one exists
	ExpireEarly   bool // a counter expires however far ahead of the node's clock it is
	SeedFar       bool // a node whose clock is far off has started a counter from that clock
}

// MaxSkew is how far a node's clock may be off, in ticks.
const MaxSkew = 1

// Default has all rules.
func Default() Config { return Config{Attempts: 2, Block: 1} }

type node struct {
	owner   uint8 // attempt + 1
	counter uint8
	grant   uint8 // the counter given with the key
	ahead   int8  // how far its clock is ahead of the true time
	quar    uint8 // ticks without a vote

	acquire [mostAttempts]delivery
	vote    [mostAttempts]uint8 // the counter given to the attempt, as far as the attempt knows
	raise   [mostAttempts]raise
}

type delivery uint8

const (
	unsent delivery = iota
	arrived
	sent
	sentTwice
)

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
	token uint8 // the end of the block
	used  uint8 // tokens of the block
	floor uint8 // the largest token that was in use when it started
	stale bool  // a key that it counted has vanished
	open  uint8 // handles of the lease that count as held
}

type state struct {
	node    [nodes]node
	attempt [mostAttempts]attempt
	twice   uint8 // acquires that have been sent again
	time    uint8
	right   uint8 // corrections of clocks
	empty   uint8 // restarts
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: canon}
	for i := range nodes {
		m.Start.node[i].counter = uint8(c.Clocks[i])
		m.Start.node[i].ahead = int8(c.Ahead[i])
		if c.SeedFar && m.Start.node[i].far() {
			m.Start.node[i].counter = uint8(c.Ahead[i] + c.Block)
		}
	}
	return m
}

// canon sorts the nodes, which differ in their state only.
func canon(s state) state {
	for i := 1; i < nodes; i++ {
		for j := i; j > 0 && s.node[j].before(&s.node[j-1]); j-- {
			s.node[j], s.node[j-1] = s.node[j-1], s.node[j]
		}
	}
	return s
}

func (n *node) before(other *node) bool {
	a, b := n.rank(), other.rank()
	return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
}

func (n *node) rank() (r [2]uint64) {
	r[0] = uint64(n.owner) | uint64(n.counter)<<8 | uint64(n.grant)<<16 | uint64(uint8(n.ahead))<<24 | uint64(n.quar)<<32
	for a := range mostAttempts {
		r[1] |= (uint64(n.acquire[a]) | uint64(n.raise[a])<<4 | uint64(n.vote[a])<<8) << (16 * a)
	}
	return r
}
