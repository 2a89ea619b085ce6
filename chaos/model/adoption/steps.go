package adoption

import "github.com/d0720281/redlock/chaos/model/search"

// The steps that can happen in a state.

type visit = func(state, search.Step)

func (c Config) next(s state, visit visit) {
	for p := range c.outsider() + 1 {
		q := &s.process[p]
		switch q.phase {
		case idle:
			c.begin(s, p, visit)
		case looking:
			c.look(s, p, visit)
		case asking:
			c.decide(s, p, visit)
		case raising:
			c.win(s, p, visit)
		case holding:
			c.hold(s, p, visit)
		}
		if c.FailedReleases && c.adopts(p) && (q.phase == asking || q.phase == raising) {
			s := s
			s.end(p)
			s.process[p].released = true
			visit(s, search.Step{Format: "process %d: the adoption has failed, and RELEASES", A: p})
		}
		for i := range s.node {
			c.deliver(s, p, i, visit)
		}
	}
	c.tick(s, visit)
}

// begin begins an attempt of the outsider, or the look of an adopter.
func (c Config) begin(s state, p int, visit visit) {
	switch {
	case c.adopts(p):
	case c.NoOutsider:
		return
	default:
		s.ask(p)
		visit(s, search.Step{Format: "process %d, an outsider, asks all nodes", A: p})
		return
	}
	for from := range p {
		if f := &s.process[from]; !f.won || from == 0 && p > 1 && s.process[p-1].phase == idle {
			continue // adopters that are alike begin in the order of their numbers
		}
		s := s
		q := &s.process[p]
		q.phase, q.from = looking, uint8(from)
		visit(s, search.Step{Format: "process %d looks for the lease of process %d", A: p, B: from})
	}
}

// ask sends the acquire of an attempt, or the adopt.
func (s *state) ask(p int) {
	q := &s.process[p]
	q.phase, q.elapsed, q.sent[acquire] = asking, 0, notAfter+1
	for b := range s.process {
		if s.process[b].won {
			q.floor = max(q.floor, s.process[b].token)
		}
	}
}

// look reads one node after the other. It needs that a quorum has the key, and that the lease can be adopted.
func (c Config) look(s state, p int, visit visit) {
	from, keys := int(s.process[p].from), 0
	for i := range s.node {
		n := &s.node[i]
		if n.look[p-1]&has != 0 {
			keys++
		}
		if n.look[p-1] == 0 {
			s := s
			n := &s.node[i]
			n.look[p-1] = c.seen(&s, p, n.owner == c.id(&s, from)+1, n.given, n.counter)
			if n.look[p-1]&has != 0 && !c.AnyValue {
				n.value[p-1] = n.given + 1
			}
			visit(s, search.Step{Format: "process %d looks at node %d", A: p, B: i})
		}
	}
	if keys < quorum || !c.alone(&s, p) {
		return
	}
	s.unsee(p)
	if c.ByToken {
		s.end(p)
		s.process[p].released = true
		visit(s, search.Step{Format: "process %d RELEASES the lease of process %d", A: p, B: from})
		return
	}
	s.ask(p)
	visit(s, search.Step{Format: "process %d ADOPTS from process %d", A: p, B: from})
}

// seen returns what an adopter knows of a node by its answer: whether the key was that of the former holder, the
// counter that came with that key, and the counter of the node.
func (c Config) seen(s *state, p int, isFormer bool, given, counter uint8) uint8 {
	saw, token := seen, s.process[s.process[p].from].token
	if isFormer {
		saw |= has
		if given > 0 && (given <= token || c.AnyGrant || !c.Fence) {
			saw |= granted
		}
	}
	if counter > token {
		saw |= later
	}
	return saw
}

// alone reports whether no other lease can have been granted since that of the former holder, by what an adopter has
// seen. Nodes that it has not seen count as moved.
func (c Config) alone(s *state, p int) bool {
	asGranted, moved := 0, 0
	for i := range s.node {
		saw := s.node[i].look[p-1]
		if saw&granted != 0 {
			asGranted++
		}
		if saw&seen == 0 || saw&later != 0 {
			moved++
		}
	}
	return asGranted > nodes-quorum || c.Fence && moved < quorum || c.KeysAlone
}

