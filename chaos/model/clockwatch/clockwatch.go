// Package clockwatch models how clients watch the clocks: clocks of nodes step forward, so
// that keys expire too early, and clients stand still without noticing.
//
// A client compares a node's time with its own clock from one reply to the next, and so sees
// the sum of what both clocks did. Time passes in ticks. A reply that takes a tick of the
// client's clock is no vote. A round trip that spans a standstill looks quick to the client.
// Every step is seen, however small: steps smaller than the node timeout are not modelled.
//
// Source: ALGORITHM section 9.
package clockwatch

import "github.com/d0720281/redlock/chaos/model/search"

const (
	nodes   = 3
	quorum  = 2
	clients = 2 // each makes one attempt; the first extends
)

// What can break.
const (
	TwoHolders = "two holders, of which none stood still unawares"
	NotAlone   = "another client held the lock during a lease that was extended"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	TTL        int // in ticks
	Quarantine int
	Extend     bool         // the first client extends
	FirstNeeds int          // votes of the first client; 0 for a quorum
	Asks       [clients]int // how often a client asks each node
	Held       bool         // the second client has a lease at the start, on two nodes
	AllAnswer  bool         // every node answers when its clock is looked at
	Newcomer   bool         // the second client has not heard of any node before

	// What can go wrong.
	Steps       int // nodes whose clock steps
	Step        int // of each, in ticks, forward
	Another     int // of the second node, in ticks; 0 for the same
	Standstill  int // ticks for which the first client stands still, in total
	Standstills int // how many times

	// Rules left out, or replaced.
	NoWatch    bool // steps are not detected
	NoMark     bool // a node that stepped has no vote in one reply, and is not marked
	TrustAll   bool // what cannot be decided counts as a step of the local clock alone
	BlameNodes bool // what cannot be decided counts as steps of the nodes alone
	OldLooks   bool // a reply to a request from before the look counts as proof that the clock did not step
}

type node struct {
	owner      uint8
	ttl        uint8
	quarantine uint8
}

type answer uint8

const (
	nothing answer = iota
	counts
	useless
)

// A link carries requests and replies between a client and a node.
type link struct {
	acquire      uint8 // requests on their way to the node
	extend, mark bool

	reply   answer // on its way back
	seen    uint8  // by how much the node's clock had shifted then
	renewal bool   // the reply is to an extension

	shift   uint8 // of the node's clock against the client's since the last sample
	known   bool  // there is a sample
	suspect bool  // no vote until the cause is decided, and if its clock stepped until it is marked
	until   uint8 // ticks without a vote
	look    uint8 // in a round of looks at all clocks: the shift + 1; 0 if not known

	vote, ack bool
}

type phase uint8

const (
	idle phase = iota
	asking
	holding
	ended
)

type client struct {
	phase    phase
	elapsed  uint8 // of the attempt, by the client's clock
	left     uint8 // of the lease, by the same clock
	renewing bool
	extended bool
	since    uint8 // the start of the renewal
	met      bool  // another client was valid since
	open     bool  // a round of looks at all clocks
	frozen   bool
	blind    bool // stood still since the last decision
	link     [nodes]link
}

type state struct {
	node   [nodes]node
	client [clients]client
	steps  uint8
	still  uint8 // ticks
	stills uint8
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: canon}
	for i := range clients {
		for n := range nodes {
			m.Start.client[i].link[n].known = !(c.Newcomer && i == 1)
		}
	}
	if c.Held {
		m.Start.client[1].phase, m.Start.client[1].left = holding, uint8(c.TTL)
		for n := range quorum {
			m.Start.node[n].owner, m.Start.node[n].ttl = 2, uint8(c.TTL)
		}
	}
	return m
}

// canon sorts the nodes, with their links: they are alike.
func canon(s state) state {
	var parts [nodes]struct {
		node
		link [clients]link
	}
	for i := range parts {
		parts[i].node = s.node[i]
		for k := range s.client {
			parts[i].link[k] = s.client[k].link[i]
		}
	}
	search.Sort(parts[:])
	for i := range parts {
		s.node[i] = parts[i].node
		for k := range s.client {
			s.client[k].link[i] = parts[i].link[k]
		}
	}
	return s
}
