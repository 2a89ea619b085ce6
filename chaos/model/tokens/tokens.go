// Package tokens models the fencing tokens of a lock with readers: the counters of the nodes,
// which a writer moves and a reader only looks at, and the round that raises them.
//
// There is no time. A message takes any time or is lost, and so is its reply. A claim can vanish at
// any moment: that stands for its end, for a release and for a process that was paused.
//
// A store keeps the largest token of a writer, and refuses what is smaller. Tokens are right if the
// store refuses no reader that holds its lease, and every reader that comes after a writer has written:
//
//   - writers have tokens of their own, larger for a writer that began after another had succeeded;
//   - a reader's is at least those of all writers and readers that had succeeded when it began;
//   - a writer's is larger than those of all readers that had succeeded when it began;
//   - the same holds for two attempts that began together and whose leases were valid one after the
//     other: those that still had a quorum of claims when they succeeded.
//
// Source: ALGORITHM sections 4 and 12.
package tokens

import "github.com/d0720281/redlock/chaos/model/search"

const (
	nodes        = 3
	quorum       = 2
	mostAttempts = 3
)

// What can break.
const (
	SameToken     = "two writers have the same token"
	TokenFalls    = "a writer has a token smaller than a lease before it"
	ReaderFalls   = "a reader has a token smaller than a lease before it"
	ReaderPasses  = "a reader that is over is not told from the writer after it"
	ReaderRefused = "a reader that is right is refused because of the writer before it"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Readers []bool // by attempt
	Block   int
	Clocks  [nodes]int // where the counter of a node starts

	// What can go wrong.
	Twice int  // acquires that arrive a second time
	Wipe  bool // a counter is lost, and starts anew from the clock

	// Rules left out, or done in a wrong way.
	NoRaise       bool // a reader takes the largest of the votes, without a second round
	Least         bool // a reader takes the smallest
	RaiseAnywhere bool // a reader raises also where it has no claim
	FirstOfBlock  bool // a reader takes the first token of the block that it sees, not the end
	ClockBehind   bool // a clock from which a lost counter starts is behind
}

type node struct {
	owner   uint8 // attempt + 1 of a writer
	grant   uint8 // the counter given with the key
	readers uint8 // a bit each
	counter uint8

	acquire [mostAttempts]uint8 // how often it is still to arrive
	vote    [mostAttempts]uint8 // the counter given to the attempt, as far as it knows
	raise   [mostAttempts]raise
	lost    uint8 // attempts whose claim has vanished that they counted, a bit each
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
	decided // the token is known, but not yet that a quorum has it
	won
)

type attempt struct {
	phase phase
	token uint8 // the end of the block, of a writer
	least uint8 // the least token that is right, from what had succeeded when it began: a reader's
	above uint8 // a writer's must be larger than this
	valid bool  // a quorum of the claims that it counted was there when it succeeded
}

type state struct {
	node    [nodes]node
	attempt [mostAttempts]attempt
	twice   uint8
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: canon}
	for i := range nodes {
		m.Start.node[i].counter = uint8(c.Clocks[i]) + 1
	}
	return m
}

// canon sorts the nodes, which are alike.
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
	r[0] = uint64(n.owner) | uint64(n.counter)<<8 | uint64(n.grant)<<16 | uint64(n.readers)<<24 | uint64(n.lost)<<32
	for a := range mostAttempts {
		r[1] |= (uint64(n.acquire[a]) | uint64(n.raise[a])<<4 | uint64(n.vote[a])<<8) << (16 * a)
	}
	return r
}
