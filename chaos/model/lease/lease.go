// Package lease models a lease, which is that of a writer or of a reader: acquire, extend, fill,
// downgrade, release and rollback over nodes that can restart empty, with the quarantine of such
// nodes. What an attempt has on a node is its claim, and each claim has a life of its own. A lock
// can be broken: at any moment a placeholder can replace the claim of a writer, with the same life.
//
// Time passes in ticks, the same for all. A message or its reply takes any time or is lost.
// A release can overtake the acquire before it. At the end of its lease a holder sends
// nothing; it only stops believing in the lease. So does a holder that crashes.
//
// Source: ALGORITHM sections 3, 5 to 8 and 12.
package lease

import (
	"cmp"

	"github.com/d0720281/redlock/chaos/model/search"
)

const (
	mostNodes    = 4
	mostAttempts = 3
)

// What can break.
const (
	TwoHolders = "two holders, one of which is a writer"
	NotAlone   = "a lease in conflict was valid during a lease that was extended"
	EarlyEnd   = "a quorum does not keep the claim until the end of the lease"
	Outlives   = "a claim is there longer than its own life"
)

// Form is what an attempt wants, or what it has on a node.
type Form uint8

// The forms.
const (
	None Form = iota
	Exclusive
	Shared
	Broken // a placeholder in place of an exclusive claim
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Nodes, Quorum int
	Want          []Form // of each attempt
	TTL           []int  // of each attempt, in ticks
	Quarantine    int
	Extensions    int // attempts below this number extend once
	ExtensionTTL  int // of an extension that has a TTL of its own; 0 for the same
	Downgrades    int // writers below this number downgrade once, and extend no more after that

	// What can go wrong.
	Restarts int // of nodes, which come back empty
	Losses   int // claims that vanish unnoticed: a clock that steps, an eviction

	// Nodes that restart have a wrong clock, which is corrected at any moment. Until then they
	// have no vote.
	WrongClocks bool

	// Break replaces the claim of any writer on any node at any moment. The moment at which Break
	// looked makes no difference: it replaces only the claim that it saw.
	Breaks bool

	FirstNeeds int // votes of the first attempt; 0 for the quorum

	// Rules left out or broken, to see what they are for.
	NoFill            bool // extensions only count kept claims, and set none
	CountQuarantined  bool // a fill in quarantine is counted
	LateExtension     bool // an extension after the end of the lease revives it
	ReuseID           bool // attempt 1 repeats attempt 0 with the same id
	ValidityFromReply bool // validity is counted from the last reply
	Shortens          bool // an extension shortens the life of a claim
	BreakDeletes      bool // Break deletes claims
	EarlyDrop         bool // a placeholder is dropped while the holder may believe in its lease
	ForeignDrop       bool // the release of another attempt drops the placeholder, too
	CountWrongClock   bool // a quarantine is measured by a wrong clock, so that its correction ends it
	IgnoreOne         bool // a writer ignores a single reader
	FillOverReaders   bool // the extension of a writer sets its claim beside readers
	LastLife          bool // readers have one life in common: that of the last request
	LongestLife       bool // readers have one life in common: the longest
	LateDowngrade     bool // a writer may write until its downgrade is through
	TwoStep           bool // a downgrade deletes the claim, and joins the readers when it comes again
	WriteAfterLower   bool // a writer's message of before the downgrade makes the claim exclusive again
}

// Default has all rules, three nodes, and a quarantine that is as long as the TTL.
func Default(ttl int, want ...Form) Config {
	c := Config{Nodes: 3, Quorum: 2, Want: want, Quarantine: ttl}
	for range want {
		c.TTL = append(c.TTL, ttl)
	}
	return c
}

// A node, with its messages: a bit for each attempt.
type node struct {
	form       [mostAttempts]Form // the claims, by the id of the attempt
	life       [mostAttempts]uint8
	quarantine uint8
	wrong      bool // its clock is wrong

	sent    [messages]uint8 // on their way to the node
	counted uint8           // replies that the attempt has counted in its round
}

type message uint8

const (
	acquire message = iota
	extend
	lower // the downgrade
	release
	messages
)

type phase uint8

const (
	idle phase = iota
	asking
	holding
	extending
	extended
	lowering
	lowered
	ended
)

// begins has the phase that begins as a message is sent. A round ends with the phase after that.
var begins = [messages]phase{acquire: asking, extend: extending, lower: lowering, release: ended}

func (p phase) round() bool { return p == asking || p == extending || p == lowering }
func (p phase) held() bool  { return p >= holding && p <= lowered }

type attempt struct {
	phase   phase
	elapsed uint8 // since the start of the round
	left    uint8 // until the end of the lease
	met     bool  // an attempt in conflict has been valid since this one was
}

type state struct {
	node     [mostNodes]node
	attempt  [mostAttempts]attempt
	restarts uint8
	losses   uint8
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: c.canon}
	badBreak := c.BreakDeletes || c.EarlyDrop || c.ForeignDrop
	if c.Restarts == 0 && c.Losses == 0 && !c.LateExtension && !c.ReuseID && !badBreak {
		m.Check = c.keeps
	}
	return m
}

// need returns the number of replies that an attempt needs.
func (c Config) need(a int) int {
	if a == 0 {
		return cmp.Or(c.FirstNeeds, c.Quorum)
	}
	return c.Quorum
}

func (c Config) id(a int) int {
	if c.ReuseID && a == 1 {
		return 0
	}
	return a
}

// ttl returns the TTL of an attempt in a phase.
func (c Config) ttl(a int, p phase) uint8 {
	if p > asking && c.ExtensionTTL > 0 {
		return uint8(c.ExtensionTTL)
	}
	return uint8(c.TTL[a])
}

// keeps checks that the claims of a lease, or their placeholders, do not expire before it, nor live
// on by others.
//
// Source: ALGORITHM section 13, I3 and I13.
func (c Config) keeps(s state) string {
	for a := range c.Want {
		id, claims := c.id(a), 0
		for i := range s.node {
			switch n := &s.node[i]; {
			case n.form[id] == None:
			case n.life[id] == 0:
				return Outlives
			case n.life[id] >= s.attempt[a].left:
				claims++
			}
		}
		if s.attempt[a].left > 0 && claims < c.need(a) {
			return EarlyEnd
		}
	}
	return ""
}

// canon leaves out releases that have no effect, now or later, and sorts the nodes.
func (c Config) canon(s state) state {
	for i := range c.Nodes {
		n := &s.node[i]
		for a := range c.Want {
			if n.form[a] == None && (n.sent[acquire]|n.sent[extend]|n.sent[lower])>>a&1 == 0 && !c.ReuseID && !c.ForeignDrop {
				n.sent[release] &^= 1 << a
			}
		}
	}
	search.Sort(s.node[:c.Nodes])
	return s
}
