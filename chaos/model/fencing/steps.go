package fencing

import "github.com/d0720281/redlock/chaos/model/search"

// The steps that can happen in a state.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range c.Attempts {
		switch s.attempt[a].phase {
		case idle:
			start(s, a, visit)
		case asking:
			c.decide(s, a, visit)
		case decided:
			if s.acks(a) >= quorum {
				c.win(s, a, visit)
			}
		case won:
			c.handOver(s, a, visit)
		}
		for i := range nodes {
			c.acquire(s, a, i, visit)
			c.raise(s, a, i, visit)
		}
	}
	for i := range nodes {
		if s.node[i].owner != 0 {
			n := s
			n.vanish(i)
			visit(n, search.Step{Format: "node %d: the key is gone", A: i})
		}
		if c.Wipe && s.node[i].counter > 0 {
			c.wipe(s, i, visit)
		}
		if c.Expiry {
			c.expire(s, i, visit)
		}
	}
	if c.Expiry && int(s.time) < c.Ticks {
		s.time++
		for i := range nodes {
			s.node[i].quar = max(s.node[i].quar, 1) - 1
		}
		visit(s, search.Step{Format: "time passes"})
	}
}

// far reports whether a node's clock is so far off that its vote is refused.
func (n *node) far() bool { return n.ahead > MaxSkew || n.ahead < -MaxSkew }

// expire ends a counter that is not in use, or corrects a clock.
//
// Source: ALGORITHM section 4.
func (c Config) expire(s state, i int, visit visit) {
	n := &s.node[i]
	clock := int(s.time) + int(n.ahead)
	if n.counter > 0 && n.owner == 0 && (c.ExpireEarly || clock >= int(n.counter)+c.Margin) {
		s := s
		s.node[i].counter = 0
		visit(s, search.Step{Format: "node %d: the counter expires", A: i})
	}
	if int(s.empty) < c.Restarts {
		s := s
		s.empty++
		if s.node[i].owner != 0 {
			s.vanish(i)
		}
		s.node[i].counter, s.node[i].quar = 0, uint8(c.Quarantine)
		visit(s, search.Step{Format: "node %d RESTARTS EMPTY", A: i, Fault: true})
	}
	if n.far() && int(s.right) < c.Corrections {
		s.right++
		s.node[i].ahead = 0
		visit(s, search.Step{Format: "node %d: the clock is CORRECTED", A: i, Fault: true})
	}
}

// count returns the counter that a node gives with a grant, 0 for none.
//
// Source: ALGORITHM section 4.
func (c Config) count(s *state, i int) uint8 {
	switch n := &s.node[i]; {
	case n.quar > 0:
		return 0
	case !c.Expiry || n.counter > 0:
		return n.counter + uint8(c.Block)
	case !n.far():
		return s.time + uint8(c.Block)
	}
	return 0
}

func start(s state, a int, visit visit) {
	if a > 0 && s.attempt[a-1].phase == idle {
		return // in the order of their numbers, which loses no generality
	}
	s.attempt[a] = attempt{phase: asking, floor: s.largest()}
	for i := range nodes {
		s.node[i].acquire[a] = sent
	}
	visit(s, search.Step{Format: "attempt %d asks all nodes", A: a})
}

// largest returns the largest block end of all attempts that have succeeded.
func (s *state) largest() (t uint8) {
	for i := range s.attempt {
		if p := &s.attempt[i]; p.phase == won {
			t = max(t, p.token)
		}
	}
	return t
}

