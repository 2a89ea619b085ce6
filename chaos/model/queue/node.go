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
			l.beside = a == granted && node != queueNode && c.reads(p) && s.readers[node] != 1<<p
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
		switch {
		case s.key[node] != 0:
		case c.reads(p):
			s.readers[node] |= 1 << p
		case s.readers[node] == 0:
			s.key[node] = me
		}
	case release, undo, rest, away, quiet:
		if s.key[node] == me {
			s.key[node] = 0
		}
		s.readers[node] &^= 1 << p
		if node == queueNode && m != quiet {
			c.ended(s, me, m)
		}
	}
}

// leased reports whether the key on the node belongs to a lease that had not been released
// when the queue node granted the attempt of process p. The key may not belong to another
// attempt: that is over sooner, as the queue node refuses it.
func (s *state) leased(p, node int) bool {
	for i := range s.process {
		if (s.key[node] == uint8(i+1) || s.readers[node]&(1<<i) != 0) && s.leasedBy(i, p, node) {
			return true
		}
	}
	return false
}

func (s *state) leasedBy(i, p, node int) bool {
	owner := &s.process[i]
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
	me, head := uint8(p+1), s.queue[0]
	switch {
	case s.key[node] == me, s.readers[node]&(1<<p) != 0:
		return granted
	case s.key[node] != 0, !c.reads(p) && s.readers[node] != 0, node == queueNode && s.called() && s.turn != me:
		return refused
	case node == queueNode && c.reads(p) && !s.called() && head != 0 && head != me && s.process[head-1].phase != dead && !c.ReadersPass:
		return refused // a reader never overtakes the queue
	}
	if !c.reads(p) {
		s.key[node] = me
		if node == queueNode {
			s.leave(me)
		}
		return granted
	}
	s.readers[node] |= 1 << p
	if node == queueNode {
		s.leave(me)
		c.callNext(s)
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
func (c Config) ended(s *state, me uint8, m message) {
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
	taken := s.key[queueNode] != 0 || s.readers[queueNode] != 0 && !c.NoMarkForReaders
	if m == release && taken && s.turn == 0 && !c.NoMark {
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
	besideReaders := s.readers[queueNode] != 0
	if s.called() {
		if !c.CallOnce && !(besideReaders && !c.reads(int(s.turn-1))) {
			s.call(s.turn)
		}
		return
	}
	if !besideReaders {
		s.turn = 0
	}
	for s.queue[0] != 0 {
		head := s.queue[0]
		if besideReaders && !c.reads(int(head-1)) && s.process[head-1].phase != dead {
			return
		}
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
