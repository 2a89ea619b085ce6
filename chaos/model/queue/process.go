package queue

import "github.com/d0720281/redlock/chaos/model/search"

// A process begins, decides and ends attempts, and takes replies and calls.

type visit = func(state, search.Step)

// local visits the steps that a process takes by itself.
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
		if p := &s.process[i]; c.Elsewhere && p.link[queueNode].vote == granted && p.busy() >= quorum && p.room() {
			c.end(&s, i, away)
			p.phase, p.retry = waiting, c.Pauses
			visit(s, search.Step{Format: "process %d: a quorum stays busy, another process may hold the lock elsewhere", A: i})
		}
	case waiting:
		p := &s.process[i]
		if c.Timers || c.Deaf && !c.NoPoll || c.stranger(i) {
			c.begin(s, i, false, false, search.Step{Format: "process %d: the timer, asks all", A: i}, visit)
		}
		switch {
		case p.woken:
			p.woken = false
			c.begin(s, i, true, false, search.Step{Format: "process %d answers the call, asks all", A: i}, visit)
		case p.retry:
			c.begin(s, i, false, true, search.Step{Format: "process %d asks the queue node again", A: i}, visit)
		}
	case holding:
		c.holder(s, i, visit)
	}
}

// begin starts an attempt: with all nodes, or with the queue node alone. It waits until few
// messages are under way, which keeps the number of states small.
func (c Config) begin(s state, i int, answers, behind bool, by search.Step, visit visit) {
	p := &s.process[i]
	for n := range p.link {
		if p.link[n].sent[1] != none {
			return
		}
	}
	p.phase, p.answers, p.behind, p.retry, p.meets = asking, answers, behind, false, false
	p.clear()
	p.joins = 0
	for j := range s.process {
		if c.JoinsInOrder && c.reads(i) && c.reads(j) && s.process[j].phase == holding {
			p.joins |= 1 << j
		}
	}
	for n := range p.link {
		if n == queueNode || !behind {
			p.send(n, acquire)
		}
	}
	visit(s, by)
}

// date notes which releases of others are under way when the queue node grants. Refusals
// from before that do not count.
func (s *state) date(p int) {
	for i := range s.process {
		for n := queueNode + 1; n < nodes && i != p; n++ {
			sent := &s.process[i].link[n].sent
			for j, m := range sent {
				if m.of() == release {
					sent[j] = m | (kind+1)<<p
				}
			}
		}
	}
	for n := range nodes {
		l := &s.process[p].link[n]
		l.fresh, l.busy = false, false
	}
}

// undate forgets what date noted.
func (s *state) undate(p int) {
	for i := range s.process {
		for n := range nodes {
			sent := &s.process[i].link[n].sent
			for j := range sent {
				sent[j] &^= (kind + 1) << p
			}
		}
	}
}

// without lets an attempt succeed or fail without the queue node's reply.
func (c Config) without(s state, i int, visit visit) {
	p := &s.process[i]
	if p.link[queueNode].vote != open {
		return
	}
	votes := p.count(granted)
	switch {
	case c.Barging && !p.crowd && votes >= quorum && (!p.meets || c.JoinBlindly):
		c.hold(s, i, search.Step{Format: "process %d HOLDS without the queue node's reply", A: i}, visit)
	case !s.queueNodeDead || c.QueueNodeOrNothing:
	case votes >= quorum:
		c.hold(s, i, search.Step{Format: "process %d HOLDS, the queue node is dead", A: i}, visit)
	case p.behind:
		if p.room() {
			p.behind = false
			p.askOthers()
			visit(s, search.Step{Format: "process %d: the queue node is dead, asks the others", A: i})
		}
	case p.room():
		c.fail(&s, i)
		visit(s, search.Step{Format: "process %d: no quorum, the queue node is dead", A: i})
	}
}

// hold makes the process the holder.
func (c Config) hold(s state, i int, by search.Step, visit visit) {
	me := uint8(i + 1)
	p := &s.process[i]
	for _, first := range s.seen {
		if first == 0 || first == me {
			break
		}
		if (c.InOrder || c.JoinsInOrder && p.joins != 0) && !(c.reads(i) && c.reads(int(first-1))) {
			by.Breaks = Jumped
			if s.seen.has(me) {
				by.Breaks = Overtaken
			}
		}
	}
	for j := range s.process {
		if j != i && s.process[j].phase == holding && !(c.reads(i) && (c.reads(j) || s.process[j].shared)) {
			by.Breaks = TwoHolders
		}
	}
	s.seen.leave(me)
	s.undate(i)
	p.settle()
	p.phase, p.used, p.answers, p.meets, p.joins = holding, 1, false, false, 0
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
	if c.Downgrades && !c.reads(i) && !p.shared {
		s := s
		p := &s.process[i]
		p.shared = true
		for n := range p.link {
			p.send(n, share)
		}
		visit(s, search.Step{Format: "process %d downgrades", A: i})
	}
	if c.Renewals && !p.extended {
		s := s
		p := &s.process[i]
		p.extended = true
		p.send(queueNode, extend)
		visit(s, search.Step{Format: "process %d extends", A: i})
	}
	if p.shared && c.WaitsForReaders && c.readersWait(&s) {
		return
	}
	p.callers--
	if p.callers > 0 && int(p.used) < c.Block && !c.reads(i) && !p.shared {
		p.used++
		visit(s, search.Step{Format: "process %d hands over to its next caller", A: i})
		return
	}
	c.end(&s, i, release)
	p.phase = idle
	s.leftBy(i)
	visit(s, search.Step{Format: "process %d releases", A: i})
}

