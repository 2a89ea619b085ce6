package fencing

import (
	"slices"

	"github.com/d0720281/redlock/chaos/model/search"
)

// The steps that can happen in a state.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range c.Readers {
		switch s.attempt[a].phase {
		case idle:
			c.start(s, a, visit)
		case asking:
			c.decide(s, a, visit)
		case decided:
			if s.count(func(n *node) bool { return n.raise[a] == raised }) >= quorum {
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
		for a := range c.Readers {
			if s.node[i].has(a) {
				n := s
				n.vanish(c, i, a)
				visit(n, search.Step{Format: "node %d: the claim of attempt %d is gone", A: i, B: a})
			}
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
			if n := &s.node[i]; !n.unsure {
				n.quar = max(n.quar, 1) - 1
			}
		}
		visit(s, search.Step{Format: "time passes"})
	}
}

// count returns the number of nodes for which is returns true.
func (s *state) count(is func(*node) bool) (n int) {
	for i := range nodes {
		if is(&s.node[i]) {
			n++
		}
	}
	return n
}

// startsAt has the node take its counters up to now for earlier ones.
func (n *node) startsAt(now uint8) { n.from = uint8(max(0, int(now)+int(n.ahead)+MaxAhead)) }

// far reports whether a node's clock is so far off that its vote is refused.
func (c Config) far(n *node) bool { return !c.FarCounts && (n.ahead > MaxSkew || n.ahead < -MaxSkew) }

// has reports whether an attempt has its claim at a node.
func (n *node) has(a int) bool { return n.owner == uint8(a+1) || n.readers>>a&1 != 0 }

// empty reports whether a node has no claim.
func (n *node) empty() bool { return n.owner == 0 && n.readers == 0 }

// expire ends a counter that is not in use, restarts a node, or corrects or confirms its clock.
//
// Source: ALGORITHM section 4.
func (c Config) expire(s state, i int, visit visit) {
	n := &s.node[i]
	clock := int(s.time) + int(n.ahead)
	if n.counter > 0 && n.empty() && (c.ExpireEarly || clock >= int(n.counter)+c.Margin) {
		s := s
		s.node[i].counter = 0
		visit(s, search.Step{Format: "node %d: the counter expires", A: i})
	}
	if int(s.empty) < c.Restarts {
		s := s
		s.empty++
		s.clear(c, i, 0)
		s.node[i].quar = uint8(c.Quarantine)
		visit(s, search.Step{Format: "node %d RESTARTS EMPTY", A: i, Fault: true})
	}
	if n.counter > 0 && int(s.copied) < c.Copies {
		s := s
		n := &s.node[i]
		s.copied++
		s.clear(c, i, max(n.counter, uint8(c.Block))-uint8(c.Block))
		n.ahead, n.quar, n.unsure = int8(c.CopyAhead), uint8(c.Quarantine), true
		if c.UnsureStart {
			n.startsAt(s.time)
		}
		visit(s, search.Step{Format: "node %d RESTARTS with an earlier counter, %d", A: i, B: int(n.counter), Fault: true})
	}
	if n.unsure && !c.far(n) {
		s := s
		n := &s.node[i]
		n.unsure = false
		if !c.UnsureStart {
			n.startsAt(s.time)
		}
		visit(s, search.Step{Format: "node %d: the clock is confirmed", A: i})
	}
	if c.far(n) && int(s.right) < c.Corrections {
		s.right++
		s.node[i].ahead = 0
		visit(s, search.Step{Format: "node %d: the clock is CORRECTED", A: i, Fault: true})
	}
}

