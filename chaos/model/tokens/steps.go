package tokens

import "github.com/d0720281/redlock/chaos/model/search"

// This file has what can happen.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range c.Readers {
		switch s.attempt[a].phase {
		case idle:
			c.start(s, a, visit)
		case asking:
			c.decide(s, a, visit)
		case decided:
			if s.acks(a) >= quorum {
				c.win(s, a, visit)
			}
		}
		for i := range nodes {
			c.acquire(s, a, i, visit)
			c.raise(s, a, i, visit)
		}
	}
	for i := range nodes {
		if s.node[i].owner != 0 {
			n := s
			n.vanish(i, int(n.node[i].owner-1))
			visit(n, search.Step{Format: "node %d: the writer's key is gone", A: i})
		}
		for a := range c.Readers {
			if s.node[i].readers>>a&1 != 0 {
				n := s
				n.vanish(i, a)
				visit(n, search.Step{Format: "node %d: the claim of reader %d is gone", A: i, B: a})
			}
		}
		if c.Wipe && s.node[i].counter > 0 {
			c.wipe(s, i, visit)
		}
	}
}

func (c Config) start(s state, a int, visit visit) {
	if a > 0 && c.Readers[a-1] == c.Readers[a] && s.attempt[a-1].phase == idle {
		return // attempts of one kind begin in the order of their numbers
	}
	p := attempt{phase: asking}
	for b := range c.Readers {
		if q := &s.attempt[b]; q.phase == won {
			p.least, p.above = max(p.least, q.token), max(p.above, q.token)
		}
	}
	s.attempt[a] = p
	for i := range nodes {
		s.node[i].acquire[a] = 1
	}
	format := "writer %d asks all nodes"
	if c.Readers[a] {
		format = "reader %d asks all nodes"
	}
	visit(s, search.Step{Format: format, A: a})
}

func (c Config) decide(s state, a int, visit visit) {
	votes, same, least := 0, 0, uint8(255)
	p := &s.attempt[a]
	for i := range nodes {
		if v := s.node[i].vote[a]; v > 0 {
			votes, p.token, least = votes+1, max(p.token, v), min(least, v)
		}
	}
	if votes < quorum {
		return
	}
	for i := range nodes {
		if s.node[i].vote[a] == p.token {
			same++
		}
	}
	reader := c.Readers[a]
	if reader && c.Least {
		p.token = least
	}
	if same >= quorum || reader && (c.NoRaise || c.Least) {
		c.win(s, a, visit)
		return
	}
	p.phase = decided
	for i := range nodes {
		switch n := &s.node[i]; n.vote[a] {
		case 0:
		case p.token:
			n.raise[a] = raised
		default:
			n.raise[a] = raising
		}
	}
	visit(s, search.Step{Format: "attempt %d decides for %d, and raises", A: a, B: int(p.token)})
}

func (s *state) acks(a int) (n int) {
	for i := range nodes {
		if s.node[i].raise[a] == raised {
			n++
		}
	}
	return n
}

// vanish ends a claim.
func (s *state) vanish(i, a int) {
	n := &s.node[i]
	if n.owner == uint8(a+1) {
		n.owner, n.grant = 0, 0
	}
	n.readers &^= 1 << a
	if n.vote[a] > 0 && s.attempt[a].phase != won {
		n.lost |= 1 << a
	}
}

// claims returns how many nodes have had the claim of an attempt since they voted.
func (s *state) claims(a int) (n int) {
	for i := range nodes {
		if s.node[i].vote[a] > 0 && s.node[i].lost>>a&1 == 0 {
			n++
		}
	}
	return n
}

