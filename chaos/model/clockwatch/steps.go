package clockwatch

import "github.com/d0720281/redlock/chaos/model/search"

// The steps that can happen in a state.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	if s.harmless() {
		return
	}
	for i := range s.client {
		if !s.client[i].frozen {
			c.act(s, i, visit)
			c.watch(s, i, visit)
			for n := range nodes {
				c.hear(s, i, n, visit)
				c.deliver(s, i, n, visit)
			}
		}
	}
	c.fail(s, visit)
	c.tick(s, visit)
}

// harmless reports whether nothing can break any more.
func (s *state) harmless() bool {
	return s.client[0].phase == ended || s.client[1].phase == ended && !s.client[0].met
}

// act visits the steps that a client takes by itself.
func (c Config) act(s state, i int, visit visit) {
	p := &s.client[i]
	switch p.phase {
	case idle:
		p.phase = asking
		for n := range p.link {
			p.link[n].acquire = uint8(c.Asks[i])
		}
		visit(s, search.Step{Format: "client %d asks all nodes", A: i})
	case asking:
		c.acquired(s, i, visit)
	case holding:
		if c.Extend && i == 0 && p.left > 0 {
			c.renew(s, i, visit)
		}
	}
}

func (c Config) acquired(s state, i int, visit visit) {
	p := &s.client[i]
	need, votes := quorum, 0
	if i == 0 && c.FirstNeeds > 0 {
		need = c.FirstNeeds
	}
	for n := range p.link {
		if p.link[n].vote {
			votes++
		}
		p.link[n].vote = false
	}
	if votes < need || int(p.elapsed) >= c.TTL {
		return
	}
	p.phase, p.left, p.elapsed = holding, uint8(c.TTL)-p.elapsed, 0
	s.valid(i, search.Step{Format: "client %d HOLDS for %d", A: i, B: int(p.left)}, visit)
}

func (c Config) renew(s state, i int, visit visit) {
	p := &s.client[i]
	if !p.extended {
		p.extended, p.renewing = true, true
		for n := range p.link {
			p.link[n].extend = true
		}
		visit(s, search.Step{Format: "client %d extends", A: i})
		return
	}
	acks := 0
	for n := range p.link {
		if p.link[n].ack {
			acks++
		}
		p.link[n].ack = false
	}
	if !p.renewing || acks < quorum || int(p.since) >= c.TTL {
		return
	}
	by := search.Step{Format: "client %d HOLDS on", A: i}
	if p.met && !p.blind {
		by.Breaks = NotAlone
	}
	p.left = max(p.left, uint8(c.TTL)-p.since)
	p.renewing, p.since = false, 0
	s.valid(i, by, visit)
}

// valid visits a step after which a client has a lease. A client that stood still, and has
// not heard of enough nodes since, may believe in a lease that is over.
func (s state) valid(i int, by search.Step, visit visit) {
	other := &s.client[1-i]
	other.met = other.phase == holding
	if other.left > 0 && !other.blind && !s.client[i].blind {
		by.Breaks = TwoHolders
	}
	visit(s, by)
}

// watch looks at the clocks as long as it is undecided which clock stepped.
func (c Config) watch(s state, i int, visit visit) {
	if !s.client[i].open {
		return
	}
	for n := range nodes {
		if l := &s.client[i].link[n]; l.known && l.look == 0 && l.reply == nothing {
			s := s
			c.observe(&s.client[i], n, l.shift, true)
			visit(s, search.Step{Format: "client %d looks at the clock of node %d", A: i, B: n})
		}
	}
	if c.AllAnswer {
		return
	}
	c.judge(&s.client[i], true)
	visit(s, search.Step{Format: "client %d: no more clocks can be looked at", A: i})
}

// deliver moves requests of a client to a node.
func (c Config) deliver(s state, i, n int, visit visit) {
	l := s.client[i].link[n]
	me := uint8(i + 1)
	if l.acquire > 0 && l.reply == nothing {
		s := s
		node, l := &s.node[n], &s.client[i].link[n]
		l.acquire--
		free := node.owner == 0 || node.owner == me
		if node.owner == 0 {
			node.owner, node.ttl = me, uint8(c.TTL)
		}
		visit(s, search.Step{Format: "node %d has the acquire of client %d, the reply is lost", A: n, B: i})
		c.reply(s, i, n, free, false, visit)
	}
	if l.extend && l.reply == nothing {
		s := s
		node, l := &s.node[n], &s.client[i].link[n]
		l.extend = false
		mine := node.owner == me || node.owner == 0
		if mine {
			node.owner, node.ttl = me, uint8(c.TTL)
		}
		visit(s, search.Step{Format: "node %d has the extension of client %d, the reply is lost", A: n, B: i})
		c.reply(s, i, n, mine, true, visit)
	}
	if l.mark && l.reply == nothing { // the node's requests keep their order
		l := &s.client[i].link[n]
		l.mark, l.suspect = false, false
		told := s
		told.node[n].quarantine = uint8(c.Quarantine)
		visit(told, search.Step{Format: "node %d is marked by client %d", A: n, B: i})
		l.until = uint8(c.Quarantine)
		visit(s, search.Step{Format: "node %d cannot be marked by client %d", A: n, B: i})
	}
}