// start begins an attempt. Attempts of one kind begin in the order of their numbers. That leaves
// out only states that differ by the numbers.
func (c Config) start(s state, a int, visit visit) {
	if a > 0 && c.Readers[a] == c.Readers[a-1] && s.attempt[a-1].phase == idle {
		return
	}
	p := attempt{phase: asking}
	for b := range c.Readers {
		if q := &s.attempt[b]; q.phase == won {
			p.floor = max(p.floor, q.token)
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

// decide fixes the token of an attempt that has a quorum of votes.
func (c Config) decide(s state, a int, visit visit) {
	p := &s.attempt[a]
	least := uint8(255)
	votes := s.count(func(n *node) bool {
		if v := n.vote[a]; v > 0 {
			p.token, least = max(p.token, v), min(least, v)
		}
		return n.vote[a] > 0
	})
	if votes < quorum {
		return
	}
	agreed := c.NoRaise || s.count(func(n *node) bool { return n.vote[a] == p.token }) >= quorum
	if c.Readers[a] && c.Least {
		p.token, agreed = least, true
	}
	if agreed {
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

// win makes an attempt succeed: a reader's token, or the first of a writer's block, is in use.
func (c Config) win(s state, a int, visit visit) {
	p := &s.attempt[a]
	p.phase = won
	by := search.Step{Format: "writer %d HOLDS with %d to %d", A: a, B: p.first(c), C: int(p.token)}
	if c.Readers[a] {
		if c.FirstOfBlock {
			p.token = uint8(p.first(c))
		}
		by.Format, by.B = "reader %d HOLDS with %d", int(p.token)
		if p.token < p.floor {
			by.Breaks = ReaderFalls
		}
	} else {
		p.used, p.open = 1, 1
		if p.first(c) <= int(p.floor) {
			by.Breaks = TokenFalls
		}
	}
	p.valid = c.mixed() && s.count(func(n *node) bool { return n.vote[a] > 0 && n.lost>>a&1 == 0 }) >= quorum
	for b := range c.Readers {
		q := &s.attempt[b]
		switch reader, other := c.Readers[a], c.Readers[b]; {
		case b == a || q.phase != won || reader && other:
		case !reader && !other:
			if p.first(c) <= int(q.token) && q.first(c) <= int(p.token) {
				by.Breaks = SameToken
			}
		case !p.valid || !q.valid:
		case reader && p.token < q.token:
			by.Breaks = ReaderRefused // the writer was valid before
		case other && p.first(c) <= int(q.token):
			by.Breaks = ReaderPasses // the reader was
		}
	}
	p.floor = 0
	s.settle(c, a)
	visit(s, by)
}

// first returns the first token of a writer's block.
func (p *attempt) first(c Config) int { return int(p.token) - c.Block + 1 }

// last returns the last token of the block that is in use.
func (p *attempt) last(c Config) int { return p.first(c) + int(p.used) - 1 }

// over reports whether a lease that has been won is not handed over any more.
func (s *state) over(c Config, a int) bool {
	used := int(s.attempt[a].used) >= c.Block && !c.PastBlock
	gone := s.count(func(n *node) bool { return n.lost>>a&1 != 0 }) > 0 && !c.HandOverLate
	return c.Readers[a] || used || gone
}

// settle forgets what does not matter any more for an attempt that has won.
func (s *state) settle(c Config, a int) {
	over := s.over(c, a)
	for i := range nodes {
		n := &s.node[i]
		if over {
			n.lost &^= 1 << a
		}
		if n.raise[a] != raising {
			n.raise[a] = notRaised
			if over {
				n.vote[a] = 0
			}
		}
	}
	if p := &s.attempt[a]; over && !c.Readers[a] {
		p.used, p.open = max(uint8(c.Block), p.used), 0
	}
}

// handOver ends the hold of a lease, and gives the lease to the next caller with a new
// hold. That caller may have come just now: its token must be larger than all in use so
// far.
func (c Config) handOver(s state, a int, visit visit) {
	p := &s.attempt[a]
	if s.over(c, a) || int(p.used) > c.Block {
		return
	}
	if p.open == 1 && !c.KeepHold {
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
		by.Breaks = TwoHolds
	case token == before:
		by.Breaks = SameToken
	}
	for b := range c.Readers {
		switch q := &s.attempt[b]; {
		case b == a || q.phase != won:
		case c.Readers[b]:
			if q.valid && token <= int(q.token) {
				by.Breaks = ReaderPasses
			}
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
	vote := n.grant
	switch reader := c.Readers[a]; {
	case n.owner == uint8(a+1): // the first of two acquires was granted
	case n.owner != 0 || n.readers != 0 && !reader:
		visit(s, search.Step{Format: "node %d refuses attempt %d", A: i, B: a})
		return
	case reader: // also one that has its claim already
		n.readers |= 1 << a
		vote = c.counter(&s, i, 0)
		n.counter = max(n.counter, vote)
	default:
		vote = c.counter(&s, i, c.Block)
		n.owner, n.grant, n.counter = uint8(a+1), vote, max(n.counter, vote)
	}
	visit(s, search.Step{Format: "node %d grants %d to attempt %d, the reply is lost", A: i, B: int(vote), C: a})
	if s.attempt[a].phase == asking && vote > 0 && !c.far(n) {
		n.vote[a] = vote
		visit(s, search.Step{Format: "node %d grants %d to attempt %d", A: i, B: int(vote), C: a})
	}
}

// counter returns the counter that a node gives with a grant that reserves so many tokens, or 0.
//
// Source: ALGORITHM section 4.
func (c Config) counter(s *state, i, block int) uint8 {
	switch n := &s.node[i]; {
	case n.quar > 0:
		return 0
	case n.counter > 0 && n.counter >= n.from:
		return n.counter + uint8(block)
	case !c.far(n):
		return max(n.counter, s.time) + uint8(block)
	}
	return 0
}

// raise has a node raise its counter for an attempt. A reader has no grant of its own: its claim is
// enough.
func (c Config) raise(s state, a, i int, visit visit) {
	n, p := &s.node[i], &s.attempt[a]
	if n.raise[a] != raising {
		return
	}
	n.raise[a] = refused
	held := n.has(a) && (c.Readers[a] || c.RaiseByID || n.grant == n.vote[a]) || c.RaiseAnywhere
	if held {
		n.counter = max(n.counter, p.token)
	}
	if p.phase == won {
		s.settle(c, a)
	}
	if !held {
		visit(s, search.Step{Format: "node %d does not raise for attempt %d", A: i, B: a})
		return
	}
	visit(s, search.Step{Format: "node %d raises to %d for attempt %d, the reply is lost", A: i, B: int(p.token), C: a})
	if p.phase == decided {
		n.raise[a] = raised
		visit(s, search.Step{Format: "node %d raises to %d for attempt %d", A: i, B: int(p.token), C: a})
	}
}

// vanish ends a claim. A lease that counted it is over now at the latest.
func (s *state) vanish(c Config, i, a int) {
	n, p := &s.node[i], &s.attempt[a]
	if n.owner == uint8(a+1) {
		n.owner, n.grant = 0, 0
	}
	n.readers &^= 1 << a
	switch {
	case n.vote[a] == 0:
	case p.phase != won && (c.Block > 1 || c.mixed()):
		n.lost |= 1 << a
	case p.phase == won && !s.over(c, a):
		n.lost |= 1 << a
		s.settle(c, a)
	}
}

// clear takes everything that a node has, and gives it a counter.
func (s *state) clear(c Config, i int, counter uint8) {
	for a := range c.Readers {
		if s.node[i].has(a) {
			s.vanish(c, i, a)
		}
	}
	s.node[i].counter = counter
}

// wipe loses a counter. It starts anew from the clock, which is ahead of all earlier counters
// unless it is wrong.
//
// Source: ALGORITHM section 1, A4.
func (c Config) wipe(s state, i int, visit visit) {
	clock := uint8(slices.Min(c.Start[:]))
	if !c.ClockBehind {
		for j := range nodes {
			clock = max(clock, s.node[j].counter)
		}
	}
	if c.CountsOld {
		clock = max(s.node[i].counter, uint8(c.Block)) - uint8(c.Block)
	}
	if n := &s.node[i]; n.empty() && n.counter == clock {
		return
	}
	s.clear(c, i, clock)
	visit(s, search.Step{Format: "node %d loses its counter, and starts at %d", A: i, B: int(clock)})
}
