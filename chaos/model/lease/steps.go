package lease

import "github.com/d0720281/redlock/chaos/model/search"

// The steps that can happen in a state.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range c.Want {
		p := &s.attempt[a]
		if p.phase == idle && c.mayStart(&s, a) {
			c.send(s, a, acquire, "attempt %d asks all nodes", visit)
		}
		if p.phase.round() {
			c.complete(s, a, visit)
		}
		if p.phase == asking {
			c.send(s, a, release, "attempt %d gives up", visit)
		}
		if p.phase == holding && a < c.Extensions {
			c.send(s, a, extend, "attempt %d extends", visit)
		}
		if p.left > 0 && p.phase < lowering && a < c.Downgrades && c.Want[a] == Exclusive {
			c.send(s, a, lower, "attempt %d DOWNGRADES", visit)
		}
		if p.left > 0 {
			c.send(s, a, release, "attempt %d releases", visit)
		}
		for i := range c.Nodes {
			c.deliver(s, a, i, visit)
		}
	}
	for i := range c.Nodes {
		if c.Breaks {
			c.breakOne(s, i, visit)
		}
		c.fail(s, i, visit)
	}
	c.tick(s, visit)
}

// mayStart lets attempts that are alike start in the order of their numbers. That leaves out only
// states that differ by the numbers.
func (c Config) mayStart(s *state, a int) bool {
	switch {
	case a == 0:
		return true
	case c.ReuseID:
		return a > 1 || s.attempt[0].phase == ended
	}
	return s.attempt[a-1].phase != idle || c.Want[a] != c.Want[a-1] || c.TTL[a] != c.TTL[a-1] ||
		a == c.Extensions || a == c.Downgrades || a == 1 && c.FirstNeeds > 0
}

// send sends a message of an attempt to all nodes. The right to write ends before a
// downgrade is sent, and the lease before a release is.
func (c Config) send(s state, a int, m message, format string, visit visit) {
	p := &s.attempt[a]
	if p.phase, p.elapsed = begins[m], 0; p.phase == ended {
		*p = attempt{phase: ended}
	}
	s.take(a)
	for i := range c.Nodes {
		s.node[i].sent[m] |= 1 << a
	}
	visit(s, search.Step{Format: format, A: a})
}

// take takes the replies that an attempt has counted, and returns their number.
func (s *state) take(a int) (replies int) {
	for i := range s.node {
		replies += int(s.node[i].counted >> a & 1)
		s.node[i].counted &^= 1 << a
	}
	return replies
}

// complete ends a round in which enough nodes have answered in time.
func (c Config) complete(s state, a int, visit visit) {
	p := &s.attempt[a]
	ttl := c.ttl(a, p.phase)
	if s.take(a) < c.need(a) || p.elapsed >= ttl {
		return
	}
	by := search.Step{Format: "writer %d HOLDS for %d", A: a}
	if p.met {
		by.Breaks = NotAlone
	}
	if c.ValidityFromReply {
		p.elapsed = 0
	}
	*p = attempt{phase: p.phase + 1, left: max(p.left, ttl-p.elapsed)}
	by.B = int(p.left)
	form := c.form(&s, a)
	if form == Shared {
		by.Format = "reader %d HOLDS for %d"
	}
	for b := range c.Want {
		if q := &s.attempt[b]; b != a && q.phase.held() && (form == Exclusive || c.form(&s, b) == Exclusive) {
			q.met = true
			if q.left > 0 {
				by.Breaks = TwoHolders
			}
		}
	}
	visit(s, by)
}

// form returns the form of the lease that a holder believes in.
func (c Config) form(s *state, a int) Form {
	if p := s.attempt[a].phase; p == lowered || p == lowering && !c.LateDowngrade {
		return Shared
	}
	return c.Want[a]
}

var formats = [messages]struct{ lost, counted string }{
	acquire: {"node %d has the acquire of attempt %d, the reply is lost", "node %d grants to attempt %d"},
	extend:  {"node %d has the extension of attempt %d, the reply is lost", "node %d extends for attempt %d"},
	lower:   {"node %d has the downgrade of attempt %d, the reply is lost", "node %d downgrades for attempt %d"},
	release: {lost: "node %d has the release of attempt %d"},
}

// deliver moves a message of an attempt to a node. The reply is lost, or comes at once: a
// later reply is the same as a later arrival.
func (c Config) deliver(s state, a, i int, visit visit) {
	for m := range messages {
		if s.node[i].sent[m]>>a&1 == 0 {
			continue
		}
		s := s
		n := &s.node[i]
		n.sent[m] &^= 1 << a
		counts := c.carryOut(n, a, m)
		visit(s, search.Step{Format: formats[m].lost, A: i, B: a})
		if counts && s.attempt[a].phase == begins[m] {
			n.counted |= 1 << a
			visit(s, search.Step{Format: formats[m].counted, A: i, B: a})
		}
	}
}