func (c Config) decide(s state, a int, visit visit) {
	votes, same := 0, 0
	p := &s.attempt[a]
	for i := range nodes {
		if v := s.node[i].vote[a]; v > 0 {
			votes, p.token = votes+1, max(p.token, v)
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
	if same >= quorum || c.NoRaise {
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

// win makes an attempt succeed: the first token of the block is in use.
func (c Config) win(s state, a int, visit visit) {
	p := &s.attempt[a]
	p.phase, p.used, p.open = won, 1, 1
	by := search.Step{Format: "attempt %d HOLDS with %d to %d", A: a, B: p.first(c), C: int(p.token)}
	if p.first(c) <= int(p.floor) {
		by.Breaks = TokenFalls
	}
	for b := range c.Attempts {
		if q := &s.attempt[b]; b != a && q.phase == won && p.first(c) <= int(q.token) && q.first(c) <= int(p.token) {
			by.Breaks = SameToken
		}
	}
	p.floor = 0
	s.settle(c, a)
	visit(s, by)
}

func (p *attempt) first(c Config) int { return int(p.token) - c.Block + 1 }

// last returns the last token of the block that is in use.
func (p *attempt) last(c Config) int { return p.first(c) + int(p.used) - 1 }

// settle forgets what does not matter any more for an attempt that has won.
func (s *state) settle(c Config, a int) {
	p := &s.attempt[a]
	done := p.stale && !c.HandOverLate || int(p.used) >= c.Block && !c.PastBlock
	for i := range nodes {
		n := &s.node[i]
		if n.raise[a] != raising {
			n.raise[a] = notRaised
		}
		if (done || c.HandOverLate) && n.raise[a] != raising {
			n.vote[a] = 0
		}
	}
	if done || c.HandOverLate {
		p.stale = false
	}
	if done {
		p.used, p.open = uint8(max(c.Block, int(p.used))), 0
	}
}

// handOver ends the handle of a lease, and gives the lease to the next caller with a new
// handle. That caller may have come just now: its token must be larger than all in use so
// far.
func (c Config) handOver(s state, a int, visit visit) {
	p := &s.attempt[a]
	left := c.Block - int(p.used)
	if c.PastBlock {
		left++
	}
	if c.Block == 1 || left <= 0 || p.stale && !c.HandOverLate {
		return
	}
	if p.open == 1 && !c.KeepHandle {
		p.open = 0
		visit(s, search.Step{Format: "attempt %d: the caller has done", A: a})
		return
	}
	before := p.last(c)
	if !c.KeepToken {
		p.used++
	}
	p.open++
	token := p.last(c)
	by := search.Step{Format: "attempt %d is handed over, HOLDS with %d", A: a, B: token}
	switch {
	case p.open > 1:
		by.Breaks = TwoHandles
	case token == before:
		by.Breaks = SameToken
	}
	for b := range c.Attempts {
		q := &s.attempt[b]
		switch {
		case b == a || q.phase != won:
		case token >= q.first(c) && token <= q.last(c):
			by.Breaks = SameToken
		case token < q.last(c):
			by.Breaks = TokenFalls
		}
	}
	s.settle(c, a)
	visit(s, by)
}

func (c Config) acquire(s state, a, i int, visit visit) {
	n := &s.node[i]
	if n.acquire[a] < sent {
		return
	}
	if n.acquire[a] == sent && int(s.twice) < c.Twice {
		again := s
		again.twice++
		again.node[i].acquire[a] = sentTwice
		visit(again, search.Step{Format: "attempt %d asks node %d a second time", A: a, B: i})
	}
	n.acquire[a]--
	switch n.owner {
	case 0:
		n.owner, n.grant = uint8(a+1), c.count(&s, i)
		n.counter = max(n.counter, n.grant)
	case uint8(a + 1): // the first of two acquires was granted
	default:
		visit(s, search.Step{Format: "node %d refuses attempt %d", A: i, B: a})
		return
	}
	visit(s, search.Step{Format: "node %d grants %d to attempt %d, the reply is lost", A: i, B: int(n.grant), C: a})
	if s.attempt[a].phase == asking && n.grant > 0 && !n.far() {
		n.vote[a] = n.grant
		visit(s, search.Step{Format: "node %d grants %d to attempt %d", A: i, B: int(n.grant), C: a})
	}
}

func (c Config) raise(s state, a, i int, visit visit) {
	n := &s.node[i]
	if n.raise[a] != raising {
		return
	}
	p := &s.attempt[a]
	held := n.owner == uint8(a+1) && (c.RaiseByID || n.grant == n.vote[a])
	if !held && !c.RaiseAnywhere {
		n.raise[a] = refused
		s.after(c, a)
		visit(s, search.Step{Format: "node %d does not raise for attempt %d", A: i, B: a})
		return
	}
	n.counter = max(n.counter, p.token)
	lost := s
	lost.node[i].raise[a] = refused
	lost.after(c, a)
	visit(lost, search.Step{Format: "node %d raises to %d for attempt %d, the reply is lost", A: i, B: int(p.token), C: a})
	if p.phase == decided {
		n.raise[a] = raised
		visit(s, search.Step{Format: "node %d raises to %d for attempt %d", A: i, B: int(p.token), C: a})
	}
}

func (s *state) after(c Config, a int) {
	if s.attempt[a].phase == won {
		s.settle(c, a)
	}
}

// vanish ends a key. The attempt that counted it is over now at the latest.
func (s *state) vanish(i int) {
	n := &s.node[i]
	a := n.owner - 1
	if n.vote[a] == n.grant && s.attempt[a].phase != idle {
		s.attempt[a].stale = true
	}
	n.owner, n.grant = 0, 0
}

// wipe loses a counter. It starts anew from the clock, which is ahead of all earlier counters
// unless it is wrong.
//
// Source: ALGORITHM section 1, A4.
func (c Config) wipe(s state, i int, visit visit) {
	clock := uint8(0)
	if !c.ClockBehind {
		for j := range nodes {
			clock = max(clock, s.node[j].counter)
		}
	}
	if s.node[i].owner != 0 {
		s.vanish(i)
	} else if s.node[i].counter == clock {
		return
	}
	s.node[i].counter = clock
	visit(s, search.Step{Format: "node %d loses its counter, and starts at %d", A: i, B: int(clock)})
}
