package anyof

import "github.com/d0720281/redlock/chaos/model/search"

// This file has what can happen.

func (c Config) next(s state, visit func(state, search.Step)) {
	for i := range c.Processes {
		p := &s.process[i]
		me, key, quiet := uint8(i+1), int(p.key), p.reply+p.sent[0].kind == 0
		// step visits the state after a change, unless there is no room for its messages.
		step := func(by search.Step, change func(n *state, q *process)) {
			if n := s; p.sent[depth-2].kind == 0 {
				by.A = i
				change(&n, &n.process[i])
				visit(n, by)
			}
		}
		c.deliver(s, i, visit)
		if p.phase == idle && p.turns > 0 || p.phase == waiting && quiet && c.Faults > 0 {
			step(search.Step{Format: "process %d joins, or rests again"}, func(n *state, q *process) { q.to(waiting, rest, none) })
		}
		for k := range c.Keys {
			if p.phase == waiting && (p.called == uint8(k+1) || p.called == 0 && !quiet && p.sent[0].kind == rest) {
				step(search.Step{Format: "process %d asks for key %d: it was called, or its rest is not answered", B: k}, func(n *state, q *process) {
					q.key, q.called = uint8(k), 0
					q.to(asking, acquire, k)
				})
			}
			if p.phase == dead && (s.key[k] == me || s.others[k] == me) {
				step(search.Step{Format: "key of dead process %d ends: %d", B: k}, func(n *state, q *process) {
					n.key[k], n.others[k] = s.key[k]*min(1, s.key[k]^me), s.others[k]*min(1, s.others[k]^me)
				})
			}
			if s.turn[k] == me && c.Faults > 0 {
				step(search.Step{Format: "turn of process %d ends: key %d", B: k, Fault: p.phase != dead}, func(n *state, q *process) { n.turn[k] = 0 })
			}
		}
		unheard := c.Barging && p.reply == 0
		switch others := s.others[p.key%none]; {
		case p.phase == holding:
			if c.Barging && quiet && s.key[key] == 0 {
				step(search.Step{Format: "process %d renews key %d", B: key}, func(n *state, q *process) { n.key[key] = me })
			}
			step(search.Step{Format: "process %d releases key %d", B: key}, func(n *state, q *process) {
				n.others[key] = 0
				q.end(key)
			})
		case p.phase != asking:
		case p.reply == refused, unheard && others != 0:
			step(search.Step{Format: "process %d is refused key %d", B: key}, func(n *state, q *process) { q.to(waiting, rest, key) })
		case (p.reply == granted || unheard) && (others == 0 || c.NoQuorum):
			by := search.Step{Format: "process %d HOLDS key %d", B: key}
			for _, o := range s.process {
				if o.phase == holding && o.key == p.key {
					by.Breaks = TwoHolders
				}
			}
			step(by, func(n *state, q *process) {
				if n.others[key] = me; unheard && !c.Stays {
					q.to(holding, release, none)
				}
				q.to(holding, 0, none)
				q.called = 0
			})
		case p.reply == granted:
			step(search.Step{Format: "process %d is refused key %d by the other nodes", B: key}, func(n *state, q *process) { q.to(waiting, away, key) })
		}
		if (p.phase == waiting || p.phase == asking) && int(s.giveUps) < c.GiveUps {
			step(search.Step{Format: "process %d gives up", Fault: true}, func(n *state, q *process) {
				n.giveUps++
				if q.phase == waiting {
					key = none
				}
				q.end(key)
			})
		}
		if p.phase != dead && int(s.faults) < c.Faults {
			n := s
			n.faults++
			n.process[i] = process{phase: dead}
			visit(n, search.Step{Format: "process %d dies", A: i, Fault: true})
		}
	}
}

// to moves a process on, with a message. It ignores the replies to all that it has sent before.
func (p *process) to(phase, kind uint8, key int) {
	p.phase, p.reply = phase, 0
	for i := range p.sent {
		switch m := &p.sent[i]; m.kind {
		case acquire, rest:
			m.kind++
		case 0:
			*m = message{kind, uint8(key)}
			if kind == 0 {
				*m = message{}
			}
			return
		}
	}
}

func (p *process) end(key int) {
	p.to(idle, release, key)
	p.called, p.key = 0, 0
	p.turns--
}

// deliver moves a message to the queue node, and a reply or a call back.
func (c Config) deliver(s state, i int, visit func(state, search.Step)) {
	p := &s.process[i]
	if m := p.sent[0]; m.kind != 0 && p.reply == 0 {
		n := s
		q := &n.process[i]
		copy(q.sent[:], q.sent[1:])
		q.sent[depth-1] = message{}
		reply, breaks := c.serve(&n, i, m)
		if m.kind == acquire || (m.kind == rest || m.kind == away) && q.phase == waiting {
			q.reply = reply
		}
		visit(n, search.Step{Format: "message %d of process %d about key %d", A: int(m.kind), B: i, C: int(m.key), Breaks: breaks})
	}
	if p.reply >= hasTurn {
		n := s
		n.process[i].called, n.process[i].reply = p.reply-hasTurn+1, 0
		visit(n, search.Step{Format: "process %d hears that it has a turn", A: i})
	}
	for k := range c.Keys {
		if p.calls>>k&1 == 0 {
			continue
		}
		n := s
		q := &n.process[i]
		q.calls &^= 1 << k
		if int(s.faults) < c.Faults {
			n.faults++
			visit(n, search.Step{Format: "the call of process %d to key %d is lost", A: i, B: k, Fault: true})
			n.faults--
		}
		if q.phase == waiting || q.phase == asking {
			q.called = uint8(k + 1)
		}
		visit(n, search.Step{Format: "process %d is called to key %d", A: i, B: k})
	}
}