func (s *state) unsee(p int) {
	for i := range s.node {
		s.node[i].look[p-1] = 0
	}
}

// decide fixes the token when a quorum has voted. Nodes that count less are asked to raise their counters.
func (c Config) decide(s state, p int, visit visit) {
	q := &s.process[p]
	votes, token := 0, uint8(0)
	for i := range s.node {
		if v := s.node[i].vote[p]; v > 0 {
			votes, token = votes+1, max(token, v)
		}
	}
	if votes < quorum || c.adopts(p) && !c.VotesUnread && !c.alone(&s, p) {
		return
	}
	if c.adopts(p) {
		s.unsee(p)
	}
	q.phase, q.token, q.sent[raise] = raising, token, notAfter+1
	count := 0
	for i := range s.node {
		if s.node[i].vote[p] == token {
			count++
		}
	}
	if count >= quorum {
		q.sent[raise] = 0
		c.win(s, p, visit)
		return
	}
	visit(s, search.Step{Format: "process %d asks to raise to %d", A: p, B: int(token)})
}

// win ends an attempt whose token a quorum counts.
func (c Config) win(s state, p int, visit visit) {
	q := &s.process[p]
	count := 0
	for i := range s.node {
		if n := &s.node[i]; n.vote[p] == q.token || n.raised>>p&1 != 0 {
			count++
		}
	}
	if count < quorum {
		return
	}
	by := search.Step{Format: "process %d HOLDS for %d, with token %d", A: p, B: c.TTL[p] - int(q.elapsed), C: int(q.token)}
	q.phase, q.left, q.won, q.elapsed = holding, uint8(by.B), true, 0
	if c.adopts(p) {
		from := &s.process[q.from]
		if from.superseded {
			by.Breaks = TwoAdoptions
		}
		from.superseded = true
		if s.process[c.outsider()].won {
			by.Breaks = NotAlone
		}
	}
	for b := range s.process {
		switch r := &s.process[b]; {
		case b == p:
		case (p == c.outsider() || b == c.outsider()) && r.left > 0 && !r.superseded:
			by.Breaks = TwoHolders
		case c.SharedID && c.adopts(p): // tokens and all are those of the former holder
		case r.won && r.token == q.token || q.token < q.floor:
			by.Breaks = OldToken
		}
	}
	visit(s, by)
}

// hold has the steps of a holder.
func (c Config) hold(s state, p int, visit visit) {
	if c.Releases[p] {
		s := s
		s.end(p)
		s.process[p].released = true
		visit(s, search.Step{Format: "process %d releases", A: p})
	}
	q := &s.process[p]
	if q.sent[extend] == 0 {
		if int(q.rounds) < c.Extensions[p] {
			q.rounds++
			q.sent[extend], q.after = notAfter+1, q.superseded
			visit(s, search.Step{Format: "process %d extends", A: p})
		}
		return
	}
	count := uint8(0)
	for i := range s.node {
		count += s.node[i].counted >> p & 1
	}
	if count < quorum {
		return
	}
	for i := range s.node {
		s.node[i].counted &^= 1 << p
	}
	by := search.Step{Format: "process %d GOES ON for %d", A: p, B: c.TTL[p] - q.age(extend)}
	if q.after {
		by.Breaks = Revived
	}
	q.left = max(q.left, uint8(by.B))
	visit(s, by)
}

// age returns for how long a message has been under way.
func (q *process) age(m message) int { return notAfter + 1 - int(q.sent[m]) }

// end ends an attempt or a lease for its process. What is under way may still arrive.
func (s *state) end(p int) {
	q := &s.process[p]
	q.phase, q.elapsed, q.left, q.after, q.rounds = ended, 0, 0, false, 0
	s.forget(p)
	for i := range s.node {
		n := &s.node[i]
		n.keep[p] = 0
		n.had &^= 1 << p
		if p > 0 && p <= adopters {
			n.look[p-1] = 0
		}
		n.raised &^= 1 << p
		n.counted &^= 1 << p
	}
}

// forget drops the votes that no message of the process needs any more.
func (s *state) forget(p int) {
	q := &s.process[p]
	if q.phase < ended || q.sent[extend]+q.sent[raise] > 0 {
		return
	}
	for i := range s.node {
		s.node[i].vote[p] = 0
	}
}

