package permitqueue

// This file has the queue node: how it handles each message.

// serve reports what property the queue node has broken by it.
func (c Config) serve(s *state, p int, m message) (broken string) {
	me := uint8(p + 1)
	switch m {
	case choose, late:
		a := c.choose(s, p)
		if a == granted && c.InOrder && m == choose && s.came[0] != 0 && s.came[0] != me {
			broken = Overtaken
		}
		if a == granted {
			s.came.leave(me)
		}
		if m == choose {
			s.process[p].reply = a
		}
	case rest, restOff:
		if m == restOff && c.KeepRefused {
			s.forget(me)
		}
		s.drop(me)
		s.queue.join(me)
		s.came.join(me)
		if s.turn == 0 && m == rest && !c.NoRestCall {
			c.call(s)
		}
	case drop, leave:
		s.drop(me)
		if m == leave {
			s.queue.leave(me)
			s.came.leave(me)
			if s.turn == me {
				s.turn = 0
			}
		}
		if !c.CallIfAllFree || s.slot == [mostSlots]uint8{} {
			c.call(s)
		}
	}
	return broken
}

// choose grants all that a process wants, or nothing.
func (c Config) choose(s *state, p int) answer {
	me := uint8(p + 1)
	switch {
	case s.has(me): // the request came twice
	case s.turn != 0 && s.turn != me, s.free(c) < c.Wants[p]:
		return refused
	case s.turn == 0 && s.queue[0] != 0 && s.queue[0] != me && !c.PassQueue:
		return refused
	}
	n := s.count(me)
	for i := range c.Of {
		if s.slot[i] == 0 && n < c.Wants[p] {
			s.slot[i] = me
			n++
		}
	}
	s.queue.leave(me)
	if s.turn == me {
		s.turn = 0
	}
	if !c.NoChain {
		c.call(s)
	}
	return granted
}

// call calls the head of the queue if there is enough for it. A process that has its turn is called once
// more.
func (c Config) call(s *state) {
	if s.turn != 0 {
		if s.free(c) >= c.Wants[s.turn-1] {
			s.tell(s.turn)
		}
		return
	}
	for s.queue[0] != 0 {
		head := s.queue[0]
		if s.free(c) < c.Wants[head-1] {
			return
		}
		s.queue.leave(head)
		if s.tell(head) {
			s.turn = head
			return
		}
	}
}

// tell reports whether a process listens.
func (s *state) tell(who uint8) bool {
	p := &s.process[who-1]
	if p.phase == dead {
		return false
	}
	p.calls = min(p.calls+1, 2)
	return true
}

func (s *state) has(who uint8) bool { return s.count(who) > 0 }

// count returns how many slots a process has.
func (s *state) count(who uint8) (n int) {
	for _, owner := range s.slot {
		if owner == who {
			n++
		}
	}
	return n
}

func (s *state) free(c Config) (n int) {
	for i := range c.Of {
		if s.slot[i] == 0 {
			n++
		}
	}
	return n
}

// forget has slots belong to no process: the next attempt has another id.
func (s *state) forget(who uint8) {
	for i, owner := range s.slot {
		if owner == who {
			s.slot[i] = most + 1
		}
	}
}

func (s *state) drop(who uint8) {
	for i, owner := range s.slot {
		if owner == who {
			s.slot[i] = 0
		}
	}
}
