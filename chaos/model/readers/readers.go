// Package readers models leases of readers and of writers: acquire, extend, fill, downgrade,
// release and rollback over nodes that can restart empty, with the quarantine of such nodes. What an
// attempt has on a node is its claim. Each reader's claim has a life of its own.
//
// Time passes in ticks, the same for all. A message takes any time or is lost, and so is its reply.
// A release can overtake the acquire before it. At the end of its lease a holder does nothing but stop
// to believe in it. So does a reader that crashes.
//
// Source: ALGORITHM sections 3, 5 to 8 and 12.
package readers

import "github.com/d0720281/redlock/chaos/model/search"

const (
	mostNodes    = 3
	mostAttempts = 3
)

// What can break.
const (
	Together = "a writer and another holder at once"
	NotAlone = "a conflicting lease was valid during a lease that was extended"
	EarlyEnd = "a quorum does not keep the claim until the end of the lease"
	Outlives = "a claim is there longer than its own life"
)

// Form is what an attempt asks for, or has on a node.
type Form uint8

// The forms.
const (
	None Form = iota
	Exclusive
	Shared
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Nodes, Quorum int
	Want          []Form // by attempt
	TTL           []int  // in ticks, by attempt
	Quarantine    int
	Extensions    int // attempts below this number extend once
	Downgrades    int // attempts below this number may downgrade once, if they are exclusive

	// What can go wrong.
	Restarts int // of nodes, which come back empty
	Losses   int // claims that vanish unnoticed

	// Rules left out, or done in a wrong way.
	CountQuarantined bool // filled in quarantine is counted
	LateExtension    bool // an extension after the end of the lease revives it
	IgnoreOne        bool // a writer does not mind a single reader
	FillOverReaders  bool // the extension of a writer sets its key beside readers
	LastLife         bool // readers have one life in common: that of the last request
	LongestLife      bool // readers have one life in common: the longest
	LateDowngrade    bool // the writer believes in its lease until the downgrade is through
	TwoStep          bool // a downgrade deletes the key, and a later message joins the readers
	WriteAfterLower  bool // an exclusive message of before the downgrade makes the claim exclusive again
}

// Default is the algorithm over three nodes, for attempts that want so.
func Default(want ...Form) Config {
	c := Config{Nodes: 3, Quorum: 2, Want: want, Quarantine: 2}
	for range want {
		c.TTL = append(c.TTL, 2)
	}
	return c
}

// node is a node, with the messages between it and the attempts, one bit for each attempt.
type node struct {
	form       [mostAttempts]Form // the claims
	life       [mostAttempts]uint8
	quarantine uint8

	acquire, extend, lower, join, release uint8 // on their way to the node
	votes, acks                           uint8 // counted by the attempt
}

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
	form    Form  // that the holder believes in
	elapsed uint8 // since its start
	left    uint8 // until its end
	renewal renewal
	lowered renewal
	since   uint8 // the start of the round
	met     uint8 // attempts in conflict that have been valid since this one was, a bit each
}

type state struct {
	node     [mostNodes]node
	attempt  [mostAttempts]attempt
	restarts uint8
	losses   uint8
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: c.canon}
	if c.Restarts == 0 && c.Losses == 0 {
		m.Check = c.keeps
	}
	return m
}

// keeps checks that the claims of a lease do not end before it, nor live on by others.
//
// Source: ALGORITHM section 13, I3.
func (c Config) keeps(s state) string {
	for a := range c.Want {
		claims := 0
		for i := range c.Nodes {
			n := &s.node[i]
			if n.form[a] != None && n.life[a] == 0 {
				return Outlives
			}
			if n.form[a] != None && n.life[a] >= s.attempt[a].left {
				claims++
			}
		}
		if s.attempt[a].left > 0 && claims < c.Quorum && !c.LateExtension {
			return EarlyEnd
		}
	}
	return ""
}

// canon sorts the nodes, which are alike. It leaves out messages that have no effect, now or later.
func (c Config) canon(s state) state {
	for i := range c.Nodes {
		n := &s.node[i]
		for a := range c.Want {
			if bit := uint8(1 << a); n.form[a] == None && (n.acquire|n.extend|n.lower|n.join)&bit == 0 {
				n.release &^= bit
			}
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
	for a := range mostAttempts {
		r[0] = r[0]<<8 | uint64(n.form[a])<<4 | uint64(n.life[a])
	}
	r[0] = r[0]<<8 | uint64(n.quarantine)
	for _, b := range []uint8{n.acquire, n.extend, n.lower, n.join, n.release, n.votes, n.acks} {
		r[1] = r[1]<<8 | uint64(b)
	}
	return r
}
