package queue

import "github.com/d0720281/redlock/chaos/model/search"

// This file is what a process does.

type visit = func(state, search.Step)

// local is what a process does by itself.
func (c Config) local(s state, i int, visit visit) {
	switch s.process[i].phase {
	case idle:
		if s.process[i].callers > 0 {
			s.process[i].settle()
			c.begin(s, i, false, false, search.Step{Format: "process %d: a caller comes, asks all", A: i}, visit)
		}
	case asking:
		c.without(s, i, visit)
		if c.TimeUp && !s.process[i].behind {
			s := s
			c.fail(&s, i)
			visit(s, search.Step{Format: "process %d: the time of the attempt is over", A: i, Fault: true})
		}
		if p := &s.process[i]; c.Elsewhere && p.link[gate].vote == granted && p.busy() >= quorum && p.room() {
			c.end(&s, i, away)
			p.phase, p.retry = waiting, c.Pauses
			visit(s, search.Step{Format: "process %d: a quorum stays busy, somebody may hold the lock elsewhere", A: i})
		}
	case waiting:
		p := &s.process[i]
		if c.Timers || c.stranger(i) {
			c.begin(s, i, false, false, search.Step{Format: "process %d: the timer, asks all", A: i}, visit)
		}
		switch {
		case p.woken:
			p.woken = false
			c.begin(s, i, true, false, search.Step{Format: "process %d answers the notification, asks all", A: i}, visit)
		case p.retry:
			c.begin(s, i, false, true, search.Step{Format: "process %d asks the gate again", A: i}, visit)
		}
	case holding:
		c.holder(s, i, visit)
	}
}

// begin starts an attempt: with all nodes, or with the gate alone. It does when there is
// room on the lanes, to keep them short.
func (c Config) begin(s state, i int, notified, behind bool, by search.Step, visit visit) {
	p := &s.process[i]
	for n := range p.link {
		if p.link[n].lane[1] != none {
			return
		}
	}
	p.phase, p.notified, p.behind, p.retry = asking, notified, behind, false
	p.clear()
	for n := range p.link {
		if n == gate || !behind {
			p.send(n, acquire)
		}
	}
	visit(s, by)
}

// date notes which releases of others are on their way when the gate grants. Refusals of
// before count no more.
func (s *state) date(p int) {
	for i := range s.process {
		for n := gate + 1; n < nodes && i != p; n++ {
			lane := &s.process[i].link[n].lane
			for j, m := range lane {
				if m.of() == release {
					lane[j] = m | (kind+1)<<p
				}
			}
		}
	}
	for n := range nodes {
		l := &s.process[p].link[n]
		l.fresh, l.busy = false, false
	}
}

// undate forgets it.
func (s *state) undate(p int) {
	for i := range s.process {
		for n := range nodes {
			lane := &s.process[i].link[n].lane
			for j := range lane {
				lane[j] &^= (kind + 1) << p
			}
		}
	}
}

// without is how an attempt succeeds, or fails, without a word of the gate.
func (c Config) without(s state, i int, visit visit) {
	p := &s.process[i]
	if p.link[gate].vote != open {
		return
	}
	votes := p.count(granted)
	switch {
	case c.Barging && !p.crowd && votes >= quorum:
		c.hold(s, i, search.Step{Format: "process %d HOLDS without the gate's reply", A: i}, visit)
	case !s.gateDead || c.GateOrNothing:
	case votes >= quorum:
		c.hold(s, i, search.Step{Format: "process %d HOLDS, the gate is dead", A: i}, visit)
	case p.behind:
		if p.room() {
			p.behind = false
			p.askOthers()
			visit(s, search.Step{Format: "process %d: the gate is dead, asks the others", A: i})
		}
	case p.room():
		c.fail(&s, i)
		visit(s, search.Step{Format: "process %d: no quorum, the gate is dead", A: i})
	}
}

// hold is a success.
func (c Config) hold(s state, i int, by search.Step, visit visit) {
	me := uint8(i + 1)
	p := &s.process[i]
	if first := s.seen[0]; c.InOrder && first != 0 && first != me {
		by.Breaks = Jumped
		if s.seen.has(me) {
			by.Breaks = Overtaken
		}
	}
	for j := range s.process {
		if j != i && s.process[j].phase == holding {
			by.Breaks = TwoHolders
		}
	}
	s.seen.leave(me)
	s.undate(i)
	p.settle()
	p.phase, p.used, p.notified = holding, 1, false
	for n := range p.link {
		p.link[n].fresh, p.link[n].busy = false, false
	}
	visit(s, by)
}

