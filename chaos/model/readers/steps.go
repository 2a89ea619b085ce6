package readers

import "github.com/d0720281/redlock/chaos/model/search"

// This file has what can happen.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for a := range c.Want {
		switch s.attempt[a].phase {
		case idle:
			c.start(s, a, visit)
		case asking:
			c.acquired(s, a, visit)
			c.end(s, a, "attempt %d gives up", visit)
		case holding:
			c.renew(s, a, visit)
			c.downgrade(s, a, visit)
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

// start begins an attempt. Attempts that want the same begin in the order of their numbers. That
// leaves out only states that differ by the numbers.
func (c Config) start(s state, a int, visit visit) {
	if a > 0 && c.Want[a-1] == c.Want[a] && c.TTL[a-1] == c.TTL[a] && c.Extensions != a && c.Downgrades != a && s.attempt[a-1].phase == idle {
		return
	}
	s.attempt[a].phase, s.attempt[a].form = asking, c.Want[a]
	for i := range c.Nodes {
		s.node[i].acquire |= 1 << a
	}
	visit(s, search.Step{Format: "attempt %d asks all nodes", A: a})
}

func (c Config) acquired(s state, a int, visit visit) {
	votes := 0
	for i := range s.node {
		votes += int(s.node[i].votes >> a & 1)
		s.node[i].votes &^= 1 << a
	}
	p := &s.attempt[a]
	if votes < c.Quorum || int(p.elapsed) >= c.TTL[a] {
		return
	}
	left := uint8(c.TTL[a]) - p.elapsed
	*p = attempt{phase: holding, form: c.Want[a], left: left}
	format := "attempt %d HOLDS for %d, exclusive"
	if p.form == Shared {
		format = "attempt %d HOLDS for %d, shared"
	}
	c.valid(s, a, visit, search.Step{Format: format, A: a, B: int(left)})
}

// valid is a step after which an attempt is valid.
func (c Config) valid(s state, a int, visit visit, by search.Step) {
	for b := range c.Want {
		p := &s.attempt[b]
		if b == a || s.attempt[a].form == Shared && p.form == Shared {
			continue
		}
		p.met |= 1 << a
		if p.left > 0 {
			by.Breaks = Together
		}
	}
	visit(s, by)
}

func (c Config) renew(s state, a int, visit visit) {
	p := &s.attempt[a]
	if p.left == 0 && !c.LateExtension {
		return
	}
	if p.renewal == notYet && p.lowered == notYet && a < c.Extensions {
		n := s
		n.attempt[a].renewal = running
		for i := range c.Nodes {
			n.node[i].extend |= 1 << a
		}
		visit(n, search.Step{Format: "attempt %d extends", A: a})
	}
	if p.renewal != running && p.lowered != running || int(p.since) >= c.TTL[a] {
		return
	}
	acks := 0
	for i := range s.node {
		acks += int(s.node[i].acks >> a & 1)
		s.node[i].acks &^= 1 << a
	}
	if acks < c.Quorum {
		return
	}
	by := search.Step{Format: "attempt %d HOLDS on", A: a}
	if p.lowered == running {
		p.lowered, p.form = done, Shared
	} else {
		p.renewal = done
	}
	if p.met != 0 {
		by.Breaks = NotAlone
	}
	p.left = max(p.left, uint8(c.TTL[a])-p.since)
	p.since = 0
	c.valid(s, a, visit, by)
}

// downgrade makes a writer a reader. The right to write ends before anything is sent.
func (c Config) downgrade(s state, a int, visit visit) {
	p := &s.attempt[a]
	if a >= c.Downgrades || p.form != Exclusive || p.left == 0 || p.lowered != notYet {
		return
	}
	p.lowered, p.since = running, 0
	if p.renewal == running {
		p.renewal = done
	}
	if !c.LateDowngrade {
		p.form, p.met = Shared, 0
		for b := range c.Want { // readers that came are no conflict from now on
			if s.attempt[b].form == Shared {
				s.attempt[b].met &^= 1 << a
			}
		}
	}
	for i := range c.Nodes {
		s.node[i].acks &^= 1 << a
		s.node[i].lower |= 1 << a
	}
	visit(s, search.Step{Format: "attempt %d DOWNGRADES", A: a})
}

// end is the end of an attempt, and of a lease before its time: all nodes are told.
func (c Config) end(s state, a int, format string, visit visit) {
	s.attempt[a] = attempt{phase: ended}
	for i := range c.Nodes {
		s.node[i].votes &^= 1 << a
		s.node[i].acks &^= 1 << a
		s.node[i].release |= 1 << a
	}
	visit(s, search.Step{Format: format, A: a})
}

// others reports whether another attempt has a claim that is in conflict with a form.
func (c Config) others(n *node, a int, f Form) bool {
	readers := 0
	for b := range c.Want {
		switch {
		case b == a || n.form[b] == None:
		case n.form[b] == Exclusive:
			return true
		default:
			readers++
		}
	}
	if c.IgnoreOne && readers == 1 {
		return false
	}
	return f == Exclusive && readers > 0
}

// set makes or prolongs a claim.
func (c Config) set(n *node, a int, f Form) {
	n.form[a] = f
	n.life[a] = max(n.life[a], uint8(c.TTL[a]))
	if c.LastLife && f == Shared {
		for b := range c.Want {
			if n.form[b] == Shared {
				n.life[b] = uint8(c.TTL[a])
			}
		}
	}
}

// deliver has the messages of an attempt arrive at a node. A reply is lost or arrives at once: a later
// reply is the same as a later arrival of the message.
func (c Config) deliver(s state, a, i int, visit visit) {
	bit := uint8(1 << a)
	now := s.attempt[a]
	if s.node[i].acquire&bit != 0 {
		s := s
		n := &s.node[i]
		n.acquire &^= bit
		set := n.form[a] == None && !c.others(n, a, c.Want[a])
		if set || n.form[a] == Shared && c.WriteAfterLower {
			c.set(n, a, c.Want[a])
		}
		visit(s, search.Step{Format: "node %d has the acquire of attempt %d, the reply is lost", A: i, B: a})
		if set && n.quarantine == 0 && now.phase == asking {
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
		case n.form[a] == c.Want[a], n.form[a] == Shared && c.WriteAfterLower:
			c.set(n, a, c.Want[a])
			counts = n.quarantine == 0
		case n.form[a] != None: // lowered meanwhile
		case !c.others(n, a, c.Want[a]) || c.FillOverReaders && !c.others(n, a, Shared):
			c.set(n, a, c.Want[a])
			counts = n.quarantine == 0 || c.CountQuarantined
		}
		visit(s, search.Step{Format: "node %d has the extension of attempt %d, the reply is lost", A: i, B: a})
		if counts && now.renewal == running {
			n.acks |= bit
			visit(s, search.Step{Format: "node %d extends for attempt %d", A: i, B: a})
		}
	}
	if s.node[i].lower&bit != 0 {
		s := s
		n := &s.node[i]
		n.lower &^= bit
		counts := false
		switch {
		case c.TwoStep && n.form[a] == Exclusive:
			n.form[a], n.life[a] = None, 0
			n.join |= bit
		case n.form[a] != None:
			c.set(n, a, Shared)
			counts = n.quarantine == 0
		case !c.others(n, a, Shared):
			c.set(n, a, Shared)
			counts = n.quarantine == 0 || c.CountQuarantined
		}
		visit(s, search.Step{Format: "node %d has the downgrade of attempt %d, the reply is lost", A: i, B: a})
		if counts && now.lowered == running {
			n.acks |= bit
			visit(s, search.Step{Format: "node %d downgrades for attempt %d", A: i, B: a})
		}
	}
	if s.node[i].join&bit != 0 {
		s := s
		n := &s.node[i]
		n.join &^= bit
		if n.form[a] == None && !c.others(n, a, Shared) {
			c.set(n, a, Shared)
		}
		visit(s, search.Step{Format: "node %d has attempt %d join the readers", A: i, B: a})
	}
	if s.node[i].release&bit != 0 {
		s := s
		n := &s.node[i]
		n.release &^= bit
		n.form[a], n.life[a] = None, 0
		visit(s, search.Step{Format: "node %d has the release of attempt %d", A: i, B: a})
	}
}

func (c Config) fail(s state, visit visit) {
	for i := range c.Nodes {
		if int(s.restarts) < c.Restarts {
			s := s
			s.restarts++
			n := &s.node[i]
			n.form, n.life, n.quarantine = [mostAttempts]Form{}, [mostAttempts]uint8{}, uint8(c.Quarantine)
			visit(s, search.Step{Format: "node %d RESTARTS EMPTY", A: i, Fault: true})
		}
		if int(s.losses) >= c.Losses {
			continue
		}
		for a := range c.Want {
			if s.node[i].form[a] == None {
				continue
			}
			s := s
			s.losses++
			s.node[i].form[a], s.node[i].life[a] = None, 0
			visit(s, search.Step{Format: "node %d LOSES THE CLAIM of attempt %d", A: i, B: a, Fault: true})
		}
	}
}

func (c Config) tick(s state, visit visit) {
	for i := range s.node {
		n := &s.node[i]
		longest := uint8(0)
		for a := range c.Want {
			if n.life[a] > 0 {
				n.life[a]--
			}
			if n.form[a] == Shared {
				longest = max(longest, n.life[a])
			}
		}
		for a := range c.Want {
			if n.life[a] == 0 && (!c.LongestLife || n.form[a] != Shared || longest == 0) {
				n.form[a] = None
			}
		}
		if n.quarantine > 0 {
			n.quarantine--
		}
	}
	for a := range c.Want {
		p := &s.attempt[a]
		if p.phase == asking && int(p.elapsed) < c.TTL[a] {
			p.elapsed++
		}
		if (p.renewal == running || p.lowered == running) && int(p.since) < c.TTL[a] {
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
