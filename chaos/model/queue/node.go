package queue

// A node takes a message.

func (c Config) serve(s *state, p, node int, m message) {
	me := uint8(p + 1)
	switch m {
	case acquire, late:
		a := c.acquire(s, p, node)
		if m == acquire {
			l := &s.process[p].link[node]
			l.reply, l.crowd = a, node == queueNode && s.queue.crowd(me)
			l.fresh = c.Elsewhere && a == refused && (c.Late || s.leased(p, node))
			if node == queueNode && a == granted {
				if s.process[p].phase == asking {
					s.seen.join(me)
				}
				if c.Elsewhere && !c.Late {
					s.date(p)
				}
			}
		}
	case extend:
		if s.key[node] == 0 {
			s.key[node] = me
		}
	case release, undo, rest, away, quiet:
		had := s.key[node] == me
		if had {
			s.key[node] = 0
		}
		if node == queueNode && m != quiet {
			c.ended(s, me, m, had)
		}
	}
}

// leased reports whether the key on the node belongs to a lease that had not been released
// when the queue node granted the attempt of process p. The key may not belong to another
// attempt: that is over sooner, as the queue node refuses it.
func (s *state) leased(p, node int) bool {
	if s.key[node] == 0 {
		return false
	}
	owner := &s.process[s.key[node]-1]
	if owner.phase == holding {
		return true
	}
	for _, m := range owner.link[node].sent {
		if m.of() == release {
			return !m.before(p)
		}
	}
	return false
}

func (c Config) acquire(s *state, p, node int) answer {
	me := uint8(p + 1)
	switch {
	case s.key[node] == me:
		return granted
	case s.key[node] != 0, node == queueNode && s.called() && s.turn != me:
		return refused
	}
	s.key[node] = me
	if node == queueNode {
		s.leave(me)
	}
	return granted
}

// called reports whether a process has been called.
func (s *state) called() bool { return s.turn != 0 && s.turn != mark }

func (s *state) leave(me uint8) {
	s.queue.leave(me)
	if s.turn == me {
		s.turn = 0
	}
}

// ended updates the queue at the end of an attempt or a lease, when the key is dropped.
func (c Config) ended(s *state, me uint8, m message, had bool) {
	switch {
	case m == rest, m == away && !c.LeaveElsewhere:
		s.queue.join(me)
		if !s.process[me-1].saysMore() {
			s.seen.join(me)
		}
		missed := s.turn == mark
		if s.key[queueNode] == 0 && !s.called() && !c.MuteRest && (m == rest || missed && !c.DeafRest) {
			c.callNext(s)
		}
		return
	case c.KeepTurn:
		s.queue.leave(me)
	default:
		s.leave(me)
	}
	if m == away {
		return
	}
	if m == release && !had && s.key[queueNode] != 0 && s.turn == 0 && !c.NoMark {
		s.turn = mark
	}
	c.callNext(s)
}

// saysMore reports whether the process has since sent the queue node that it does not wait.
func (p *process) saysMore() bool {
	for _, m := range p.link[queueNode].sent {
		if m == undo || m == release {
			return true
		}
	}
	return false
}

// callNext gives the turn to the first live process in the queue if the lock is free, and
// calls it.
func (c Config) callNext(s *state) {
	if s.key[queueNode] != 0 {
		return
	}
	if s.turn == mark && c.MarkIsTurn {
		return
	}
	if s.called() {
		if !c.CallOnce {
			s.call(s.turn)
		}
		return
	}
	s.turn = 0
	for s.queue[0] != 0 {
		head := s.queue[0]
		s.queue.leave(head)
		if s.call(head) {
			s.turn = head
			return
		}
	}
}

// call reports whether the process is alive to hear it.
func (s *state) call(p uint8) bool {
	called := &s.process[p-1]
	if called.phase == dead {
		return false
	}
	called.calls = min(called.calls+1, 2)
	return true
}
