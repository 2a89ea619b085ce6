package queue

// This file is what a node does with a message.

func (c Config) serve(s *state, p, node int, m message) {
	me := uint8(p + 1)
	switch m {
	case acquire, late:
		if node == gate && m == acquire && s.process[p].phase == asking && !c.stranger(p) {
			s.seen.join(me)
		}
		a := c.acquire(s, p, node)
		if m == acquire {
			l := &s.process[p].link[node]
			l.reply, l.crowd = a, node == gate && s.queue.crowd(me)
		}
	case extend:
		if s.key[node] == 0 {
			s.key[node] = me
		}
	case release, keep, quiet:
		had := s.key[node] == me
		if had {
			s.key[node] = 0
		}
		if node != gate || m == quiet || m == keep && !had {
			return
		}
		if m == release {
			s.queue.leave(me)
			if s.reserved == me && !c.KeepReservation {
				s.reserved = 0
			}
		}
		c.wake(s)
	}
}

func (c Config) acquire(s *state, p, node int) answer {
	me := uint8(p + 1)
	switch {
	case s.key[node] == me:
		return granted
	case s.key[node] != 0, node == gate && s.reserved != 0 && s.reserved != me:
		if node == gate && !c.stranger(p) {
			s.queue.join(me)
		}
		return refused
	}
	s.key[node] = me
	if node == gate {
		s.queue.leave(me)
		s.reserved = 0
	}
	return granted
}

// wake reserves a lock that is free for the first in the queue that is alive, and tells it.
func (c Config) wake(s *state) {
	if s.key[gate] != 0 {
		return
	}
	if s.reserved != 0 {
		if !c.NotifyOnce {
			s.notify(s.reserved)
		}
		return
	}
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