// readersWait reports whether a reader waits.
func (c Config) readersWait(s *state) bool {
	for i := range c.Processes {
		if ph := s.process[i].phase; c.reads(i) && (ph == asking || ph == waiting) {
			return true
		}
	}
	return false
}

// leftBy notes that a process does not hold any more.
func (s *state) leftBy(i int) {
	for j := range s.process {
		s.process[j].joins &^= 1 << i
	}
}

// fail ends an attempt that found no quorum. The process is in no queue then.
func (c Config) fail(s *state, i int) {
	p := &s.process[i]
	c.end(s, i, undo)
	p.phase, p.retry = waiting, !c.NoRetry && !c.stranger(i)
}

// end gives back the keys of an attempt or a lease: it tells all nodes that were asked.
func (c Config) end(s *state, i int, how message) {
	p := &s.process[i]
	for n := range p.link {
		l := &p.link[n]
		for j, m := range l.sent {
			if m == acquire {
				l.sent[j] = late
			}
		}
		m := how
		if n != queueNode && m != release {
			m = undo
		}
		if c.stranger(i) && c.OwnQueueNodeOnly {
			m = quiet
		}
		if n == queueNode || !p.behind {
			p.send(n, m)
		}
	}
	p.clear()
	p.answers, p.behind, p.meets = false, false, false
	s.undate(i)
}

// hear takes the reply of a node.
func (c Config) hear(s state, i, node int, visit visit) {
	p := &s.process[i]
	l := &p.link[node]
	a := l.reply
	p.crowd = p.crowd || l.crowd
	p.meets = p.phase == asking && (p.meets || l.beside)
	l.busy = l.fresh
	l.reply, l.crowd, l.beside, l.fresh = open, false, false, false
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
	queueNodeGranted := p.link[queueNode].vote == granted || c.stranger(i)
	switch {
	case p.count(granted) >= quorum && (queueNodeGranted || c.NoVeto && p.link[queueNode].vote == refused):
		by.Format, by.C = by.Format+", process %d HOLDS", i
		c.hold(s, i, by, visit)
		return
	case c.stranger(i):
		if p.count(refused) > nodes-quorum {
			c.fail(&s, i)
		}
	case node == queueNode && a == refused:
		c.end(&s, i, rest)
		p.phase = waiting
	case node == queueNode && p.behind:
		p.behind = false
		p.askOthers()
	case a == refused && (p.answers || !c.AskOnce):
		l.vote = open
		p.send(node, acquire)
	case p.count(refused) > nodes-quorum:
		c.fail(&s, i)
	}
	visit(s, by)
}

// hearCall takes a call. A process without a waiting caller ignores it: the process has left
// the queue, or will leave it at its release.
func (c Config) hearCall(s state, i int, visit visit) {
	p := &s.process[i]
	p.calls--
	if p.phase == waiting || p.phase == asking {
		p.woken = true
	}
	visit(s, search.Step{Format: "process %d is called", A: i})
}

// giveUp ends a caller's context.
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
		p.send(queueNode, undo)
	}
	s.seen.leave(uint8(i + 1))
	p.settle()
	p.phase = idle
	visit(s, search.Step{Format: "process %d: the last caller gives up", A: i, Fault: true})
}

func (p *process) send(node int, m message) {
	sent := &p.link[node].sent
	for i := range sent {
		if sent[i] == none {
			sent[i] = m
			return
		}
	}
	panic("queue: too many messages under way")
}

func (p *process) askOthers() {
	for n := queueNode + 1; n < nodes; n++ {
		p.send(n, acquire)
	}
}

// room reports whether each node can be sent one more message.
func (p *process) room() bool {
	for n := range p.link {
		if p.link[n].sent[depth-1] != none {
			return false
		}
	}
	return true
}

// busy returns how many nodes a lease keeps busy.
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
		l.reply, l.crowd, l.beside, l.vote, l.fresh, l.busy = open, false, false, open, false, false
	}
}

// settle forgets a wait.
func (p *process) settle() {
	p.woken, p.retry, p.crowd, p.extended, p.shared, p.used = false, false, false, false, false, 0
}
