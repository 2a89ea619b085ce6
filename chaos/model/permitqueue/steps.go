package permitqueue

import "github.com/d0720281/redlock/chaos/model/search"

// This file has the steps of the model.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for i := range c.Wants {
		c.local(s, i, visit)
		c.deliver(s, i, visit)
		c.hear(s, i, visit)
		c.inbox(s, i, visit)
		c.fail(s, i, visit)
	}
	if r := s.turn; r != 0 && (c.Expiry || s.process[r-1].phase == dead) {
		s.turn = 0
		visit(s, search.Step{Format: "the turn of process %d ends", A: int(r - 1)})
	}
}

// local has the steps that a process takes by itself.
func (c Config) local(s state, i int, visit visit) {
	p := &s.process[i]
	switch {
	case p.lane[depth-1] != none: // there is no room for a message
	case p.phase == idle && p.callers > 0:
		s.ask(i, "process %d: a caller comes, asks", visit)
	case p.phase == waiting && p.called:
		s.ask(i, "process %d answers the call", visit)
	case p.phase == waiting && (p.again || c.Timers):
		s.ask(i, "process %d: the timer, asks", visit)
	case p.phase == holding && !c.keeps(&s, i):
		p.phase = idle
		p.callers--
		p.send(drop)
		visit(s, search.Step{Format: "process %d releases", A: i})
	}
}

func (s state) ask(i int, format string, visit visit) {
	p := &s.process[i]
	p.phase, p.called, p.again, p.reply = asking, false, false, open
	p.send(choose)
	visit(s, search.Step{Format: format, A: i})
}

func (c Config) deliver(s state, i int, visit visit) {
	p := &s.process[i]
	m := p.lane[0]
	if m == none || m == choose && p.reply != open {
		return
	}
	copy(p.lane[:], p.lane[1:])
	p.lane[depth-1] = none
	by := search.Step{Format: served[m], A: i}
	by.Breaks = c.serve(&s, i, m)
	visit(s, by)
}

var served = [...]string{
	choose:  "the queue node has a choose of process %d",
	late:    "the queue node has a late choose of process %d",
	rest:    "the queue node has a rest of process %d",
	restOff: "the queue node has a rest of process %d, which other nodes refused",
	drop:    "the queue node has a release of process %d",
	leave:   "the queue node has a release of process %d, which leaves",
}

// hear takes the reply to a choose.
func (c Config) hear(s state, i int, visit visit) {
	p := &s.process[i]
	a := p.reply
	if a == open || p.lane[depth-1] != none {
		return
	}
	p.reply = open
	if a == refused {
		p.phase = waiting
		p.send(rest)
		visit(s, search.Step{Format: "process %d is refused", A: i})
		return
	}
	if int(s.refusals) < c.Refusals {
		s := s
		p := &s.process[i]
		s.refusals++
		p.phase, p.again = waiting, true
		p.send(restOff)
		visit(s, search.Step{Format: "process %d is refused by the other nodes", A: i, Fault: true})
	}
	p.phase = holding
	visit(s, search.Step{Format: "process %d HOLDS", A: i})
}

// inbox takes a call. It is of no use where no caller waits: the process has left, or will.
func (c Config) inbox(s state, i int, visit visit) {
	if s.process[i].calls == 0 {
		return
	}
	s.process[i].calls--
	if int(s.losses) < c.Losses {
		s := s
		s.losses++
		visit(s, search.Step{Format: "a call of process %d is lost", A: i, Fault: true})
	}
	if p := &s.process[i]; p.phase == waiting || p.phase == asking {
		p.called = true
	}
	visit(s, search.Step{Format: "process %d is called", A: i})
}

// fail is a caller that gives up, a process that dies, and what a dead one leaves.
func (c Config) fail(s state, i int, visit visit) {
	p := s.process[i]
	if p.phase == dead {
		if me := uint8(i + 1); s.has(me) {
			s := s
			s.drop(me)
			visit(s, search.Step{Format: "the slots of process %d end", A: i})
		}
		return
	}
	if int(s.crashes) < c.Crashes {
		s := s
		s.crashes++
		s.process[i] = process{phase: dead}
		s.came.leave(uint8(i + 1))
		visit(s, search.Step{Format: "process %d dies", A: i, Fault: true})
	}
	if int(s.giveUps) < c.GiveUps && (p.phase == asking || p.phase == waiting) && p.lane[depth-1] == none {
		s := s
		p := &s.process[i]
		s.giveUps++
		for k, m := range p.lane {
			if m == choose {
				p.lane[k] = late
			}
		}
		p.phase, p.reply, p.called, p.again = idle, open, false, false
		p.callers--
		p.send(leave)
		s.came.leave(uint8(i + 1))
		visit(s, search.Step{Format: "process %d: the caller gives up", A: i, Fault: true})
	}
}

func (p *process) send(m message) {
	for i := range p.lane {
		if p.lane[i] == none {
			p.lane[i] = m
			return
		}
	}
	panic("permitqueue: no room for a message")
}
