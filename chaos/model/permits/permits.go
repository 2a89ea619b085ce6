// Package permits models a semaphore whose permits are slots: locks of their own. One node, which may be
// another for each attempt, chooses free slots for an attempt, all that it wants or none. The attempt then
// asks the other nodes for the same slots.
//
// Time passes in ticks, the same for all. A message takes any time or is lost, as is its
// reply; a release can overtake the acquire before it.
//
// Source: ALGORITHM section 14; sections 3 and 5 to 8.
package permits

import (
	"math/bits"

	"github.com/d0720281/redlock/chaos/model/search"
)

const (
	mostNodes    = 3
	mostAttempts = 3
	mostSlots    = 3
)

// What can break.
const (
	TooMany  = "more permits are held than there are"
	SameSlot = "two holders of one slot"
	NotAlone = "a slot was another holder's during a lease that was extended"
	EarlyEnd = "a quorum does not keep a slot until the end of the lease"
)

// Attempt wants so many permits of so many.
type Attempt struct{ Permits, Of int }

// Config says what the model includes, and which of the rules.
type Config struct {
	Nodes, Quorum int
	Attempts      []Attempt
	TTL           int // in ticks
	Quarantine    int
	Extensions    int  // attempts below this number extend once
	Anywhere      bool // the choice begins with any slot, and not always with the first

	// What can go wrong.
	Restarts int // of nodes, which come back empty

	// Rules left out, or done in a wrong way.
	AnySlot          bool // each node chooses, and a vote counts for a permit, whichever slot it is for: a counter on each node
	CountQuarantined bool // filled in quarantine is counted
	LateExtension    bool // an extension after the end of the lease revives it
	Smallest         bool // check the smallest number of permits that a client gives the semaphore
}

// Default is the algorithm over three nodes.
func Default(attempts ...Attempt) Config {
	return Config{Nodes: 3, Quorum: 2, Attempts: attempts, TTL: 2, Quarantine: 2}
}

// node is a node, with what is between it and the attempts: of those, a bit each. A set of slots has
// a bit for each of them.
type node struct {
	owner      [mostSlots]uint8 // attempt + 1
	life       [mostSlots]uint8
	quarantine uint8

	choose, acquire, extend, release uint8               // on their way to the node
	vote                             [mostAttempts]uint8 // slots
	acks                             [mostAttempts]uint8 // slots
}

type phase uint8

const (
	idle     phase = iota
	choosing       // one node has been asked
	asking         // all nodes have been asked for the slots
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
	first   uint8 // slot to begin with
	slots   uint8 // chosen
	elapsed uint8
	left    uint8
	renewal renewal
	since   uint8
	met     uint8 // slots that other holders have had since
}

type state struct {
	node     [mostNodes]node
	attempt  [mostAttempts]attempt
	restarts uint8
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: c.canon}
	if c.Restarts == 0 && !c.LateExtension && !c.AnySlot {
		m.Check = c.keeps
	}
	return m
}

// keeps checks that the slots of a lease do not end before it.
func (c Config) keeps(s state) string {
	for a := range c.Attempts {
		p := &s.attempt[a]
		for slot := range mostSlots {
			if p.left == 0 || p.slots>>slot&1 == 0 {
				continue
			}
			keys := 0
			for i := range c.Nodes {
				if n := &s.node[i]; n.owner[slot] == uint8(a+1) && n.life[slot] >= p.left {
					keys++
				}
			}
			if keys < c.Quorum {
				return EarlyEnd
			}
		}
	}
	return ""
}

// canon sorts the nodes: they are alike. It leaves out messages that have nothing to do, and
// never will.
func (c Config) canon(s state) state {
	for i := range c.Nodes {
		n := &s.node[i]
		for a := range c.Attempts {
			if bit := uint8(1 << a); (n.choose|n.acquire|n.extend)&bit == 0 && n.has(a) == 0 {
				n.release &^= bit
			}
		}
	}
	for a := range c.Attempts {
		late := uint8(0)
		for i := range c.Nodes {
			n := &s.node[i]
			late |= n.acquire | n.extend
		}
		if p := &s.attempt[a]; p.phase == ended && late>>a&1 == 0 {
			p.slots = 0
		}
	}
	for i := 1; i < c.Nodes; i++ {
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
	for i := range mostSlots {
		r[0] = r[0]<<8 | uint64(n.owner[i])<<4 | uint64(n.life[i])
	}
	r[0] = r[0]<<8 | uint64(n.quarantine)
	for a := range mostAttempts {
		r[0] = r[0]<<8 | uint64(n.vote[a])
		r[1] = r[1]<<8 | uint64(n.acks[a])
	}
	for _, b := range []uint8{n.choose, n.acquire, n.extend, n.release} {
		r[1] = r[1]<<8 | uint64(b)
	}
	return r
}

// quorumOf is the slots that a quorum of sets has.
func (c Config) quorumOf(s *state, set func(n *node) uint8) (slots uint8) {
	for slot := range mostSlots {
		n := 0
		for i := range c.Nodes {
			n += int(set(&s.node[i]) >> slot & 1)
		}
		if n >= c.Quorum {
			slots |= 1 << slot
		}
	}
	return slots
}

func size(slots uint8) int { return bits.OnesCount8(slots) }

// best is the first n of some slots, in the order of an attempt.
func best(slots, first uint8, n, of int) (chosen uint8) {
	for k := range of {
		slot := uint8(1) << ((int(first) + k) % of)
		if slots&slot != 0 && size(chosen) < n {
			chosen |= slot
		}
	}
	return chosen
}
