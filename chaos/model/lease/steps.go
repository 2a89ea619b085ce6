package lease

import "github.com/d0720281/redlock/chaos/model/search"

// The steps that can happen in a state.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range c.Attempts {
		switch s.attempt[a].phase {
		case idle:
			c.start(s, a, visit)
		case asking:
			c.acquired(s, a, visit)
			c.end(s, a, "attempt %d gives up", visit)
		case holding:
			c.renew(s, a, visit)
			if s.attempt[a].left > 0 || !c.LateExtension {
				c.end(s, a, "attempt %d releases", visit)
			}
		}
		for i := range c.Nodes {
			c.deliver(s, a, i, visit)
		}
	}
	if c.Breaks {
		c.breakOne(s, visit)
	}
	c.fail(s, visit)
	c.tick(s, visit)
}

func (c Config) start(s state, a int, visit visit) {
	switch { // in the order of their numbers, which loses no generality
	case a == 0:
	case c.ReuseID && a == 1 && s.attempt[0].phase != ended:
		return
	case !c.ReuseID && s.attempt[a-1].phase == idle:
		return
	}
	s.attempt[a].phase = asking
	from, to, _ := c.list(a)
	for i := from; i < to; i++ {
		s.node[i].acquire |= 1 << a
	}
	visit(s, search.Step{Format: "attempt %d asks all nodes", A: a})
}

func (c Config) acquired(s state, a int, visit visit) {
	_, _, need := c.list(a)
	if a == 0 && c.FirstNeeds > 0 {
		need = c.FirstNeeds
	}
	votes := 0
	for i := range s.node {
		votes += int(s.node[i].votes >> a & 1)
		s.node[i].votes &^= 1 << a
	}
	p := &s.attempt[a]
	if votes < need || int(p.elapsed) >= c.TTL {
		return
	}
	left := uint8(c.TTL) - p.elapsed
	if c.ValidityFromReply {
		left = uint8(c.TTL)
	}
	*p = attempt{phase: holding, left: left}
	c.valid(s, a, visit, search.Step{Format: "attempt %d HOLDS for %d", A: a, B: int(left)})
}

// valid visits a step after which an attempt is valid.
func (c Config) valid(s state, a int, visit visit, by search.Step) {
	for b := range c.Attempts {
		if b == a {
			continue
		}
		s.attempt[b].met |= 1 << a
		if s.attempt[b].left > 0 {
			by.Breaks = TwoHolders
		}
	}
	visit(s, by)
}

func (c Config) renew(s state, a int, visit visit) {
	p := &s.attempt[a]
	if p.left == 0 && !c.LateExtension {
		return
	}
	switch {
	case p.renewal == notYet && a < c.Extensions:
		p.renewal = running
		for i := range c.Nodes {
			s.node[i].extend |= 1 << a
		}
		visit(s, search.Step{Format: "attempt %d extends", A: a})
	case p.renewal == running && int(p.since) < c.extensionTTL():
		acks := 0
		for i := range s.node {
			acks += int(s.node[i].acks >> a & 1)
			s.node[i].acks &^= 1 << a
		}
		if acks < c.Quorum {
			return
		}
		by := search.Step{Format: "attempt %d HOLDS on", A: a}
		if p.met != 0 {
			by.Breaks = NotAlone
		}
		p.left = max(p.left, uint8(c.extensionTTL())-p.since)
		p.renewal, p.since = done, 0
		c.valid(s, a, visit, by)
	}
}

// end ends an attempt, or a lease early: all nodes are told.
func (c Config) end(s state, a int, format string, visit visit) {
	s.attempt[a] = attempt{phase: ended}
	from, to, _ := c.list(a)
	for i := from; i < to; i++ {
		s.node[i].votes &^= 1 << a
		s.node[i].acks &^= 1 << a
		s.node[i].release |= 1 << a
	}
	visit(s, search.Step{Format: format, A: a})
}