// reply sends a reply to a client. A client that stands still may get it later. Any other
// gets it at once: a later reply is the same as a later arrival of the request.
func (c Config) reply(s state, i, n int, yes, renewal bool, visit visit) {
	l := &s.client[i].link[n]
	l.reply, l.seen, l.renewal = useless, l.shift, renewal
	if yes && s.node[n].quarantine == 0 {
		l.reply = counts
	}
	if c.Standstill == 0 || i != 0 {
		c.hear(s, i, n, visit)
		return
	}
	visit(s, search.Step{Format: "node %d has a request of client %d, and replies", A: n, B: i})
}

// hear takes a reply.
func (c Config) hear(s state, i, n int, visit visit) {
	p := &s.client[i]
	l := &p.link[n]
	if l.reply == nothing {
		return
	}
	yes, seen, renewal := l.reply == counts, l.seen, l.renewal
	l.reply, l.seen, l.renewal = nothing, 0, false
	by := search.Step{Format: "client %d hears of node %d: no vote", A: i, B: n}
	if c.observe(p, n, seen, false) && yes && !l.suspect && l.until == 0 {
		switch {
		case renewal && p.renewing:
			l.ack = true
			by.Format = "client %d hears of node %d: extended"
		case !renewal && p.phase == asking:
			l.vote = true
			by.Format = "client %d hears of node %d: granted"
		}
	}
	visit(s, by)
}

func (c Config) fail(s state, visit visit) {
	for n := range nodes {
		if int(s.steps) < c.Steps {
			s := s
			by := c.Step
			if s.steps == 1 && c.Another > 0 {
				by = c.Another
			}
			s.steps++
			s.forward(n, uint8(by))
			visit(s, search.Step{Format: "the clock of node %d STEPS by %d", A: n, B: by, Fault: true})
		}
	}
	p := &s.client[0]
	if p.frozen || int(s.still) < c.Standstill && int(s.stills) < c.Standstills {
		if p.frozen = !p.frozen; p.frozen {
			s.stills++
		}
		by := search.Step{Format: "client %d goes on", A: 0}
		if p.frozen {
			by = search.Step{Format: "client %d STANDS STILL", A: 0, Fault: true}
		}
		visit(s, by)
	}
}

// forward moves the clock of one node forward: its deadlines come sooner.
func (s *state) forward(n int, by uint8) {
	s.node[n].pass(by)
	for i := range s.client {
		s.client[i].link[n].shift += by
	}
}

func (n *node) pass(ticks uint8) {
	n.quarantine -= min(n.quarantine, ticks)
	n.ttl -= min(n.ttl, ticks)
	if n.ttl == 0 {
		n.owner = 0
	}
}

func (c Config) tick(s state, visit visit) {
	for n := range s.node {
		s.node[n].pass(1)
	}
	for i := range s.client {
		p := &s.client[i]
		if p.frozen {
			if int(s.still) >= c.Standstill {
				return // it has to run on first
			}
			s.still++
			p.blind = true
			for n := range p.link {
				p.link[n].shift++
			}
			continue
		}
		p.tick(uint8(c.TTL))
	}
	visit(s, search.Step{Format: "time passes"})
}

func (p *client) tick(ttl uint8) {
	if p.phase == asking {
		p.elapsed = min(p.elapsed+1, ttl)
	}
	if p.renewing {
		p.since = min(p.since+1, ttl)
	}
	p.left -= min(p.left, 1)
	if p.phase == holding && p.left == 0 || p.phase == asking && p.elapsed == ttl {
		p.phase, p.renewing, p.since, p.met = ended, false, 0, false
	}
	for n := range p.link {
		l := &p.link[n]
		l.until -= min(l.until, 1)
		if l.reply != nothing { // too late for a vote
			l.reply = useless
		}
		if p.phase == ended {
			l.ack = false
		}
	}
}