// holder extends, hands over inside the process, or releases.
func (c Config) holder(s state, i int, visit visit) {
	p := &s.process[i]
	if !p.room() {
		return
	}
	if c.Renewals && !p.extended {
		s := s
		p := &s.process[i]
		p.extended = true
		p.send(gate, extend)
		visit(s, search.Step{Format: "process %d extends", A: i})
	}
	p.callers--
	if p.callers > 0 && int(p.used) < c.Block {
		p.used++
		visit(s, search.Step{Format: "process %d hands over to its next caller", A: i})
		return
	}
	c.end(&s, i, release)
	p.phase = idle
	visit(s, search.Step{Format: "process %d releases", A: i})
}

// fail ends an attempt that found no quorum. The process is in no queue then.
func (c Config) fail(s *state, i int) {
	p := &s.process[i]
	c.end(s, i, undo)
	p.phase, p.retry = waiting, !c.NoRetry && !c.stranger(i)
}

// end gives back what an attempt or a lease has. All nodes that were asked are told.
func (c Config) end(s *state, i int, how message) {
	p := &s.process[i]
	for n := range p.link {
		l := &p.link[n]
		for j, m := range l.lane {
			if m == acquire {
				l.lane[j] = late
			}
		}
		m := how
		if n != gate && m != release {
			m = undo
		}
		if c.stranger(i) && c.OwnGateOnly {
			m = quiet
		}
		if n == gate || !p.behind {
			p.send(n, m)
		}
	}
	p.clear()
	p.notified, p.behind = false, false
	s.undate(i)
}

// hear takes the reply of a node.
func (c Config) hear(s state, i, node int, visit visit) {
	p := &s.process[i]
	l := &p.link[node]
	a := l.reply
	p.crowd = p.crowd || l.crowd
	l.busy = l.fresh
	l.reply, l.crowd, l.fresh = open, false, false
	by := search.Step{Format: "process %d hears of node %d: granted", A: i, B: node}
	if a == refused {
		by.Format = "process %d hears of node %d: refused"
	}
	if p.phase != asking {
		l.busy = false
		visit(s, by)
		return
	}
	l.vote = a
	hasGate := p.link[gate].vote == granted || c.stranger(i)
	switch {
	case p.count(granted) >= quorum && (hasGate || c.NoVeto && p.link[gate].vote == refused):
		by.Format, by.C = by.Format+", process %d HOLDS", i
		c.hold(s, i, by, visit)
		return
	case c.stranger(i):
		if p.count(refused) > nodes-quorum {
			c.fail(&s, i)
		}
	case node == gate && a == refused:
		c.end(&s, i, rest)
		p.phase = waiting
	case node == gate && p.behind:
		p.behind = false
		p.askOthers()
	case a == refused && (p.notified || !c.AskOnce):
		l.vote = open
		p.send(node, acquire)
	case p.count(refused) > nodes-quorum:
		c.fail(&s, i)
	}
	visit(s, by)
}

// notice takes a notification. Where nobody waits it is worth nothing: the process has
// left, or will when it releases.
func (c Config) notice(s state, i int, visit visit) {
	p := &s.process[i]
	p.notes--
	if p.phase == waiting || p.phase == asking && !c.Forget {
		p.woken = true
	}
	visit(s, search.Step{Format: "process %d is notified", A: i})
}

// giveUp is the end of a caller's context.
func (c Config) giveUp(s state, i int, visit visit) {
	p := &s.process[i]
	if p.phase != waiting && p.phase != asking || !p.room() {
		return
	}
	s.giveUps++
	if p.callers--; p.callers > 0 {
		visit(s, search.Step{Format: "process %d: a caller gives up, others wait", A: i, Fault: true})
		return
	}
	if p.phase == asking {
		c.end(&s, i, undo)
	} else {
		p.send(gate, undo)
	}
	s.seen.leave(uint8(i + 1))
	p.settle()
	p.phase = idle
	visit(s, search.Step{Format: "process %d: the last caller gives up", A: i, Fault: true})
}

func (p *process) send(node int, m message) {
	lane := &p.link[node].lane
	for i := range lane {
		if lane[i] == none {
			lane[i] = m
			return
		}
	}
	panic("queue: no room on a lane")
}

func (p *process) askOthers() {
	for n := gate + 1; n < nodes; n++ {
		p.send(n, acquire)
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

// busy is how many nodes a lease keeps busy.
func (p *process) busy() (n int) {
	for i := range p.link {
		if p.link[i].busy {
			n++
		}
	}
	return n
}

func (p *process) count(a answer) (n int) {
	for i := range p.link {
		if p.link[i].vote == a {
			n++
		}
	}
	return n
}

// clear forgets what nodes said to an attempt.
func (p *process) clear() {
	for n := range p.link {
		l := &p.link[n]
		l.reply, l.crowd, l.vote, l.fresh, l.busy = open, false, open, false, false
	}
}

// settle forgets a wait.
func (p *process) settle() {
	p.woken, p.retry, p.crowd, p.extended, p.used = false, false, false, false, 0
}
