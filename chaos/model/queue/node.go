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
	case share:
		c.downgrade(s, p, node)
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
	me := uint8(p + 1)
	if node == queueNode && !c.DeafAcquire {
		c.attend(s, me)
	}
	switch {
	case s.key[node] == me, s.readers[node]&(1<<p) != 0:
		return granted
	case s.key[node] != 0, !c.reads(p) && s.readers[node] != 0, node == queueNode && s.called() && !c.hasTurn(s, me):
		return refused
	case node == queueNode && c.reads(p) && c.behindWriter(s, me) && !c.ReadersPass:
		return refused // a reader never overtakes the queue
	}
	if !c.reads(p) {
		s.key[node] = me
		if node == queueNode {
			c.leave(s, me)
		}
		return granted
	}
	s.readers[node] |= 1 << p
	if node == queueNode {
		c.leave(s, me)
	}
	return granted
}

// called reports whether a process has the turn.
func (s *state) called() bool { return s.turn != 0 && s.turn != mark && s.turn != note }

// hasTurn reports whether a process has the turn, if it is in the queue.
func (c Config) hasTurn(s *state, me uint8) bool {
	return s.turn == me || s.turn == readersTurn && c.reads(int(me-1))
}

// behindWriter reports whether a writer stands before a process in the queue.
func (c Config) behindWriter(s *state, me uint8) bool {
	for _, x := range s.queue {
		if x == 0 || x == me {
			return false
		}
		if !c.reads(int(x - 1)) {
			return true
		}
	}
	return false
}

// leave takes a process out of the queue, and ends a turn that no process has any more.
func (c Config) leave(s *state, me uint8) {
	s.queue.leave(me)
	head := s.queue[0]
	if s.turn == me || s.turn == readersTurn && (head == 0 || !c.reads(int(head-1))) && !c.KeepReadersTurn {
		s.turn, s.rested = 0, 0
	}
}

// ended updates the queue at the end of an attempt or a lease, when the key is dropped.
func (c Config) ended(s *state, me uint8, m message) {
	free := s.key[queueNode] == 0 && s.readers[queueNode] == 0
	switch {
	case m == rest, m == away && !c.LeaveElsewhere:
		c.restedAt(s, me, m, free)
		return
	case c.KeepTurn:
		s.queue.leave(me)
	default:
		c.leave(s, me)
	}
	if m == away {
		return
	}
	switch {
	case s.called():
		if !c.CallOnce && !(s.turn == readersTurn && c.reads(int(me-1))) { // readers are not in each other's way
			c.callAgain(s)
		}
	default:
		if free && !(s.turn == mark && c.MarkIsTurn) {
			s.turn = 0 // the mark and the note
		}
		c.attend(s, 0)
	}
	taken := s.key[queueNode] != 0 || s.readers[queueNode] != 0 && !c.NoMarkForReaders
	if taken && !s.called() && !c.NoMark {
		s.turn = mark
	}
}

// restedAt puts a process into the queue. It hears by the reply that it has the turn.
func (c Config) restedAt(s *state, me uint8, m message, free bool) {
	s.queue.join(me)
	if !s.process[me-1].saysMore() {
		s.seen.join(me)
	}
	switch missed := s.turn == mark; {
	case s.called():
		if c.hasTurn(s, me) && !c.behindWriter(s, me) {
			s.rested |= 1 << (me - 1)
			if c.lets(s, me) && m == rest {
				s.call(me)
			}
		}
	case m == away && (!missed || c.DeafRest):
		if free {
			s.turn = note
		}
	case !c.MuteRest:
		if missed && free && !c.MarkIsTurn {
			s.turn = 0
		}
		c.attend(s, me)
	}
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

// lets reports whether the queue node's key lets a process in.
func (c Config) lets(s *state, p uint8) bool {
	return s.key[queueNode] == 0 && (s.readers[queueNode] == 0 || c.reads(int(p-1)))
}

// attend gives the turn to the first live process in the queue, and calls it, if the key lets it in
// and no process has the turn.
func (c Config) attend(s *state, asker uint8) {
	if s.called() || s.turn == note || s.turn == mark && c.MarkIsTurn {
		return
	}
	for s.queue[0] != 0 {
		head := s.queue[0]
		if s.process[head-1].phase == dead {
			s.queue.leave(head)
			continue
		}
		if !c.lets(s, head) {
			return
		}
		s.turn, s.rested = head, 0
		if c.reads(int(head - 1)) {
			s.turn = readersTurn
		}
		for _, x := range s.queue {
			if x != 0 && c.hasTurn(s, x) && !c.behindWriter(s, x) && (!c.Deaf || x == asker) {
				s.call(x)
			}
		}
		if c.PopHead {
			s.queue.leave(head)
		}
		return
	}
}

// callAgain calls the processes that have the turn, if the key lets them in.
func (c Config) callAgain(s *state) {
	for _, x := range s.queue {
		if x != 0 && c.hasTurn(s, x) && !c.behindWriter(s, x) && c.lets(s, x) {
			s.call(x)
		}
	}
}

// call tells a process that it has the turn.
func (s *state) call(p uint8) {
	if called := &s.process[p-1]; called.phase != dead {
		called.calls = min(called.calls+1, 2)
	}
}

// downgrade makes the key of a writer that of a reader.
func (c Config) downgrade(s *state, p, node int) {
	if s.key[node] != uint8(p+1) {
		return
	}
	s.key[node] = 0
	s.readers[node] |= 1 << p
	if node == queueNode && !c.MuteDowngrade {
		c.attend(s, 0)
	}
}
