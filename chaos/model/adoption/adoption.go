// Package adoption models how a process goes on with the lease of another: the look at the keys of the former
// holder, the attempt that takes these keys over under an id of its own, and the ids that are void on a node from
// then on.
//
// Process 0 is the former holder. At first it has its lease, by two of three nodes. The adopters follow; each
// has the token of process 0, and the last one also that of the first adopter, once that one has its lease. The last
// process is an outsider, which wants the resource as soon as it is free.
//
// Time passes in ticks, the same for all. Until its notAfter a message arrives at a node at any moment, also after
// the later steps of its sender, any number of times or never. A release has no notAfter. A process may do nothing at any moment:
// so it is with a process that dies, with one that detaches its lease, and with one that does not hear. A process
// that closes releases. No node loses a key: what a holder takes for a loss is none.
//
// Source: ALGORITHM section 6, "Adopt".
package adoption

import "github.com/d0720281/redlock/chaos/model/search"

const (
	nodes    = 3
	quorum   = 2
	most     = 4 // processes
	adopters = 2 // at most
	notAfter = 1 // ticks for which a message may be under way
)

// What can break.
const (
	TwoHolders    = "two holders"
	NotAlone      = "an outsider had the resource between a lease and its adoption"
	TwoAdoptions  = "two adoptions of one lease"
	Revived       = "a lease that was adopted is renewed"
	VoidActs      = "a message of the former id changes a node that took part in the adoption"
	FalseEvidence = "a node is taken for one that lost data"
	OldToken      = "a lease has the token of another, or a smaller one than a lease before it"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Adopters   int       // one or two
	TTL        [most]int // of each process, in ticks
	Void       int       // how long an id is void, in ticks; longer if the key lives longer
	Extensions [most]int // rounds of each process
	Releases   [most]bool
	NoOutsider bool
	Late       bool // the acquire of the former holder is still under way at first
	Twice      bool // it may arrive again where it was carried out
	Fence      bool // the adopters know the fencing token of the former holder
	ByToken    bool // an adopter releases the lease of the former holder instead, which may believe in it

	// Rules left out, or broken.
	SharedID       bool // the former holder and the adopter have one id
	KeepWhereTaken bool // the former id is not void on a node whose key was taken over
	KeepWhereGone  bool // the former id is not void on a node that lacks the key
	Shortens       bool // adoption shortens the life of a key
	FailedReleases bool // an adoption that failed releases its keys
	TakesMissing   bool // adoption sets a missing key, and counts that as a vote
	KeepsCounter   bool // the adopter has the counter of the former holder
	KeysAlone      bool // the look is content with the keys, and does not look at the counters
	AnyValue       bool // adoption takes any key of the former id, also one filled since the look
	VotesUnread    bool // that no other lease was granted since has to be so in the look, and not in the votes
	AnyGrant       bool // a grant to the former holder that is newer than its token counts as that of its lease
	NoExclusion    bool // adoption takes any key
}

// Default has all rules, and a TTL of two ticks. All processes may release. The former holder and the adopters extend
// once. An id is void until no message of the former holder can be under way. It can renew its lease as long as the
// adopt has reached one node alone, for notAfter. The last message comes a TTL and notAfter after that renewal.
func Default(adopters int) Config {
	c := Config{Adopters: adopters, TTL: [most]int{2, 2, 2, 2}, Void: 2 + 2*notAfter, Releases: [most]bool{true, true, true, true}, Fence: true}
	for p := range c.outsider() {
		c.Extensions[p] = 1
	}
	return c
}

// Messages of a process, apart from its release. The acquire of an adopter is the adopt.
type message uint8

const (
	acquire message = iota
	raise
	extend
	messages
)

// What an adopter saw on a node in its look.
const (
	seen    uint8 = 1 << iota
	has           // the key is that of the former holder
	granted       // with the counter of a grant
	later         // a later grant may have moved the counter
)

type node struct {
	owner, given, life uint8 // the key: id + 1, the counter that came with it, or 0, and ticks
	counter            uint8
	void               [most]uint8 // by id, in ticks
	awaits             bool        // the acquire of the former holder has not arrived yet
	part               uint8       // ids whose adoption this node has seen: a bit each

	vote    [most]uint8 // the counter that a process was given, as far as it knows
	keep    [most]uint8 // ticks for which the process knows that the node has to have its key
	had     uint8       // processes that know that the node had their key
	raised  uint8
	counted uint8 // replies that count in the round of extends
	look    [adopters]uint8
	value   [adopters]uint8 // the counter in the former holder's key + 1 as the adopter saw it; 0: there was no such key
}

type phase uint8

const (
	idle phase = iota
	looking
	asking
	raising
	holding
	ended
)

type process struct {
	phase      phase
	from       uint8 // the process whose lease an adopter goes on with
	elapsed    uint8 // since the look or the attempt began
	left       uint8 // until the end of the lease
	token      uint8
	won        bool
	superseded bool // its lease was adopted
	floor      uint8
	rounds     uint8 // of extends, that have begun
	after      bool  // the present round has begun after the lease was adopted
	sent       [messages]uint8
	released   bool // its release is under way
}

type state struct {
	node    [nodes]node
	process [most]process
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Next: c.next, Canon: c.canon}
	ttl := uint8(c.TTL[0])
	m.Start.process[0] = process{phase: holding, left: ttl, token: 1, won: true}
	if c.Late {
		m.Start.process[0].sent[acquire] = notAfter + 1
		m.Start.node[nodes-1].awaits = !c.Twice
	}
	for i := range quorum {
		n := &m.Start.node[i]
		n.owner, n.given, n.life, n.counter, n.had = 1, 1, ttl, 1, 1
		n.vote[0], n.keep[0] = 1, ttl
	}
	return m
}

func (c Config) outsider() int { return c.Adopters + 1 }

func (c Config) adopts(p int) bool { return p > 0 && p < c.outsider() }

// id returns the id that a process gives in its messages.
func (c Config) id(s *state, p int) uint8 {
	if c.SharedID && c.adopts(p) {
		return c.id(s, int(s.process[p].from))
	}
	return uint8(p)
}

// canon leaves out what has no effect, now or later, and sorts the nodes.
func (c Config) canon(s state) state {
	for p := range most {
		q := &s.process[p]
		over := q.phase == ended
		if over && q.released && q.sent == [messages]uint8{} {
			q.released = c.owns(&s, p) || c.SharedID || c.ByToken
		}
		silent := over && q.sent == [messages]uint8{} && !q.released
		for i := range s.node {
			if silent {
				s.node[i].void[p] = 0
				s.node[i].part &^= 1 << p
			}
		}
	}
	search.Sort(s.node[:])
	return s
}

// owns reports whether any node has the key of a process.
func (c Config) owns(s *state, p int) bool {
	for i := range s.node {
		if s.node[i].owner == c.id(s, p)+1 {
			return true
		}
	}
	return false
}
