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
			s.begin(i, false, false, search.Step{Format: "process %d: a caller comes, asks all", A: i}, visit)
		}
	case asking:
		c.without(s, i, visit)
		if c.TimeUp && !s.process[i].behind {
			c.fail(&s, i)
			visit(s, search.Step{Format: "process %d: the time of the attempt is over", A: i, Fault: true})
		}
	case waiting:
		p := &s.process[i]
		if c.Timers || c.stranger(i) {
			s.begin(i, false, false, search.Step{Format: "process %d: the timer, asks all", A: i}, visit)
		}
		switch {
		case p.woken:
			p.woken = false
			s.begin(i, true, false, search.Step{Format: "process %d answers the notification, asks all", A: i}, visit)
		case p.retry:
			s.begin(i, false, true, search.Step{Format: "process %d asks the gate again", A: i}, visit)
		}
	case holding:
		c.holder(s, i, visit)
	}
}

// begin starts an attempt: with all nodes, or with the gate alone. It does when there is
// room on the lanes, to keep them short.
func (s state) begin(i int, notified, behind bool, by search.Step, visit visit) {
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
	p.settle()
	p.phase, p.used, p.notified = holding, 1, false
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
	c.end(p, i, release)
	p.phase = idle
	visit(s, search.Step{Format: "process %d releases", A: i})
}

// fail ends an attempt that the gate did not refuse. The process is in no queue then.
func (c Config) fail(s *state, i int) {
	p := &s.process[i]
	c.end(p, i, release)
	p.phase, p.retry = waiting, !c.NoRetry && !c.stranger(i)
}

// end gives back what an attempt or a lease has. All nodes that were asked are told.
func (c Config) end(p *process, i int, how message) {
	for n := range p.link {
		l := &p.link[n]
		for j, m := range l.lane {
			if m == acquire {
				l.lane[j] = late
			}
		}
		m := release
		if n == gate {
			m = how
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
}

// hear takes the reply of a node.
func (c Config) hear(s state, i, node int, visit visit) {
	p := &s.process[i]
	l := &p.link[node]
	a := l.reply
	p.crowd = p.crowd || l.crowd
	l.reply, l.crowd = open, false
	by := search.Step{Format: "process %d hears of node %d: granted", A: i, B: node}
	if a == refused {
		by.Format = "process %d hears of node %d: refused"
	}
	if p.phase != asking {
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
		c.end(p, i, keep)
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
		c.end(p, i, release)
	} else {
		p.send(gate, release)
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
		l.reply, l.crowd, l.vote = open, false, open
	}
}

// settle forgets a wait.
func (p *process) settle() {
	p.woken, p.retry, p.crowd, p.extended, p.used = false, false, false, false, 0
}
