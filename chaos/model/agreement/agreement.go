// Package agreement models what two clients must agree on: which servers they ask, and the largest TTL. It has what a node
// keeps of that, the proof that a client has joined, and leases by quorum. Nodes lose their data with the marker.
//
// Both clients ask nodes 0 and 1. Behind the third name client 0 sees node 2, and client 1 node 3. With Lists these are
// two names. A client joins at any moment, for other locks. It reaches all nodes but one, node 1 or the third. What it
// sends to a node that it reaches is answered in the same tick, in any order; else it is late, and its reply lost.
//
// Assumed is that both reach node 0 all the time, and know of the larger TTL at first. A lease is asked for once.
//
// Source: ALGORITHM section 8, "Agreement" and "Membership".
package agreement

import "github.com/d0720281/redlock/chaos/model/search"

// TwoHolders is the property that can break.
const TwoHolders = "two holders"

// Config says what is modelled, and which of the rules are left out, to see what they are for.
type Config struct {
	TTL    [2]uint8 // of each client, in ticks; a quarantine is as long
	Use    uint8    // quarantines for which a server is in use
	Lists  bool     // the third servers have two names
	Longer bool     // client 1 has both names in its list
	Losses uint8    // of a node's data, with its marker
	Cuts   uint8    // changes of the partition

	NoProof    bool // a batch counts without a join after a change or a loss
	NoWait     bool // a grant does not wait for each node that is reached
	Gone       bool // a vote counts though its server is not reached any more
	Heard      bool // a server is in use from when it was heard, and not from the join
	NoFirst    bool // a node takes another server at any time
	ByText     bool // servers are not compared
	Contested  bool // a client counts a server though others use another one
	OwnTTL     bool // a larger TTL that a node tells is neither used nor passed on
	Earlier    bool // votes count from before the client heard of a larger TTL
	OldProof   bool // a proof counts from before that
	NotRaised  bool // a node does not write down a larger TTL
	NotRefused bool // a list in conflict is taken
	OneRefuses bool // the nodes that take the list count, though another one refuses it
}

// Most numbers are ticks that are left, of each client.
type node struct {
	key, list, proof [2]uint8 // of the key; for which the list is in use; for which the proof is good
	server, claimed  uint8    // behind the third name; ticks since it was, up to the time for which it is in use
	long, born       uint8    // for which the larger TTL counts; since the first join after a loss of data: from 1, up to past the longer TTL
	sent, votes      uint8    // acquires on their way, and votes: a bit for each client
}

type client struct {
	phase     phase
	left      uint8    // until the end of the attempt or lease
	cut       int      // the node that is not reached: 1, or 2 for the third name
	heard     uint8    // ticks since the third server was
	joined    [4]uint8 // for which what each node has replied to a join is good
	contested [2]uint8 // for which other clients use another server, as nodes 0 and 1 say
	refused   uint8    // nodes that refuse the list, by bits
	long      uint8    // for which the larger TTL counts
}

type phase uint8

const (
	idle phase = iota
	asking
	holding
	ended
)

type state struct {
	node         [4]node
	client       [2]client
	losses, cuts uint8
}

type visit = func(state, search.Step)

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	var s state
	for i := range s.node {
		s.node[i].born, s.node[i].claimed = c.longer()+1, c.use()
	}
	for p := range s.client {
		if c.TTL[p] < c.longer() {
			s.client[p].long = 2 * c.longer()
		}
	}
	return search.Model[state]{Start: s, Next: c.next}
}

func (c Config) longer() uint8 { return max(c.TTL[0], c.TTL[1]) }
func (c Config) use() uint8    { return c.Use * c.longer() }
func (c Config) servers() bool { return c.Use > 0 && !c.ByText }

// third returns the node behind the client's third name.
func (c Config) third(p int) int {
	if c.Use == 0 && !c.Lists {
		return 2
	}
	return 2 + p
}

func (c Config) asks(p, i int) bool { return i < 2 || i == c.third(p) || c.Longer && p == 1 }
func (c Config) reaches(cl *client, p, i int) bool {
	return c.asks(p, i) && (cl.cut == 0 || cl.cut != min(i, 2))
}

