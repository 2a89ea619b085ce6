package several

import "github.com/d0720281/redlock/chaos/model/search"

// This file has what can happen.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for i := range c.Sets {
		p := &s.process[i]
		switch {
		case p.phase == idle && p.turns > 0:
			c.begin(s, i, search.Step{Format: "process %d asks for all that it wants", A: i}, visit)
		case p.phase == waiting:
			c.begin(s, i, search.Step{Format: "process %d asks again", A: i}, visit)
		case p.phase == asking:
			c.decide(s, i, visit)
		case p.phase == holding && p.room():
			n := s
			q := &n.process[i]
			q.phase, q.has = idle, 0
			q.turns--
			q.tell(free)
			visit(n, search.Step{Format: "process %d releases all", A: i})
		}
		for n := range nodes {
			c.deliver(s, i, n, visit)
		}
		if p.phase != dead && int(s.crashes) < c.Crashes {
			n := s
			n.crashes++
			n.process[i] = process{phase: dead}
			visit(n, search.Step{Format: "process %d dies", A: i, Fault: true})
		}
		for n := range nodes {
			if o := s; p.phase == dead && o.drop(i, n, 0) {
				visit(o, search.Step{Format: "node %d: the claims of process %d end", A: n, B: i})
			}
		}
	}
}

func (c Config) begin(s state, i int, by search.Step, visit visit) {
	p := &s.process[i]
	for n := range p.link {
		if p.link[n].lane[1] != none || p.link[n].replied {
			return
		}
	}
	p.phase = asking
	p.tell(acquire)
	visit(s, by)
}

// decide takes what a quorum gave, once it has answered. A node that has not answered yet has given
// nothing.
func (c Config) decide(s state, i int, visit visit) {
	p, need := &s.process[i], quorum
	if c.One {
		need = 1
	}
	heard := 0
	for n := range p.link {
		if p.link[n].heard {
			heard++
		}
	}
	if heard < need || heard < nodes && c.Patient || !p.room() {
		return
	}
	before := p.has
	for _, r := range c.order(i) {
		votes := 0
		for n := range p.link {
			if p.link[n].heard && p.link[n].vote>>r&1 != 0 {
				votes++
			}
		}
		if votes >= need {
			p.has |= 1 << r
		} else if p.has>>r&1 == 0 && !c.Some {
			break
		}
	}
	if c.AllOrNothing && p.has != c.all(i) {
		p.has = 0
	}
	by := search.Step{Format: "process %d has %d now, and waits", A: i, B: int(p.has)}
	for j := range c.Sets {
		if q := &s.process[j]; j != i && q.has&p.has != 0 {
			by.Breaks = TwoHolders
		}
	}
	if p.phase = waiting; p.has == c.all(i) {
		p.phase, by.Format = holding, "process %d HOLDS all (%d)"
	} else if heard < nodes && p.has == before {
		return // it can still hear more
	}
	for n := range p.link {
		l := &p.link[n]
		l.heard, l.vote, l.replied, l.reply = false, 0, false, 0
		for k, m := range l.lane {
			if m == acquire {
				l.lane[k] = late
			}
		}
	}
	if !c.NoTrim {
		p.tell(trim)
	}
	visit(s, by)
}

func (p *process) tell(m message) {
	for n := range p.link {
		lane := &p.link[n].lane
		for k := range lane {
			if lane[k] == none {
				lane[k] = m
				break
			}
		}
	}
}

// room reports whether one more message fits on every lane.
func (p *process) room() bool {
	for n := range p.link {
		if p.link[n].lane[depth-1] != none {
			return false
		}
	}
	return true
}

// drop takes what a process has on a node away, but for some resources.
func (s *state) drop(p, node int, but uint8) (had bool) {
	for r, o := range s.owner[node] {
		if o == uint8(p+1) && but>>r&1 == 0 {
			s.owner[node][r], had = 0, true
		}
	}
	return had
}

// deliver moves a message to a node, or its reply back.
func (c Config) deliver(s state, i, node int, visit visit) {
	p := &s.process[i]
	l := &p.link[node]
	if l.replied {
		s := s
		l := &s.process[i].link[node]
		l.heard, l.vote, l.replied, l.reply = true, l.reply, false, 0
		visit(s, search.Step{Format: "process %d hears of node %d", A: i, B: node})
	}
	m := l.lane[0]
	if m == none || m == acquire && l.replied {
		return
	}
	copy(l.lane[:], l.lane[1:])
	l.lane[depth-1] = none
	by := search.Step{Format: "node %d has an acquire of process %d", A: node, B: i}
	switch m {
	case acquire, late:
		got := uint8(0)
		for _, r := range c.order(i) {
			o := &s.owner[node][r]
			if *o != 0 && *o != uint8(i+1) {
				if p.has>>r&1 != 0 || c.Some || c.GoesOn {
					continue // a quorum of the other nodes has it
				}
				break
			}
			*o = uint8(i + 1)
			got |= 1 << r
		}
		if m == acquire {
			l.replied, l.reply = true, got
		} else {
			by.Format = "node %d has a late acquire of process %d"
		}
	case trim:
		s.drop(i, node, p.has)
		by.Format = "node %d gives back what process %d does not hold"
	case free:
		s.drop(i, node, 0)
		by.Format = "node %d gives back what process %d had"
	}
	visit(s, by)
}