// deliver has the messages of a process arrive at a node. The reply comes at once or is lost.
func (c Config) deliver(s state, p, i int, visit visit) {
	q := &s.process[p]
	if q.sent[acquire] > 0 && (p > 0 || c.Twice || s.node[i].awaits) || p == c.outsider() && (q.phase == asking || q.phase == raising) {
		c.acquire(s, p, i, visit)
	}
	if q.sent[raise] > 0 {
		c.raise(s, p, i, visit)
	}
	if q.sent[extend] > 0 {
		c.extend(s, p, i, visit)
	}
	if q.released {
		c.release(s, p, i, visit)
	}
}

// changed visits a state after a message other than an acquire. An id that is void on the node must not
// change anything there, but for a key that its own late acquire has set.
func (c Config) changed(before, s *state, p, i int, by search.Step, visit visit) {
	n, was := &s.node[i], &before.node[i]
	if s.process[p].superseded && was.part>>p&1 != 0 && was.owner != c.id(s, p)+1 &&
		(n.owner != was.owner || n.given != was.given || n.life != was.life || n.counter != was.counter) {
		by.Breaks = VoidActs
	}
	if *s != *before || by.Breaks != "" {
		visit(*s, by)
	}
}

func (c Config) acquire(s state, p, i int, visit visit) {
	before := s
	n, q := &s.node[i], &s.process[p]
	own, given, saw := uint8(p+1), uint8(0), uint8(0)
	switch {
	case c.adopts(p):
		if given = c.adopt(&s, p, n); given > 0 {
			was := &before.node[i]
			saw = c.seen(&s, p, was.owner == c.id(&s, int(q.from))+1, was.given, given-1)
		}
	case n.owner == own:
		given = n.given
	case n.owner == 0:
		n.owner, n.given, n.life, n.counter = own, n.counter+1, uint8(c.TTL[p]), n.counter+1
		given = n.given
	}
	if p == 0 && !c.Twice {
		n.awaits = false
	}
	if s != before && p != c.outsider() {
		visit(s, search.Step{Format: "node %d has the acquire of process %d, the reply is lost", A: i, B: p})
	}
	if given == 0 || q.phase != asking && q.phase != raising && q.phase != holding {
		return
	}
	n.vote[p] = given
	if saw > 0 && !c.VotesUnread && q.phase == asking {
		n.look[p-1] |= saw
	}
	if p != c.outsider() {
		n.had |= 1 << p
		n.keep[p] = max(n.keep[p], uint8(max(0, c.TTL[p]-q.age(acquire))))
	}
	if s != before {
		visit(s, search.Step{Format: "node %d grants %d to process %d", A: i, B: int(given), C: p})
	}
}

// adopt has a node carry out the adopt of a process. It returns the counter that is the vote, or 0.
func (c Config) adopt(s *state, p int, n *node) (given uint8) {
	from := s.process[p].from
	former, ttl := c.id(s, int(from))+1, uint8(c.TTL[p])
	if c.SharedID {
		if n.owner == former {
			n.life = max(n.life, ttl)
			return s.process[from].token
		}
		return 0
	}
	life, takes := max(n.life, ttl), n.owner == former && (c.AnyValue || n.value[p-1] == n.given+1)
	if c.Shortens {
		life = ttl
	}
	switch {
	case n.owner == uint8(p+1):
		return n.given
	case n.owner == 0:
		takes = c.TakesMissing
		if !c.KeepWhereGone {
			c.makeVoid(n, from, life)
		}
	case takes && c.KeepWhereTaken:
	case takes:
		c.makeVoid(n, from, life)
	case n.void[from] == 0:
		c.makeVoid(n, from, life)
		takes = c.NoExclusion
	default:
		takes = c.NoExclusion
	}
	n.part |= 1 << from
	if !takes {
		return 0
	}
	if !c.KeepsCounter {
		n.counter++
		n.given = n.counter
	}
	n.owner, n.life = uint8(p+1), life
	return n.given
}

func (c Config) makeVoid(n *node, from, life uint8) {
	n.void[from] = max(life, uint8(c.Void))
}