// carryOut has a node carry out a message, and reports whether the reply counts.
func (c Config) carryOut(n *node, a int, m message) (counts bool) {
	id, form, ttl := c.id(a), c.Want[a], c.ttl(a, begins[m])
	if m == lower {
		form = Shared
	}
	hasVote := n.quarantine == 0 && !n.wrong
	switch has := n.form[id]; {
	case m == release:
		n.drop(id)
		for b := range c.Want {
			if c.ForeignDrop && n.form[b] == Broken {
				n.drop(b)
			}
		}
		return false
	case has == None:
		fills, beside := m != acquire, form
		if fills && c.FillOverReaders {
			beside = Shared
		}
		if fills && c.NoFill || c.conflict(n, id, beside) {
			return false
		}
		c.set(n, id, form, ttl)
		return hasVote || fills && c.CountQuarantined
	case has == Broken || has == Shared && form == Exclusive && !c.WriteAfterLower:
		return false
	case has == form && m == acquire:
		return false
	case has == Exclusive && m == lower && c.TwoStep:
		n.drop(id)
		n.sent[lower] |= 1 << a
		return false
	}
	c.set(n, id, form, ttl)
	return hasVote
}

// conflict reports whether the claims of others are in conflict with one of a form.
func (c Config) conflict(n *node, id int, form Form) bool {
	readers := 0
	for b := range c.Want {
		switch {
		case b == id || n.form[b] == None:
		case n.form[b] == Shared:
			readers++
		default:
			return true
		}
	}
	return form == Exclusive && readers > 0 && !(c.IgnoreOne && readers == 1)
}

// set makes a claim, or prolongs it.
func (c Config) set(n *node, id int, form Form, ttl uint8) {
	n.form[id] = form
	if ttl > n.life[id] || c.Shortens {
		n.life[id] = ttl
	}
	for b := range c.Want {
		if c.LastLife && form == Shared && n.form[b] == Shared {
			n.life[b] = ttl
		}
	}
}

func (n *node) drop(id int) { n.form[id], n.life[id] = None, 0 }

// breakOne visits the steps of Break at a node.
func (c Config) breakOne(s state, i int, visit visit) {
	for id := range c.Want {
		s := s
		n := &s.node[i]
		by := search.Step{Format: "node %d: the claim of attempt %d is BROKEN", A: i, B: id, Fault: true}
		switch {
		case n.form[id] == Exclusive && !c.BreakDeletes:
			n.form[id] = Broken
		case n.form[id] == Exclusive:
			n.drop(id)
		case n.form[id] == Broken && c.EarlyDrop:
			n.drop(id)
			by.Format = "node %d: the placeholder of attempt %d is DROPPED"
		default:
			continue
		}
		visit(s, by)
	}
}

func (c Config) fail(s state, i int, visit visit) {
	if int(s.restarts) < c.Restarts {
		s := s
		s.restarts++
		n := &s.node[i]
		*n = node{quarantine: uint8(c.Quarantine), wrong: c.WrongClocks, sent: n.sent, counted: n.counted}
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
	for id := range c.Want {
		if int(s.losses) < c.Losses && s.node[i].form[id] != None {
			s := s
			s.losses++
			s.node[i].drop(id)
			visit(s, search.Step{Format: "node %d LOSES THE CLAIM of attempt %d", A: i, B: id, Fault: true})
		}
	}
}

func (c Config) tick(s state, visit visit) {
	for i := range c.Nodes {
		n := &s.node[i]
		longest := uint8(0)
		for id := range c.Want {
			n.life[id] = max(n.life[id], 1) - 1
			if n.form[id] == Shared {
				longest = max(longest, n.life[id])
			}
		}
		for id := range c.Want {
			if n.life[id] == 0 && !(c.LongestLife && n.form[id] == Shared && longest > 0) {
				n.form[id] = None
			}
		}
		if n.quarantine > 0 && !n.wrong {
			n.quarantine--
		}
	}
	for a := range c.Want {
		p := &s.attempt[a]
		if p.phase.round() && p.elapsed < c.ttl(a, p.phase) {
			p.elapsed++
		}
		if p.left > 0 {
			p.left--
		}
		if p.phase.held() && p.left == 0 && !c.LateExtension {
			*p = attempt{phase: ended}
			s.take(a)
		}
	}
	visit(s, search.Step{Format: "time passes"})
}