// deliver moves a request of an attempt to a node. The reply is lost, or comes at once: a
// later reply is the same as a later arrival.
func (c Config) deliver(s state, a, i int, visit visit) {
	mine, bit := c.id(a), uint8(1<<a)
	if s.node[i].acquire&bit != 0 {
		s := s
		n := &s.node[i]
		n.acquire &^= bit
		set := n.owner == 0
		if set {
			n.owner, n.ttl = mine, uint8(c.TTL)
		}
		visit(s, search.Step{Format: "node %d has the acquire of attempt %d, the reply is lost", A: i, B: a})
		if set && n.hasVote() && c.takes(n, a, i) && s.attempt[a].phase == asking {
			n.votes |= bit
			visit(s, search.Step{Format: "node %d grants to attempt %d", A: i, B: a})
		}
	}
	if s.node[i].extend&bit != 0 {
		s := s
		n := &s.node[i]
		n.extend &^= bit
		counts := false
		switch {
		case n.owner == mine:
			counts = n.hasVote()
			if life := uint8(c.extensionTTL()); life > n.ttl || c.Shortens {
				n.ttl = life
			}
		case n.owner == 0 && !c.NoFill:
			n.owner, n.ttl = mine, uint8(c.extensionTTL())
			counts = n.hasVote() || c.CountQuarantined
		}
		visit(s, search.Step{Format: "node %d has the extension of attempt %d, the reply is lost", A: i, B: a})
		if counts && s.attempt[a].renewal == running {
			n.acks |= bit
			visit(s, search.Step{Format: "node %d extends for attempt %d", A: i, B: a})
		}
	}
	if s.node[i].release&bit != 0 {
		s := s
		n := &s.node[i]
		n.release &^= bit
		if n.owner&^broken == mine || c.ForeignDrop && n.owner&broken != 0 {
			n.owner, n.ttl = 0, 0
		}
		visit(s, search.Step{Format: "node %d has the release of attempt %d", A: i, B: a})
	}
}

// breakOne visits the steps of Break at each node.
func (c Config) breakOne(s state, visit visit) {
	for i := range c.Nodes {
		s := s
		n := &s.node[i]
		switch {
		case n.owner == 0:
			continue
		case n.owner&broken != 0 && !c.EarlyDrop:
			continue
		case n.owner&broken != 0:
			n.owner, n.ttl = 0, 0
			visit(s, search.Step{Format: "node %d: the placeholder is DROPPED", A: i, Fault: true})
			continue
		case c.BreakDeletes:
			n.owner, n.ttl = 0, 0
		default:
			n.owner |= broken
		}
		visit(s, search.Step{Format: "node %d: the key is BROKEN", A: i, Fault: true})
	}
}

func (n *node) hasVote() bool { return n.quarantine == 0 && !n.wrong }

func (c Config) fail(s state, visit visit) {
	for i := range c.Nodes {
		if int(s.restarts) < c.Restarts {
			s := s
			s.restarts++
			s.node[i].owner, s.node[i].ttl, s.node[i].quarantine = 0, 0, uint8(c.Quarantine)
			s.node[i].wrong, s.node[i].forgot = c.WrongClocks, c.ForgetLists
			visit(s, search.Step{Format: "node %d RESTARTS EMPTY", A: i, Fault: true})
		}
		if s.node[i].wrong {
			s := s
			n := &s.node[i]
			n.wrong = false
			if c.CountWrongClock {
				n.quarantine = 0
			}
			visit(s, search.Step{Format: "node %d: the clock is CORRECTED", A: i, Fault: true})
		}
		if int(s.losses) < c.Losses && s.node[i].owner != 0 {
			s := s
			s.losses++
			s.node[i].owner, s.node[i].ttl = 0, 0
			visit(s, search.Step{Format: "node %d LOSES THE KEY", A: i, Fault: true})
		}
	}
}

func (c Config) tick(s state, visit visit) {
	for i := range s.node {
		n := &s.node[i]
		if n.ttl > 0 {
			if n.ttl--; n.ttl == 0 {
				n.owner = 0
			}
		}
		if n.quarantine > 0 && !n.wrong {
			n.quarantine--
		}
	}
	for a := range c.Attempts {
		p := &s.attempt[a]
		if p.phase == asking && int(p.elapsed) < c.TTL {
			p.elapsed++
		}
		if p.renewal == running && int(p.since) < c.extensionTTL() {
			p.since++
		}
		if p.left > 0 {
			p.left--
		}
		if p.phase == holding && p.left == 0 && !c.LateExtension {
			*p = attempt{phase: ended}
			for i := range s.node {
				s.node[i].acks &^= 1 << a
			}
		}
	}
	visit(s, search.Step{Format: "time passes"})
}