func (c Config) raise(s state, p, i int, visit visit) {
	before := s
	n, q := &s.node[i], &s.process[p]
	vote := n.vote[p]
	if vote == 0 || vote >= q.token || n.owner != c.id(&s, p)+1 || n.given != vote {
		return
	}
	n.counter = max(n.counter, q.token)
	by := search.Step{Format: "node %d raises to %d for process %d, the reply is lost", A: i, B: int(q.token), C: p}
	c.changed(&before, &s, p, i, by, visit)
	if q.phase == raising {
		n.raised |= 1 << p
		by.Format = "node %d raises to %d for process %d"
		c.changed(&before, &s, p, i, by, visit)
	}
}

func (c Config) extend(s state, p, i int, visit visit) {
	before := s
	n, q := &s.node[i], &s.process[p]
	own, ttl := c.id(&s, p)+1, uint8(c.TTL[p])
	filled := n.owner == 0
	switch {
	case n.owner == own:
		n.life = max(n.life, ttl)
		if n.given > 0 && n.given == n.vote[p] {
			n.counter = max(n.counter, q.token)
		}
	case filled && n.void[own-1] == 0:
		n.owner, n.given, n.life = own, 0, ttl
	default: // TAKEN or ADOPTED
		return
	}
	lost := s
	by := search.Step{Format: "node %d extends for process %d", A: i, B: p}
	if filled {
		by.Format = "node %d fills for process %d"
	}
	switch again := filled && n.had>>p&1 != 0; {
	case q.phase != holding:
	case again && n.keep[p] > 0:
		by.Breaks = FalseEvidence
		visit(s, by)
	case !again:
		n.had |= 1 << p
		n.counted |= 1 << p
		n.keep[p] = max(n.keep[p], uint8(max(0, c.TTL[p]-q.age(extend))))
		c.changed(&before, &s, p, i, by, visit)
	}
	by = search.Step{Format: "node %d has the extend of process %d, the reply is lost", A: i, B: p}
	c.changed(&before, &lost, p, i, by, visit)
}

func (c Config) release(s state, p, i int, visit visit) {
	before := s
	n, id := &s.node[i], c.id(&s, p)
	if c.ByToken && c.adopts(p) {
		id = s.process[p].from
		if n.void[id] > 0 {
			return
		}
		if !c.KeepWhereTaken {
			c.makeVoid(n, id, n.life)
		}
	}
	if n.owner == id+1 {
		n.owner, n.given, n.life = 0, 0, 0
		c.changed(&before, &s, p, i, search.Step{Format: "node %d has the release of process %d", A: i, B: p}, visit)
	}
}

func (c Config) tick(s state, visit visit) {
	for i := range s.node {
		n := &s.node[i]
		if n.life = max(n.life, 1) - 1; n.life == 0 {
			n.owner, n.given = 0, 0
		}
		for p := range most {
			n.void[p] = max(n.void[p], 1) - 1
			n.keep[p] = max(n.keep[p], 1) - 1
		}
	}
	for p := range c.outsider() + 1 {
		q := &s.process[p]
		for m := range q.sent {
			q.sent[m] = max(q.sent[m], 1) - 1
		}
		if q.sent[extend] == 0 {
			for i := range s.node {
				s.node[i].counted &^= 1 << p
			}
		}
		switch q.phase {
		case looking:
			if q.elapsed++; q.elapsed > notAfter { // a node that has not answered by now has failed
				q.phase, q.elapsed, q.from = idle, 0, 0
				s.unsee(p)
				s.node[0].value[p-1], s.node[1].value[p-1], s.node[2].value[p-1] = 0, 0, 0
			}
		case asking, raising:
			if q.elapsed++; int(q.elapsed) >= c.TTL[p] {
				s.end(p)
			}
		case holding:
			if q.left--; q.left == 0 {
				s.end(p)
			}
		}
		s.forget(p)
	}
	for i := range s.node {
		for p := 1; p <= c.Adopters; p++ {
			if q := &s.process[p]; q.phase > looking && q.sent[acquire] == 0 {
				s.node[i].value[p-1] = 0
			}
		}
		s.node[i].awaits = s.node[i].awaits && s.process[0].sent[acquire] > 0
	}
	visit(s, search.Step{Format: "time passes"})
}
