package permits

import "github.com/d0720281/redlock/chaos/model/search"

// This file has the steps of the model.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range c.Attempts {
		switch s.attempt[a].phase {
		case idle:
			c.start(s, a, visit)
		case choosing, asking:
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
	c.fail(s, visit)
	c.tick(s, visit)
}

func (c Config) start(s state, a int, visit visit) {
	if a > 0 && c.Attempts[a-1] == c.Attempts[a] && c.Extensions != a && s.attempt[a-1].phase == idle {
		return // in the order of their numbers, which says nothing about the rest
	}
	firsts := 1
	if c.Anywhere {
		firsts = c.Attempts[a].Of
	}
	for first := range firsts {
		for i := range c.Nodes {
			s := s
			s.attempt[a].phase, s.attempt[a].first = choosing, uint8(first)
			s.node[i].choose |= 1 << a
			if c.AnySlot {
				for i := range c.Nodes {
					s.node[i].choose |= 1 << a
				}
			}
			visit(s, search.Step{Format: "attempt %d asks node %d to choose, slot %d first", A: a, B: i, C: first})
		}
	}
}

func (c Config) acquired(s state, a int, visit visit) {
	want, p := c.Attempts[a], &s.attempt[a]
	slots := c.quorumOf(&s, func(n *node) uint8 { return n.vote[a] }) & p.slots
	if c.AnySlot {
		slots = 0
		voters := 0
		for i := range c.Nodes {
			if v := s.node[i].vote[a]; v != 0 {
				slots, voters = v, voters+1
			}
		}
		if voters < c.Quorum {
			return
		}
	}
	if size(slots) < want.Permits || int(p.elapsed) >= c.TTL {
		return
	}
	left := uint8(c.TTL) - p.elapsed
	*p = attempt{phase: holding, slots: slots, left: left, first: 0}
	for i := range c.Nodes {
		s.node[i].vote[a] = 0
	}
	c.valid(s, a, visit, search.Step{Format: "attempt %d HOLDS slots %d for %d", A: a, B: int(slots), C: int(left)})
}

// valid is a step after which an attempt is valid.
func (c Config) valid(s state, a int, visit visit, by search.Step) {
	permits, most, least := 0, 0, mostSlots
	for b := range c.Attempts {
		p := &s.attempt[b]
		if b != a {
			p.met |= s.attempt[a].slots
		}
		if p.left == 0 {
			continue
		}
		permits += size(p.slots)
		most, least = max(most, c.Attempts[b].Of), min(least, c.Attempts[b].Of)
		if b != a && p.slots&s.attempt[a].slots != 0 && !c.AnySlot {
			by.Breaks = SameSlot
		}
	}
	if permits > most || c.Smallest && permits > least {
		by.Breaks = TooMany
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
	case p.renewal == running && int(p.since) < c.TTL:
		if acks := c.quorumOf(&s, func(n *node) uint8 { return n.acks[a] }); acks&p.slots != p.slots {
			return
		}
		for i := range c.Nodes {
			s.node[i].acks[a] = 0
		}
		by := search.Step{Format: "attempt %d HOLDS on", A: a}
		if p.met&p.slots != 0 {
			by.Breaks = NotAlone
		}
		p.left = max(p.left, uint8(c.TTL)-p.since)
		p.renewal, p.since, p.met = done, 0, 0
		c.valid(s, a, visit, by)
	}
}

// end is the end of an attempt, and of a lease before its time: all nodes are told.
func (c Config) end(s state, a int, format string, visit visit) {
	s.attempt[a] = attempt{phase: ended, slots: s.attempt[a].slots} // for what is still on its way
	for i := range c.Nodes {
		n := &s.node[i]
		n.vote[a], n.acks[a] = 0, 0
		n.release |= 1 << a
	}
	visit(s, search.Step{Format: format, A: a})
}

// has is the slots of an attempt on a node.
func (n *node) has(a int) (slots uint8) {
	for i, o := range n.owner {
		if o == uint8(a+1) {
			slots |= 1 << i
		}
	}
	return slots
}

func (n *node) free() (slots uint8) {
	for i, o := range n.owner {
		if o == 0 {
			slots |= 1 << i
		}
	}
	return slots
}

func (c Config) set(n *node, a int, slots uint8) {
	for i := range mostSlots {
		if slots>>i&1 != 0 {
			n.owner[i], n.life[i] = uint8(a+1), uint8(c.TTL)
		}
	}
}