// talk has a node take a batch of a client, behind a join unless the client has the proof, and reports whether it
// gives a vote. The reply arrives if the node is reached.
func (c Config) talk(s *state, p, i int) (vote bool) {
	n, cl := &s.node[i], &s.client[p]
	answered := c.reaches(cl, p, i)
	if answered && i == c.third(p) {
		cl.heard = 0
	}
	if n.proof[p] > 0 {
		return true
	}
	length := c.TTL[p]
	if n.long > 0 || cl.long > 0 && !c.OwnTTL {
		length = c.longer()
	}
	conflict := c.Lists && !c.Longer && n.list[1-p] > 0 && !c.NotRefused
	n.born = max(n.born, 1)
	quarantined := n.born <= length
	taken := !conflict || n.list[p] > 0 || quarantined
	fresh, contested := c.Lists && n.list[p] == 0, uint8(0)
	if i < 2 && c.servers() && cl.cut != 2 && cl.heard < length {
		other := n.claimed < c.use() && int(n.server) != p
		if other && !c.NoFirst {
			contested = c.use() - n.claimed
		} else {
			fresh = fresh || other || n.claimed == c.use()
			n.server, n.claimed = uint8(p), cl.heard
		}
	}
	if taken {
		long := cl.long
		if c.TTL[p] > c.TTL[1-p] {
			long = 2 * c.longer()
		}
		if !c.NotRaised && (n.long == 0 || c.TTL[p] > c.TTL[1-p]) && !(c.OwnTTL && c.TTL[p] < c.TTL[1-p]) {
			fresh = fresh || long > 0 && n.long == 0
			n.long = long
		}
		if c.Lists {
			n.list[p] = 2 * length
		}
		if fresh && !c.NoProof || quarantined {
			n.proof = [2]uint8{}
		}
	}
	vote = taken && !conflict && !quarantined
	if !answered {
		return vote
	}
	good := max(c.TTL[p]/2, 1)
	if cl.joined[i] = good; vote && contested == 0 {
		n.proof[p] = good
	}
	if i < 2 {
		cl.contested[i] = contested
	}
	if cl.refused &^= 1 << i; conflict {
		cl.refused |= 1 << i
	}
	if c.TTL[p] < c.longer() && n.long > 0 {
		if cl.long == 0 && !c.Earlier && !c.OwnTTL {
			for i := range s.node { // they may have been given too early
				s.node[i].votes &^= 1 << p
				if !c.OldProof {
					s.node[i].proof[p] = 0
				}
			}
			vote = false
		}
		cl.long = max(cl.long, n.long)
	}
	return vote
}

func (c Config) next(s state, visit visit) {
	for p := range s.client {
		cl := &s.client[p]
		if cl.phase == idle && (cl.refused == 0 || c.OneRefuses) {
			s := s
			s.client[p].phase, s.client[p].left = asking, c.TTL[p]
			for i := range s.node {
				if c.asks(p, i) {
					s.node[i].sent |= 1 << p
				}
			}
			visit(s, search.Step{Format: "client %d asks all nodes", A: p})
		}
		c.complete(s, p, visit)
		for i := range s.node {
			if cl.phase != ended && cl.joined[i] == 0 && c.reaches(cl, p, i) {
				s := s
				c.talk(&s, p, i)
				visit(s, search.Step{Format: "client %d joins at node %d", A: p, B: i})
			}
			if s.node[i].sent>>p&1 == 1 {
				c.deliver(s, p, i, visit)
			}
		}
		for cut := range 3 {
			if cut != cl.cut && s.cuts < c.Cuts {
				c.cut(s, p, cut, visit)
			}
		}
	}
	for i := range s.node {
		if s.losses < c.Losses {
			s := s
			s.losses++
			n := node{claimed: c.use(), sent: s.node[i].sent, votes: s.node[i].votes}
			if c.NoProof {
				n.proof = s.node[i].proof
			}
			s.node[i] = n
			visit(s, search.Step{Format: "node %d LOSES ITS DATA", A: i, Fault: true})
		}
	}
	c.tick(s, visit)
}

