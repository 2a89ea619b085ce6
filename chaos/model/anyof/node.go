package anyof

// The queue node takes a message.

// turn returns where the turn of a key is kept.
func (c Config) turn(s *state, key int) *uint8 {
	if c.OneTurn {
		key = 0
	}
	return &s.turn[key]
}

// turnOf returns the key whose turn a process has, or none.
func (c Config) turnOf(s *state, p int) int {
	if k := int(s.its[p]); k != none && *c.turn(s, k) == uint8(p+1) {
		return k
	}
	return none
}

// place returns how many processes joined before, or most.
func (s *state) place(p int) int {
	for i, x := range s.queue {
		if x == uint8(p+1) {
			return i
		}
	}
	return most
}

func (s *state) alive(p int) bool { return s.process[p].phase != dead && s.unseen>>p&1 == 0 }

func (c Config) serve(s *state, p int, m message) (reply uint8, breaks string) {
	k, me, free := int(m.key), uint8(p+1), false
	if m.kind <= late {
		breaks = c.attend(s, k, p)
		if t := *c.turn(s, k); s.key[k] != me && (s.key[k] != 0 || t != 0 && t < mark && t != me) {
			return refused, breaks
		}
		s.key[k] = me
		return granted, breaks + c.leave(s, k, p)
	}
	if k != none {
		if s.key[k] == me {
			s.key[k] = 0
		}
		free = s.key[k] == 0
		if m.kind != release && (m.kind == away || !free) && *c.turn(s, k) == me {
			*c.turn(s, k) = 0
		}
	}
	if m.kind == release {
		breaks = c.leave(s, k, p)
	} else {
		c.join(s, p)
	}
	if k != none {
		switch t := c.turn(s, k); {
		case *t != 0 && *t < mark:
			if m.kind == release && free {
				s.process[*t-1].calls |= 1 << k
			}
		case m.kind == release && !free:
			*t = mark
		case m.kind == away && *t != mark:
			if free {
				*t = note
			}
		default:
			if free && (m.kind == release || *t == mark) {
				*t = 0
			}
			breaks += c.attend(s, k, p)
		}
	}
	if its := c.turnOf(s, p); m.kind != release && its != none && s.key[its] != 0 && !c.KeepHeld {
		*c.turn(s, its) = 0
		c.join(s, p)
	}
	for i := 0; m.kind != release && i < c.Keys && c.turnOf(s, p) == none && (i == 0 || !c.OwnKey); i++ {
		breaks += c.attend(s, i, p)
	}
	if its := c.turnOf(s, p); its != none && s.key[its] == 0 {
		reply = hasTurn + uint8(its)
	}
	return reply, breaks
}

// join puts a process into the queue. It gets its place back, unless it has a turn.
func (c Config) join(s *state, p int) {
	for i := range s.queue {
		if s.queue[i] == 0 && s.place(p) == most {
			s.queue[i] = uint8(p + 1)
		}
	}
	s.unseen &^= 1 << p
	if c.turnOf(s, p) == none && !c.StayBack {
		s.back &^= 1 << p
	}
}

func (s *state) drop(p int) {
	if i := s.place(p); i < most {
		copy(s.queue[i:], s.queue[i+1:])
		s.queue[most-1] = 0
	}
	s.its[p] = none
	s.back &^= 1 << p
	s.unseen &^= 1 << p
}

// leave takes a process out of the queue, with its turn.
func (c Config) leave(s *state, k, p int) (breaks string) {
	its := c.turnOf(s, p)
	s.drop(p)
	if k != none && *c.turn(s, k) == uint8(p+1) {
		*c.turn(s, k) = 0
	}
	if its != none && its != k && !c.KeepTurn {
		*c.turn(s, its) = 0
		breaks = c.attend(s, its, -1)
	}
	return breaks
}

// first returns the head of the queue, or -1. It drops heads that are dead. If the head has a turn, so have all.
func (c Config) first(s *state) int {
	for {
		head := -1
		for i := range 2 * most {
			if x := s.queue[i%most]; x != 0 && (head < 0 || c.Newest) && s.back>>(x-1)&1 == uint8(i/most) {
				head = int(x - 1)
			}
		}
		switch {
		case head < 0 || c.turnOf(s, head) != none && !c.TwoTurns:
			return -1
		case s.alive(head) || c.TwoTurns:
			return head
		}
		s.drop(head)
	}
}

// attend gives the turn of a free key to the head of the queue, and calls it.
func (c Config) attend(s *state, k, asker int) (breaks string) {
	t := c.turn(s, k)
	if *t != 0 && *t != mark || s.key[k] != 0 {
		return ""
	}
	head := c.first(s)
	if head < 0 {
		return ""
	}
	for _, x := range s.queue[:s.place(head)] {
		if q := int(x - 1); c.turnOf(s, q) == none && s.alive(q) && c.Faults == 0 {
			breaks = Overtaken
		}
	}
	if !c.TwoTurns {
		s.back |= 1 << head
	}
	s.its[head], *t = uint8(k), uint8(head+1)
	s.unseen |= 1 << head
	if head != asker {
		s.process[head].calls |= 1 << k
	}
	return breaks
}
