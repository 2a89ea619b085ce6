// Package lease models a lease: acquire, extend, fill, release and rollback over nodes that
// can restart empty, with the quarantine of such nodes. A lock can be broken: at any moment a
// placeholder can replace the key of an attempt, with the same expiry.
//
// Time passes in ticks, the same for all. A message or its reply takes any time or is lost.
// A release can overtake the acquire before it. At the end of its lease a holder sends
// nothing; it only stops believing in the lease.
//
// Source: ALGORITHM sections 3 and 5 to 8.
package lease

import (
	"cmp"

	"github.com/d0720281/redlock/chaos/model/search"
)

const (
	mostNodes    = 5
	mostAttempts = 3
)

// What can break.
const (
	TwoHolders = "two holders"
	NotAlone   = "another client held the lock during a lease that was extended"
	EarlyEnd   = "a quorum does not keep the key until the end of the lease"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Nodes, Quorum int
	Attempts      int
	TTL           int // in ticks
	Quarantine    int
	Extensions    int // attempts below this number extend once
	ExtensionTTL  int // of an extension that has a TTL of its own; 0 for the same

	// What can go wrong.
	Restarts int // of nodes, which come back empty
	Losses   int // keys that vanish unnoticed: a clock that steps, an eviction

	// Nodes that restart have a wrong clock, which is corrected at any moment. Until then they
	// have no vote.
	WrongClocks bool

	// Break replaces any key on any node at any moment. The moment at which Break looked makes no
	// difference: it replaces only the key that it saw.
	Breaks bool

	// The first attempt has another list of nodes than the rest: it knows the first OtherNodes,
	// with the quorum OtherQuorum. The others leave out the first few of these: masters that were
	// exchanged.
	OtherNodes, OtherQuorum int
	Exchanged               int
	Membership              bool // nodes that know the first list take no other list
	FirstNeeds              int  // votes of the first attempt; 0 for the quorum

	// Rules left out, to see what they are for.
	NoFill            bool // extensions only count kept keys, and set none
	CountQuarantined  bool // a fill in quarantine is counted
	LateExtension     bool // an extension after the end of the lease revives it
	ReuseID           bool // attempt 1 repeats attempt 0 with the same id
	ValidityFromReply bool // validity is counted from the last reply
	Shortens          bool // an extension shortens the life of a key
	BreakDeletes      bool // Break deletes keys
	EarlyDrop         bool // a placeholder is dropped while the holder may believe in its lease
	ForeignDrop       bool // the release of another attempt drops the placeholder, too
	ForgetLists       bool // restarted nodes have forgotten the first list, and no client tells them
	CountWrongClock   bool // a quarantine is measured by a wrong clock, so that its correction ends it
}

// extensionTTL returns the TTL of an extension.
func (c Config) extensionTTL() int { return cmp.Or(c.ExtensionTTL, c.TTL) }

// Default has all rules, and three nodes.
func Default() Config {
	return Config{Nodes: 3, Quorum: 2, Attempts: 2, TTL: 3, Quarantine: 3, Extensions: 1}
}

// A node, with its messages: a bit for each attempt.
type node struct {
	owner      uint8 // id of the attempt, 0 if none; with the bit broken, a placeholder in place of its key
	ttl        uint8
	quarantine uint8
	wrong      bool // its clock is wrong
	forgot     bool // which list was in use

	acquire, extend, release uint8 // on their way to the node
	votes, acks              uint8 // counted by the attempt
}

const broken = 0x80 // a bit beside the id of an attempt

type phase uint8

const (
	idle phase = iota
	asking
	holding
	ended
)

type renewal uint8

const (
	notYet renewal = iota
	running
	done
)

type attempt struct {
	phase   phase
	elapsed uint8 // since its start
	left    uint8 // until its end
	renewal renewal
	since   uint8 // the start of the renewal
	met     uint8 // attempts that have been valid since this attempt was, a bit each
}

type state struct {
	node     [mostNodes]node
	attempt  [mostAttempts]attempt
	restarts uint8
	losses   uint8
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next}
	if c.OtherNodes == 0 {
		m.Canon = c.canon
	}
	badBreak := c.BreakDeletes || c.EarlyDrop || c.ForeignDrop
	if c.Restarts == 0 && c.Losses == 0 && !c.LateExtension && !c.ReuseID && !badBreak {
		m.Check = c.keeps
	}
	return m
}

// list returns the nodes that an attempt knows, from one number to before another, and the
// number of votes that it needs.
func (c Config) list(a int) (from, to, quorum int) {
	if a == 0 && c.OtherNodes > 0 {
		return 0, c.OtherNodes, c.OtherQuorum
	}
	return c.Exchanged, c.Nodes, c.Quorum
}

// takes reports whether a node takes the list of an attempt.
func (c Config) takes(n *node, a, i int) bool {
	return !c.Membership || a == 0 || i >= c.OtherNodes || n.forgot
}

func (c Config) id(a int) uint8 {
	if c.ReuseID && a == 1 {
		return 1
	}
	return uint8(a + 1)
}

// keeps checks that the keys of a lease, or their placeholders, do not expire before it.
//
// Source: ALGORITHM section 13, I3.
func (c Config) keeps(s state) string {
	for a := range c.Attempts {
		if s.attempt[a].left == 0 {
			continue
		}
		from, to, quorum := c.list(a)
		keys := 0
		for _, n := range s.node[from:to] {
			if n.owner&^broken == c.id(a) && n.ttl >= s.attempt[a].left {
				keys++
			}
		}
		if keys < quorum {
			return EarlyEnd
		}
	}
	return ""
}

// canon sorts the nodes: they are alike.
func (c Config) canon(s state) state {
	for i := 1; i < c.Nodes; i++ {
		for j := i; j > 0 && s.node[j].rank() < s.node[j-1].rank(); j-- {
			s.node[j], s.node[j-1] = s.node[j-1], s.node[j]
		}
	}
	return s
}

func (n node) rank() uint64 {
	quarantine := uint64(n.quarantine)
	if n.wrong {
		quarantine |= 1 << 7
	}
	return uint64(n.owner) | uint64(n.ttl)<<8 | quarantine<<16 |
		uint64(n.acquire)<<24 | uint64(n.extend)<<32 | uint64(n.release)<<40 |
		uint64(n.votes)<<48 | uint64(n.acks)<<56
}