// isVoid reports whether a client does not count a node, because others use another server.
func (c Config) isVoid(cl *client, p, i int) bool {
	return i == c.third(p) && cl.contested != [2]uint8{} && !c.Contested
}

func (c Config) deliver(s state, p, i int, visit visit) {
	n, cl := &s.node[i], &s.client[p]
	n.sent &^= 1 << p
	vote := c.talk(&s, p, i)
	by := search.Step{Format: "node %d refuses client %d", A: i, B: p}
	if n.key == [2]uint8{} {
		n.key[p] = c.TTL[p]
		by.Format = "node %d PLANTS for client %d"
		if vote && c.reaches(cl, p, i) && !c.isVoid(cl, p, i) {
			n.votes |= 1 << p
			by.Format = "node %d grants to client %d"
		}
	}
	visit(s, by)
}

// complete grants a lease for which a quorum has voted.
func (c Config) complete(s state, p int, visit visit) {
	cl, votes, asked := &s.client[p], 0, 0
	for i := range s.node {
		if !c.asks(p, i) {
			continue
		}
		if asked++; c.reaches(cl, p, i) && cl.joined[i] == 0 && !c.NoWait {
			return
		}
		if s.node[i].votes>>p&1 == 1 && !c.isVoid(cl, p, i) {
			votes++
		}
	}
	if cl.phase != asking || votes <= asked/2 || cl.refused > 0 && !c.OneRefuses {
		return
	}
	by := search.Step{Format: "client %d HOLDS for %d", A: p, B: int(cl.left)}
	if s.client[1-p].phase == holding {
		by.Breaks = TwoHolders
	}
	cl.phase = holding
	s.drop(p)
	visit(s, by)
}

func (s *state) drop(p int) {
	for i := range s.node {
		s.node[i].sent &^= 1 << p
		s.node[i].votes &^= 1 << p
	}
}

// cut changes the node from which a client is cut off. The nodes hear anew of a third server that is reached again.
func (c Config) cut(s state, p, cut int, visit visit) {
	cl := &s.client[p]
	s.cuts++
	if cl.cut == 2 {
		cl.joined = [4]uint8{}
		for i := range s.node {
			s.node[i].proof[p] = 0
		}
	}
	by := search.Step{Format: "client %d is cut off from node %d", A: p, B: cut, Fault: true}
	switch cl.cut = cut; cut {
	case 0:
		by.Format = "client %d reaches all nodes"
	case 1:
		cl.refused &^= 1 << 1
	case 2:
		cl.refused &= 3
		if by.B = c.third(p); !c.Gone {
			s.node[by.B].votes &^= 1 << p
		}
	}
	visit(s, by)
}

func less(ticks ...*uint8) {
	for _, n := range ticks {
		*n = max(*n, 1) - 1
	}
}

func (c Config) tick(s state, visit visit) {
	for p := range s.client {
		cl := &s.client[p]
		for i := range s.node {
			if n := &s.node[i]; n.sent>>p&1 == 1 && c.reaches(cl, p, i) {
				return
			} else {
				less(&n.key[p], &n.list[p], &n.proof[p], &cl.joined[i])
			}
		}
		less(&cl.contested[0], &cl.contested[1], &cl.long)
		if c.Heard {
			cl.heard = min(cl.heard+1, c.longer())
		}
		if cl.phase == idle || cl.phase == ended {
			continue
		}
		if cl.left--; cl.left == 0 {
			*cl = client{phase: ended, cut: cl.cut}
			s.drop(p)
		}
	}
	for i := range s.node {
		n := &s.node[i]
		less(&n.long)
		if n.claimed = min(n.claimed+1, c.use()); n.born > 0 {
			n.born = min(n.born+1, c.longer()+1)
		}
		if n.claimed == c.use() {
			n.server = 0
		}
	}
	visit(s, search.Step{Format: "time passes"})
}
