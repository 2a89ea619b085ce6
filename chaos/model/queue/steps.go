package queue

import "github.com/d0720281/redlock/chaos/model/search"

// The steps that can happen in a state.

func (c Config) next(s state, visit visit) {
	for i := range c.Processes {
		c.local(s, i, visit)
		for n := range nodes {
			c.deliver(s, i, n, visit)
		}
		c.calls(s, i, visit)
		if s.process[i].phase != dead && int(s.crashes) < c.Crashes {
			c.crash(s, i, visit)
		}
		if int(s.giveUps) < c.GiveUps {
			c.giveUp(s, i, visit)
		}
	}
	c.expire(s, visit)
	if c.QueueNodeDies && !s.queueNodeDead {
		s.queueNodeDead = true
		s.key[queueNode], s.readers[queueNode], s.turn, s.queue = 0, 0, 0, line{}
		visit(s, search.Step{Format: "the queue node dies", Fault: true})
	}
}

// deliver moves a message to a node, or its reply back.
func (c Config) deliver(s state, i, node int, visit visit) {
	l := &s.process[i].link[node]
	if l.reply != open {
		c.hear(s, i, node, visit)
	}
	m := l.sent[0].of()
	if m == none || m == acquire && l.reply != open {
		return
	}
	copy(l.sent[:], l.sent[1:])
	l.sent[depth-1] = none
	by := search.Step{Format: served[m], A: node, B: i}
	if node == queueNode && s.queueNodeDead {
		by.Format = "node %d is dead, a message of process %d is lost"
	} else {
		c.serve(&s, i, node, m)
	}
	visit(s, by)
}

var served = [...]string{
	acquire: "node %d has an acquire of process %d",
	late:    "node %d has a late acquire of process %d",
	extend:  "node %d has an extension of process %d",
	release: "node %d has a release of process %d",
	undo:    "node %d has a rollback of process %d",
	rest:    "node %d has a rest of process %d",
	away:    "node %d has a rest of process %d, which was granted there",
	share:   "node %d has a downgrade of process %d",
	quiet:   "node %d has a release of process %d, to which it is not the queue node",
}

func (c Config) calls(s state, i int, visit visit) {
	if s.process[i].calls == 0 {
		return
	}
	if int(s.losses) < c.Losses {
		s := s
		s.process[i].calls--
		s.losses++
		visit(s, search.Step{Format: "a call of process %d is lost", A: i, Fault: true})
	}
	c.hearCall(s, i, visit)
}

func (c Config) crash(s state, i int, visit visit) {
	s.crashes++
	s.process[i] = process{phase: dead}
	s.leftBy(i)
	s.seen.leave(uint8(i + 1))
	s.undate(i)
	visit(s, search.Step{Format: "process %d dies", A: i, Fault: true})
}

// turnOfDead reports whether a dead process has the turn.
func (c Config) turnOfDead(s *state) bool {
	for _, x := range s.queue {
		if x != 0 && s.process[x-1].phase == dead && c.hasTurn(s, x) && !c.behindWriter(s, x) {
			return true
		}
	}
	return s.turn <= most && s.process[s.turn-1].phase == dead
}

// expire ends a turn, and the keys of dead processes.
func (c Config) expire(s state, visit visit) {
	if s.turn == note {
		s := s
		s.turn = 0
		visit(s, search.Step{Format: "the note ends"})
	}
	if s.called() && (c.Expiry || c.turnOfDead(&s)) {
		s := s
		for _, x := range s.queue {
			if x != 0 && c.hasTurn(&s, x) && !c.behindWriter(&s, x) && s.rested&(1<<(x-1)) == 0 { // it was not seen since
				s.queue.leave(x)
			}
		}
		s.turn, s.rested = 0, 0
		visit(s, search.Step{Format: "the turn ends"})
	}
	for n, k := range s.key {
		if k != 0 && s.process[k-1].phase == dead {
			s := s
			s.key[n] = 0
			visit(s, search.Step{Format: "node %d: the key of process %d ends", A: n, B: int(k - 1)})
		}
	}
	for n := range s.readers {
		for i := range s.process {
			if s.readers[n]&(1<<i) != 0 && s.process[i].phase == dead {
				s := s
				s.readers[n] &^= 1 << i
				visit(s, search.Step{Format: "node %d: the key of reader %d ends", A: n, B: i})
			}
		}
	}
}