func (n *node) drop(slots uint8) {
	for i := range mostSlots {
		if slots>>i&1 != 0 {
			n.owner[i], n.life[i] = 0, 0
		}
	}
}

// deliver has what is on its way from an attempt arrive at a node. The reply is lost, or
// there at once: later is the same as a later arrival.
func (c Config) deliver(s state, a, i int, visit visit) {
	bit, want, p := uint8(1<<a), c.Attempts[a], s.attempt[a]
	if s.node[i].choose&bit != 0 {
		s := s
		n := &s.node[i]
		n.choose &^= bit
		slots := n.has(a)
		if slots == 0 {
			if slots = best(n.free(), p.first, want.Permits, want.Of); size(slots) < want.Permits {
				slots = 0
			}
			c.set(n, a, slots)
		}
		visit(s, search.Step{Format: "node %d chooses slots %d for attempt %d, the reply is lost", A: i, B: int(slots), C: a})
		if slots != 0 && p.phase == choosing {
			if n.quarantine == 0 {
				n.vote[a] = slots
			}
			if !c.AnySlot {
				s.attempt[a].phase, s.attempt[a].slots = asking, slots
				for k := range c.Nodes {
					if k != i {
						s.node[k].acquire |= bit
					}
				}
			}
			visit(s, search.Step{Format: "node %d chooses slots %d for attempt %d", A: i, B: int(slots), C: a})
		}
	}
	if s.node[i].acquire&bit != 0 {
		s := s
		n := &s.node[i]
		n.acquire &^= bit
		slots := (n.has(a) | n.free()) & p.slots
		c.set(n, a, slots&^n.has(a))
		visit(s, search.Step{Format: "node %d has the acquire of attempt %d (slots %d), the reply is lost", A: i, B: a, C: int(slots)})
		if slots != 0 && n.quarantine == 0 && p.phase == asking {
			n.vote[a] = slots
			visit(s, search.Step{Format: "node %d grants slots %d to attempt %d", A: i, B: int(slots), C: a})
		}
	}
	if s.node[i].extend&bit != 0 {
		s := s
		n := &s.node[i]
		n.extend &^= bit
		kept, filled := n.has(a)&p.slots, n.free()&p.slots
		c.set(n, a, kept|filled)
		acks := uint8(0)
		if n.quarantine == 0 {
			acks = kept | filled
		} else if c.CountQuarantined {
			acks = filled
		}
		visit(s, search.Step{Format: "node %d has the extension of attempt %d, the reply is lost", A: i, B: a})
		if acks != 0 && p.renewal == running {
			n.acks[a] = acks
			visit(s, search.Step{Format: "node %d extends for attempt %d", A: i, B: a})
		}
	}
	if s.node[i].release&bit != 0 {
		s := s
		n := &s.node[i]
		n.release &^= bit
		n.drop(n.has(a))
		visit(s, search.Step{Format: "node %d has the release of attempt %d", A: i, B: a})
	}
}

func (c Config) fail(s state, visit visit) {
	for i := range c.Nodes {
		if int(s.restarts) < c.Restarts {
			s := s
			s.restarts++
			n := &s.node[i]
			n.owner, n.life, n.quarantine = [mostSlots]uint8{}, [mostSlots]uint8{}, uint8(c.Quarantine)
			visit(s, search.Step{Format: "node %d RESTARTS EMPTY", A: i, Fault: true})
		}
	}
}

func (c Config) tick(s state, visit visit) {
	for i := range s.node {
		n := &s.node[i]
		for k := range n.life {
			if n.life[k] > 0 {
				if n.life[k]--; n.life[k] == 0 {
					n.owner[k] = 0
				}
			}
		}
		if n.quarantine > 0 {
			n.quarantine--
		}
	}
	for a := range c.Attempts {
		p := &s.attempt[a]
		if p.phase == asking && int(p.elapsed) < c.TTL {
			p.elapsed++
		}
		if p.renewal == running && int(p.since) < c.TTL {
			p.since++
		}
		if p.left > 0 {
			p.left--
		}
		if p.phase == holding && p.left == 0 && !c.LateExtension {
			*p = attempt{phase: ended, slots: p.slots}
			for i := range s.node {
				s.node[i].acks[a] = 0
			}
		}
	}
	visit(s, search.Step{Format: "time passes"})
}