// win notes that an attempt has succeeded.
func (c Config) win(s state, a int, visit visit) {
	p := &s.attempt[a]
	p.phase, p.valid = won, s.claims(a) >= quorum
	if c.Readers[a] && c.FirstOfBlock {
		p.token -= uint8(c.Block - 1)
	}
	by := search.Step{Format: "writer %d HOLDS with a block to %d", A: a, B: int(p.token)}
	first := int(p.token) - c.Block + 1
	if c.Readers[a] {
		by.Format = "reader %d HOLDS with %d"
		if p.token < p.least {
			by.Breaks = ReaderFalls
		}
	} else if first <= int(p.above) {
		by.Breaks = TokenFalls
	}
	for b := range c.Readers {
		q := &s.attempt[b]
		if b == a || q.phase != won {
			continue
		}
		switch {
		case !c.Readers[a] && !c.Readers[b]:
			if first <= int(q.token) && int(q.token)-c.Block+1 <= int(p.token) {
				by.Breaks = SameToken
			}
		case !p.valid || !q.valid:
		case c.Readers[a] && !c.Readers[b] && p.token < q.token:
			by.Breaks = ReaderRefused // the writer was valid before
		case !c.Readers[a] && c.Readers[b] && first <= int(q.token):
			by.Breaks = ReaderPasses // the reader was
		}
	}
	p.least, p.above = 0, 0
	for i := range nodes { // what does not matter any more
		n := &s.node[i]
		if n.lost &^= 1 << a; n.raise[a] != raising {
			n.vote[a], n.raise[a] = 0, notRaised
		}
	}
	visit(s, by)
}

func (c Config) acquire(s state, a, i int, visit visit) {
	n := &s.node[i]
	if n.acquire[a] == 0 {
		return
	}
	if n.acquire[a] == 1 && int(s.twice) < c.Twice {
		again := s
		again.twice++
		again.node[i].acquire[a] = 2
		visit(again, search.Step{Format: "attempt %d asks node %d a second time", A: a, B: i})
	}
	n.acquire[a]--
	vote := uint8(0)
	switch {
	case c.Readers[a]:
		if n.owner != 0 {
			visit(s, search.Step{Format: "node %d refuses reader %d", A: i, B: a})
			return
		}
		n.readers |= 1 << a
		vote = n.counter // also for a reader that has its claim already
	case n.owner == uint8(a+1): // the first of two was granted
		vote = n.grant
	case n.owner != 0 || n.readers != 0:
		visit(s, search.Step{Format: "node %d refuses writer %d", A: i, B: a})
		return
	default:
		n.counter += uint8(c.Block)
		n.owner, n.grant = uint8(a+1), n.counter
		vote = n.counter
	}
	visit(s, search.Step{Format: "node %d grants %d to attempt %d, the reply is lost", A: i, B: int(vote), C: a})
	if s.attempt[a].phase == asking {
		n.vote[a] = vote
		visit(s, search.Step{Format: "node %d grants %d to attempt %d", A: i, B: int(vote), C: a})
	}
}

func (c Config) raise(s state, a, i int, visit visit) {
	n := &s.node[i]
	if n.raise[a] != raising {
		return
	}
	p := &s.attempt[a]
	held := n.owner == uint8(a+1) && n.grant == n.vote[a]
	if c.Readers[a] {
		held = n.readers>>a&1 != 0 || c.RaiseAnywhere // by id alone: a reader has no grant of its own
	}
	n.raise[a] = refused
	if p.phase == won {
		n.vote[a], n.raise[a] = 0, notRaised
	}
	if !held {
		visit(s, search.Step{Format: "node %d does not raise for attempt %d", A: i, B: a})
		return
	}
	n.counter = max(n.counter, p.token)
	visit(s, search.Step{Format: "node %d raises to %d for attempt %d, the reply is lost", A: i, B: int(p.token), C: a})
	if p.phase == decided {
		n.raise[a] = raised
		visit(s, search.Step{Format: "node %d raises to %d for attempt %d", A: i, B: int(p.token), C: a})
	}
}

// wipe loses a counter. It starts anew from the clock, which is ahead of all counters of before,
// unless it is wrong.
//
// Source: ALGORITHM section 1, A4.
func (c Config) wipe(s state, i int, visit visit) {
	clock := uint8(1)
	if !c.ClockBehind {
		for j := range nodes {
			clock = max(clock, s.node[j].counter)
		}
	}
	n := &s.node[i]
	if n.owner == 0 && n.readers == 0 && n.counter == clock {
		return
	}
	for a := range c.Readers {
		if n.owner == uint8(a+1) || n.readers>>a&1 != 0 {
			s.vanish(i, a)
		}
	}
	n.counter = clock
	visit(s, search.Step{Format: "node %d loses what it has, and counts from %d", A: i, B: int(clock)})
}
