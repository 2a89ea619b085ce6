package queue

// This file is what a node does with a message.

func (c Config) serve(s *state, p, node int, m message) {
	me := uint8(p + 1)
	switch m {
	case acquire, late:
		a := c.acquire(s, p, node)
		if m == acquire {
			l := &s.process[p].link[node]
			l.reply, l.crowd = a, node == gate && s.queue.crowd(me)
			l.fresh = c.Elsewhere && a == refused && (c.Late || s.leased(p, node))
			if node == gate && a == granted {
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
		if node == gate && m != quiet {
			c.ended(s, me, m, had)
		}
	}
}

// leased reports whether the key on a node is that of a lease, which had not been released
// when the gate granted the attempt of a process. Another attempt is over sooner than this one: the
// gate refuses it.
func (s *state) leased(p, node int) bool {
	if s.key[node] == 0 {
		return false
	}
	owner := &s.process[s.key[node]-1]
	if owner.phase == holding {
		return true
	}
	for _, m := range owner.link[node].lane {
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
	case s.key[node] != 0, node == gate && s.called() && s.reserved != me:
		return refused
	}
	s.key[node] = me
	if node == gate {
		s.leave(me)
	}
	return granted
}

// called reports whether a process has been called.
func (s *state) called() bool { return s.reserved != 0 && s.reserved != mark }

func (s *state) leave(me uint8) {
	s.queue.leave(me)
	if s.reserved == me {
		s.reserved = 0
	}
}

// ended is what the gate does at the end of an attempt or a lease, when the key is dropped.
func (c Config) ended(s *state, me uint8, m message, had bool) {
	switch {
	case m == rest, m == away && !c.LeaveElsewhere:
		s.queue.join(me)
		if !s.process[me-1].saysMore() {
			s.seen.join(me)
		}
		missed := s.reserved == mark
		if s.key[gate] == 0 && !s.called() && !c.MuteRest && (m == rest || missed && !c.DeafRest) {
			c.wake(s)
		}
		return
	case c.KeepReservation:
		s.queue.leave(me)
	default:
		s.leave(me)
	}
	if m == away {
		return
	}
	if m == release && !had && s.key[gate] != 0 && s.reserved == 0 && !c.NoMark {
		s.reserved = mark
	}
	c.wake(s)
}

// saysMore reports whether the process has told the gate since that it waits no more.
func (p *process) saysMore() bool {
	for _, m := range p.link[gate].lane {
		if m == undo || m == release {
			return true
		}
	}
	return false
}

// wake reserves a lock that is free for the first in the queue that is alive, and tells it.
func (c Config) wake(s *state) {
	if s.key[gate] != 0 {
		return
	}
	if s.reserved == mark && c.MarkIsTurn {
		return
	}
	if s.called() {
		if !c.NotifyOnce {
			s.notify(s.reserved)
		}
		return
	}
	s.reserved = 0
	for s.queue[0] != 0 {
		head := s.queue[0]
		s.queue.leave(head)
		if s.notify(head) {
			s.reserved = head
			return
		}
	}
}

// notify reports whether there is somebody who listens.
func (s *state) notify(who uint8) bool {
	p := &s.process[who-1]
	if p.phase == dead {
		return false
	}
	p.notes = min(p.notes+1, 2)
	return true
}
