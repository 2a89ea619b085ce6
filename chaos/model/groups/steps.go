package groups

import "github.com/d0720281/redlock/chaos/model/search"

// The steps that can happen in a state.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range clients {
		switch p := s.client[a]; {
		case p.stopped:
		case c.NoSurvey:
			c.hold(s, a, visit, search.Step{Format: "client %d HOLDS without a survey", A: a})
		case p.surveying:
			c.verdict(s, a, visit)
		default:
			c.survey(s, a, visit)
		}
		for i := range c.Nodes {
			c.deliver(s, a, i, visit)
		}
	}
	if c.Stops && !s.client[0].stopped {
		c.stop(s, visit)
	}
	c.fail(s, visit)
	c.tick(s, visit)
}

func (c Config) survey(s state, a int, visit visit) {
	s.client[a].surveying = true
	for i := range c.Nodes {
		s.node[i].join[a] = sent
	}
	visit(s, search.Step{Format: "client %d begins a survey", A: a})
}

// verdict ends a survey, at any moment up to its longest duration.
func (c Config) verdict(s state, a int, visit visit) {
	p := &s.client[a]
	accepted, answers, conflicts := 0, 0, 0
	for _, n := range s.node[:c.Nodes] {
		switch n.join[a] {
		case taken, witness:
			accepted, answers = accepted+1, answers+1
		case refused:
			answers, conflicts = answers+1, conflicts+1
		}
	}
	need := c.Quorum
	if c.EnterByOne {
		need = 1
	}
	age := p.elapsed
	if c.CountsFromEnd {
		age = 0
	}
	c.endSurvey(&s, a)
	by := search.Step{Format: "client %d ends its survey, which does not pass", A: a}
	passes := accepted >= need
	if passes {
		by.Format = "client %d PASSES by %d of the nodes, and holds"
		by.B = accepted
	} else if c.SkipSilent && answers < c.Quorum && conflicts == 0 {
		passes = true
		by.Format = "client %d PASSES without the group, and holds"
	}
	if !passes || int(age) > c.Quarantine {
		visit(s, by)
		return
	}
	p.passed, p.age = true, age
	p.entered = p.entered || accepted >= need
	c.hold(s, a, visit, by)
}

// hold visits a step after which a client has a lease.
func (c Config) hold(s state, a int, visit visit, by search.Step) {
	c.lock(&s.client[a])
	if s.client[a].left > 0 && s.client[1-a].left > 0 {
		by.Breaks = TwoHolders
	}
	visit(s, by)
}

func (c Config) lock(p *client) {
	p.left = uint8(c.TTL)
}

func (c Config) endSurvey(s *state, a int) {
	s.client[a].surveying, s.client[a].elapsed = false, 0
	for i := range c.Nodes {
		n := &s.node[i]
		if n.join[a] == sent {
			n.late[a] = uint8(c.Late)
		}
		n.join[a] = none
	}
}

func (c Config) stop(s state, visit visit) {
	c.endSurvey(&s, 0)
	p := &s.client[0]
	*p = client{stopped: true, left: p.left}
	visit(s, search.Step{Format: "client 0 STOPS"})
}

// deliver moves a join of a client to a node. Its reply is lost, or is known from now on: the
// verdict looks at it when the survey ends.
func (c Config) deliver(s state, a, i int, visit visit) {
	if s.node[i].join[a] == sent {
		s := s
		n := &s.node[i]
		reply := c.take(n, a)
		n.join[a] = none
		visit(s, search.Step{Format: "node %d has the join of client %d, the reply is lost", A: i, B: a, Fault: true})
		switch {
		case reply == refused && !c.SkipSilent, reply == witness && !s.client[a].entered:
			// The same as a lost reply.
		default:
			n.join[a] = reply
			visit(s, search.Step{Format: formats[reply], A: i, B: a})
		}
	}
	if s.node[i].late[a] > 0 {
		s := s
		c.take(&s.node[i], a)
		visit(s, search.Step{Format: "node %d has a LATE join of client %d", A: i, B: a, Fault: true})
	}
}

var formats = [...]string{
	taken:   "node %d accepts client %d",
	witness: "node %d, which does not let clients enter, accepts client %d",
	refused: "node %d names a conflict to client %d",
}

// take carries out a join.
//
// Source: ALGORITHM section 8, "Membership"; internal/wire/lua/marker.lua.
func (c Config) take(n *node, a int) join {
	conflict := int(n.joined[1-a]) < c.InUse && !c.CompareNumbers
	if !conflict || int(n.joined[a]) < c.InUse || int(n.up) < c.Quarantine {
		n.joined[a] = 0
	}
	switch {
	case conflict:
		return refused
	case int(n.up) < c.Quarantine:
		return witness
	}
	return taken
}

func (c Config) fail(s state, visit visit) {
	if int(s.restarts) == c.Restarts {
		return
	}
	s.restarts++
	for i := range c.Nodes {
		s := s
		n := &s.node[i]
		for a := range n.joined {
			n.joined[a] = uint8(c.InUse)
		}
		n.up = 0
		visit(s, search.Step{Format: "node %d RESTARTS EMPTY", A: i, Fault: true})
	}
}

func (c Config) tick(s state, visit visit) {
	for i := range c.Nodes {
		n := &s.node[i]
		n.up = min(n.up+1, uint8(c.Quarantine))
		for a := range clients {
			if !c.StaysInUse {
				n.joined[a] = min(n.joined[a]+1, uint8(c.InUse))
			}
			if n.late[a] > 0 {
				n.late[a]--
			}
		}
	}
	for a := range clients {
		p := &s.client[a]
		if p.surveying {
			if int(p.elapsed) == c.Timeout {
				return // the survey ends first
			}
			p.elapsed++
		}
		if p.left > 0 {
			p.left--
		}
		if !p.passed {
			continue
		}
		if !c.CountsForever {
			p.age++
		}
		if int(p.age) <= c.Quarantine {
			c.lock(p)
			continue
		}
		c.lapse(&s, a)
	}
	visit(s, search.Step{Format: "time passes"})
}

// lapse ends the time for which a passed survey counts: the client has to enter anew.
func (c Config) lapse(s *state, a int) {
	p := &s.client[a]
	p.passed, p.age, p.entered = false, 0, false
	for i := range c.Nodes {
		if n := &s.node[i]; n.join[a] == witness {
			n.join[a] = none
		}
	}
}
