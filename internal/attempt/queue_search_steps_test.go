package attempt

import (
	"slices"
	"time"

	"github.com/d0720281/redlock/chaos/model/search"
	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file has the steps of queue_search_test.go: what the processes do, what can happen to them,
// and what the nodes do.

var searchNow = time.Unix(1000, 0)

// number is the place of a process' state in the list.
func (c *queueSearch) number(p *queueProcess) uint32 {
	l := &p.line
	if l.First() == nil && !l.Has() { // the lines of a process have no such line
		*l = *line.NewLine[*lease, struct{}](line.Key{Shared: p.shared}, &c.policy)
	}
	l.Failures, l.Elsewhere = min(l.Failures, 1), min(l.Elsewhere, c.policy.MostRefused+1)
	key := make([]byte, 0, 64)
	is := func(flags ...bool) {
		b := byte(0)
		for _, f := range flags {
			b <<= 1
			if f {
				b |= 1
			}
		}
		key = append(key, b)
	}
	is(l.Has(), l.Unheard, l.AskAt.After(searchNow), l.AskAt.After(searchNow.Add(longWait)), l.Rests, l.IsCalled, l.Released)
	is(p.crowded, p.extended, p.shared, p.has)
	key = append(key, byte(l.Failures), byte(l.Elsewhere), byte(l.QueuedAt), byte(p.handed), byte(p.index(l.First())), byte(p.index(l.Rear())))
	for k := range p.caller {
		x := &p.caller[k]
		is(x.woken, x.Idle(), x.Served())
		key = append(key, byte(x.stage), byte(x.timer))
	}
	if a := p.attempt; a != nil {
		w := &a.approach
		w.rounds = min(w.rounds, c.asks.roundsAtOnce)
		is(w.Patient, w.taken, w.waitsTo != 0, w.waited, w.againAt != 0)
		is(w.readers)
		is(w.word.Heard, w.word.Refused, w.word.Vetoed, w.word.Others > 0)
		key = append(key, byte(a.phase), byte(w.rounds))
		for i := range a.Nodes {
			n := &a.Nodes[i]
			is(n.refused, n.pending)
			key = append(key, byte(n.Vote), byte(n.knows))
		}
	}
	k, ok := c.numbers[string(key)]
	if !ok {
		k = uint32(len(c.list))
		c.list, c.numbers[string(key)] = append(c.list, p), k
	}
	return k
}

// index is the place of a caller among those of its process, or -1.
func (p *queueProcess) index(x *caller) int {
	for k := range p.caller {
		if &p.caller[k].caller == x {
			return k
		}
	}
	return -1
}

func (p *queueProcess) clone() *queueProcess {
	q := *p
	same := func(x *caller) *caller {
		if x == nil {
			return nil
		}
		return &q.caller[p.index(x)].caller
	}
	var all []*caller
	for k := range q.caller {
		all = append(all, &q.caller[k].caller)
	}
	q.line.Relink(all, same)
	if p.attempt != nil {
		a := *p.attempt
		a.Nodes = slices.Clone(a.Nodes)
		q.attempt = &a
	}
	return &q
}

// step has a process take an event.
func (c *queueSearch) step(e queueStep) queueOutcome {
	if o, ok := c.outcomes[e]; ok {
		return o
	}
	p, o := c.list[e.process].clone(), queueOutcome{}
	x := &p.caller[e.caller]
	switch e.what {
	case callerComes:
		*x = queueCaller{stage: inLine}
		p.line.Join(&x.caller)
		c.look(p, x, &o)
	case callerTimesOut:
		if p.line.AskAt = searchNow; e.late { // the queue node has told the end of what is in the way
			p.line.Unheard, p.line.Rests = false, true
		}
		c.look(p, x, &o)
	case callerLooks:
		c.look(p, x, &o)
	case callerUnlocks:
		*x = queueCaller{stage: gone}
		c.unlock(p, &o)
	case callerGivesUp:
		c.giveUp(p, x, &o)
	case nodeAnswers:
		c.answer(p, e, &o)
	case attemptTimesOut:
		c.advance(p, Event{What: TimeUp, Later: make([]instant, c.nodes)}, p.attempt.Arm(), &o)
	case processCalled:
		p.wake(c.queue.call(&p.line))
	case processExtends:
		p.extended = true
		o.send(theQueueNode, extend)
	}
	o.process = c.number(p)
	c.outcomes[e] = o
	return o
}

func (p *queueProcess) wake(x *caller) {
	if x != nil {
		p.caller[p.index(x)].woken = true
	}
}

// look has a caller look what to do.
func (c *queueSearch) look(p *queueProcess, x *queueCaller, o *queueOutcome) {
	x.woken, x.timer = false, noTimer
	switch next := p.line.Look(&x.caller, p.crowded, searchNow); {
	case next.Step == line.Take:
		*x = queueCaller{stage: holding}
	case next.Step == line.Rest:
		p.line.Rested(theQueueNode, !c.deaf, searchNow)
		if o.send(theQueueNode, rest); c.deaf {
			p.line.Placed(wire.Word{Left: -1}, searchNow)
		}
		c.look(p, x, o)
	case next.Step == line.Ask:
		p.attempt = &Attempt{
			Config: Config{Rules: c.rules, Need: c.need, Timeout: searchTimeout, Skew: func(int, instant) (error, bool) { return nil, true }},
			Nodes:  make([]Voter, c.nodes),
			start:  searchStart, useless: clock.Never,
			approach: approach{policy: &c.asks, Way: Way{Strategy: next.How, QueueNode: theQueueNode, Shared: p.shared}},
		}
		c.advance(p, Event{What: Begun}, searchStart, o)
	case next.For > longWait:
		x.timer = tillCall
	case next.For > 0:
		x.timer = pauses
	}
}

// The moments of an attempt.
const (
	searchStart   instant = 1
	searchTimeout         = 1000
	searchSlow    instant = 1 + searchTimeout/2 // too late for a quorum that refuses what the queue node has granted
)

// advance has the attempt of a process take an event.
func (c *queueSearch) advance(p *queueProcess, e Event, now instant, o *queueOutcome) {
	a, head := p.attempt, &p.caller[p.index(p.line.First())]
	for _, do := range a.Step(e, now, nil) {
		if do.Op != wire.Acquire {
			panic("queue search: an attempt raises counters")
		}
		o.send(do.Node, acquire)
	}
	switch {
	case a.phase == won:
		if w := a.approach.word; w.Heard {
			p.crowded = w.Others > 0
		}
		queuedAt, wake := p.held(&c.lease, &head.caller)
		p.wake(wake)
		if queuedAt != line.Nowhere {
			o.send(queuedAt, rollback)
		}
		*head = queueCaller{stage: holding}
		p.attempt, p.handed, p.extended, o.won = nil, 0, false, true
	case a.phase == lost && e.What == GaveUp:
		c.failed(p, p.line.First().Next() != nil, o)
	case a.phase == lost:
		p.line.Failed(c.failed(p, true, o), func(int) time.Duration { return 1 }, searchNow)
		head.woken = true
	}
}

// held notes that the attempt of the head of the line was granted.
func (p *queueProcess) held(g *lease, head *caller) (queuedAt int, wake *caller) {
	if !p.shared {
		return p.line.Held(g, head, theQueueNode)
	}
	p.has = true
	leaves := line.Nowhere
	if w := p.attempt.approach.word; w.Heard && !w.Refused {
		leaves = theQueueNode
	}
	_, queuedAt, wake = p.line.Admit(head, leaves, func(*struct{}) bool { return false })
	return queuedAt, wake
}

// failed ends an attempt that was not granted.
func (c *queueSearch) failed(p *queueProcess, goesOn bool, o *queueOutcome) line.Failure {
	a := p.attempt
	p.attempt = nil
	for i := range a.Nodes {
		n := &a.Nodes[i]
		switch {
		case i != theQueueNode || !goesOn || !c.queue.rests(a):
			o.send(i, rollback)
		case n.Vote == Yes:
			o.send(i, restGranted)
		default:
			o.send(i, rest)
		}
	}
	f := line.Failure{Word: a.approach.word, Elsewhere: a.Elsewhere(), Queued: goesOn && a.approach.rests(), Listens: !c.deaf}
	if f.Word.Heard {
		p.crowded = f.Word.Others > 0
	}
	if f.Queued {
		p.line.QueuedAt = theQueueNode
	}
	return f
}

// unlock ends the lease of a caller that has gone.
func (c *queueSearch) unlock(p *queueProcess, o *queueOutcome) {
	if heir := p.line.Heir(); p.line.Has() && heir != nil && p.handed+1 < c.block {
		p.handed++
		queuedAt, next := p.line.HandedOver(heir, theQueueNode)
		if queuedAt != line.Nowhere {
			o.send(queuedAt, rollback)
		}
		p.wake(next)
		p.wake(heir)
		return
	}
	p.has = false
	for i := range c.nodes {
		o.send(i, release)
	}
	p.wake(p.line.Freed(&c.lease))
}

// giveUp is the end of a caller's context.
func (c *queueSearch) giveUp(p *queueProcess, x *queueCaller, o *queueOutcome) {
	if p.attempt != nil && p.line.First() == &x.caller {
		c.advance(p, Event{What: GaveUp}, searchStart, o)
	}
	served, queuedAt, wake := c.queue.leave(&p.line, &x.caller)
	*x = queueCaller{stage: gone}
	p.wake(wake)
	if served {
		c.unlock(p, o)
	}
	if queuedAt != line.Nowhere {
		o.send(queuedAt, rollback)
	}
}

// answer has a process hear of a node.
func (c *queueSearch) answer(p *queueProcess, e queueStep, o *queueOutcome) {
	if p.attempt == nil || e.said == endsCrowded { // the verdict was before
		p.crowded = e.others
		return
	}
	v := Vote{Counter: 1, Readers: e.readers}
	switch e.said {
	case refused, vetoed:
		v = Vote{Refused: true, Err: node.ErrHeldByOther, Readers: e.readers}
	case unreachable:
		v = Vote{Err: errNodeTimeout}
	}
	if e.node == theQueueNode && e.said != unreachable {
		v.Word = wire.Word{Heard: true, Refused: v.Refused, Vetoed: e.said == vetoed, Left: -1}
		if e.others {
			v.Word.Others = 1
		}
		v.Word = c.queue.heeds(v.Word)
	}
	now := searchStart
	if e.late {
		now = searchSlow
	}
	c.advance(p, Event{What: Voted, Node: int(e.node), Vote: v}, now, o)
}

// What can happen.

func (c *queueSearch) next(s queueState, visit func(queueState, search.Step)) {
	for p := range c.callers {
		if s.process[p] != dead {
			c.local(s, p, visit)
		}
		for i := range c.nodes {
			c.deliver(s, p, i, visit)
		}
	}
	if s.turn == theNote {
		s := s
		s.turn = noProcess
		visit(s, search.Step{Format: "the note ends"})
	}
	if s.isTurn() && (c.turnsEnd || c.turnOfDead(&s)) {
		s := s
		for _, x := range c.called(&s) {
			if s.unseen>>x&1 != 0 {
				s.queue.leave(x)
			}
		}
		s.turn, s.unseen = noProcess, 0
		visit(s, search.Step{Format: "the turn ends"})
	}
	for i, k := range s.key {
		if k != noProcess && s.process[k-1] == dead {
			s := s
			s.key[i] = noProcess
			visit(s, search.Step{Format: "node %d: the key of process %d ends", A: i, B: int(k - 1)})
		}
		for p := range c.callers {
			if s.readers[i]>>p&1 != 0 && s.process[p] == dead {
				s := s
				s.readers[i] &^= 1 << p
				visit(s, search.Step{Format: "node %d: the key of reader %d ends", A: i, B: p})
			}
		}
	}
	if c.queueNodeDies && !s.queueNodeDead {
		s := s
		s.queueNodeDead = true
		s.key[theQueueNode], s.readers[theQueueNode], s.turn, s.queue = noProcess, 0, noProcess, processes{}
		visit(s, search.Step{Format: "the queue node dies", Fault: true})
	}
}

// turnOfDead reports whether a process that has died has the turn.
func (c *queueSearch) turnOfDead(s *queueState) bool {
	list := c.called(s)
	return slices.ContainsFunc(list[:], func(x uint8) bool { return x != noProcess && s.process[x-1] == dead })
}

// local has the steps of a process without a node.
func (c *queueSearch) local(s queueState, p int, visit func(queueState, search.Step)) {
	at, busiest := c.list[s.process[p]], s.busiest(p)
	do := func(e queueStep, by search.Step) {
		s := s
		switch {
		case e.what == callerGivesUp:
			s.left++
		case e.what == attemptTimesOut && by.Fault:
			s.timeUp++
		}
		by.A, by.B, by.Breaks = p, int(e.caller), c.take(&s, p, e)
		visit(s, by)
	}
	// ask does what may begin an attempt, if there is room: lanes are short.
	ask := func(e queueStep, by search.Step) {
		if busiest > 1 {
			return
		}
		do(e, by)
		if e.what == callerTimesOut && at.line.Failures > 0 {
			e.late = true
			do(e, by)
		}
	}
	for k := range at.caller {
		x := &at.caller[k]
		e := queueStep{caller: uint8(k)}
		asks := at.attempt != nil && at.line.First() == &x.caller
		switch {
		case x.stage == absent && (k == 0 || at.caller[k-1].stage == gone || at.caller[k-1].stage != absent && !c.oneByOne):
			e.what = callerComes
			ask(e, search.Step{Format: "process %d: caller %d comes"})
		case x.stage == inLine && !asks && x.woken:
			e.what = callerLooks
			ask(e, search.Step{Format: "process %d: caller %d looks"})
		case x.stage == inLine && !asks && (x.timer == pauses || x.timer == tillCall && c.timers):
			e.what = callerTimesOut
			ask(e, search.Step{Format: "process %d: caller %d has paused"})
		case x.stage == holding && busiest < laneDepth:
			e.what = callerUnlocks
			do(e, search.Step{Format: "process %d: caller %d unlocks"})
			if c.renewals && !at.extended && busiest < laneDepth-1 {
				do(queueStep{what: processExtends}, search.Step{Format: "process %d extends"})
			}
		}
		if x.stage == inLine && int(s.left) < c.leaves && busiest < laneDepth-1 {
			e.what = callerGivesUp
			do(e, search.Step{Format: "process %d: caller %d gives up", Fault: true})
		}
	}
	if at.attempt != nil {
		e := queueStep{what: attemptTimesOut}
		switch w := &at.attempt.approach; {
		case at.attempt.holdsOpen():
			if c.slowQueueNode {
				do(e, search.Step{Format: "process %d goes on without the queue node's answer"})
			}
		case w.againAt != 0:
			do(e, search.Step{Format: "process %d asks the nodes again that refused"})
		case int(s.timeUp) < c.timeUp:
			do(e, search.Step{Format: "process %d: the time of the attempt is up", Fault: true})
		}
	}
	if s.calls[p] > 0 {
		s := s
		s.calls[p]--
		if int(s.lostCalls) < c.lostCalls {
			s := s
			s.lostCalls++
			visit(s, search.Step{Format: "a call of process %d is lost", A: p, Fault: true})
		}
		c.take(&s, p, queueStep{what: processCalled})
		visit(s, search.Step{Format: "process %d is called", A: p})
	}
	if int(s.deaths) < c.deaths {
		s.deaths++
		s.process[p], s.link[p], s.calls[p] = dead, [queueNodes]queueLink{}, 0
		s.said.leave(uint8(p + 1))
		s.undate(p)
		visit(s, search.Step{Format: "process %d dies", A: p, Fault: true})
	}
}

// busiest is the number of messages on the longest lane of a process.
func (s *queueState) busiest(p int) (most int) {
	for i := range s.link[p] {
		for j, m := range s.link[p][i].lane {
			if m != noMessage {
				most = max(most, j+1)
			}
		}
	}
	return most
}

// take has a process take an event, and puts what that sends on its way. It says what breaks.
func (c *queueSearch) take(s *queueState, p int, e queueStep) (breaks string) {
	e.process = s.process[p]
	o, me := c.step(e), uint8(p+1)
	s.process[p] = o.process
	for _, do := range o.sends[:o.n] {
		s.send(p, int(do.node), do.message)
		if e.what == callerGivesUp && do.node == theQueueNode && do.message == rollback {
			s.said.leave(me)
		}
	}
	if o.won {
		for _, x := range s.said {
			if x == me || x == noProcess {
				break
			}
			if !c.reads(x) || !c.reads(me) {
				breaks = overtakes
			}
		}
		s.said.leave(me)
		s.undate(p)
		for i := range s.link[p] {
			s.link[p][i].leased, s.link[p][i].kept = false, false
		}
	}
	if at := c.list[o.process]; at.line.First() == nil && !at.holds() {
		s.said.leave(me)
	}
	return breaks
}

// send puts a message on its way. Behind the end of an attempt or a lease no answer matters.
func (s *queueState) send(p, i int, m queueMessage) {
	l := &s.link[p][i]
	if m != acquire && m != extend {
		for j, x := range l.lane {
			if x == acquire {
				l.lane[j] = acquireLate
			}
		}
		*l = queueLink{lane: l.lane}
		s.undate(p)
	}
	j := slices.Index(l.lane[:], noMessage)
	l.lane[j] = m
}

// date marks the releases of other processes that are on their way when the queue node grants
// the attempt of a process. They arrive while the attempt asks again. So refusals of before do
// not count.
func (s *queueState) date(p int) {
	for other := range s.link {
		for i := range s.link[other] {
			for j, m := range s.link[other][i].lane {
				if other != p && i != theQueueNode && m.kind() == release {
					s.link[other][i].lane[j] = m | before(p)
				}
			}
		}
	}
	for i := range s.link[p] {
		s.link[p][i].leased, s.link[p][i].kept = false, false
	}
}

func (s *queueState) undate(p int) {
	for other := range s.link {
		for i := range s.link[other] {
			for j := range s.link[other][i].lane {
				s.link[other][i].lane[j] &^= before(p)
			}
		}
	}
}

// deliver moves a message to a node, or its answer back.
func (c *queueSearch) deliver(s queueState, p, i int, visit func(queueState, search.Step)) {
	l := &s.link[p][i]
	if l.answer != noAnswer {
		c.hear(s, p, i, visit)
	}
	m := l.lane[0].kind()
	if m == noMessage || m == acquire && l.answer != noAnswer {
		return
	}
	copy(l.lane[:], l.lane[1:])
	l.lane[laneDepth-1] = noMessage
	switch {
	case i != theQueueNode || !s.queueNodeDead:
		c.serve(&s, p, i, m)
	case m == acquire:
		l.answer = unreachable
	}
	visit(s, search.Step{Format: arrivals[m], A: i, B: p})
}

var arrivals = [...]string{
	acquire:     "node %d has the acquire of process %d",
	acquireLate: "node %d has a late acquire of process %d",
	extend:      "node %d has the extension of process %d",
	release:     "node %d has the release of process %d",
	rollback:    "node %d has the rollback of process %d",
	rest:        "node %d has the rest of process %d, which it had refused",
	restGranted: "node %d has the rest of process %d, which it had granted",
}

// hear has a process hear the answer of a node.
func (c *queueSearch) hear(s queueState, p, i int, visit func(queueState, search.Step)) {
	l, a := &s.link[p][i], c.list[s.process[p]].attempt
	if !c.slowQueueNode && c.inOrder && i != theQueueNode && a != nil && a.Nodes[theQueueNode].Vote == Awaited {
		return
	}
	e := queueStep{what: nodeAnswers, node: uint8(i), said: l.answer, others: l.others}
	by := search.Step{Format: answers[l.answer], A: p, B: i}
	l.kept = l.leased && a != nil
	e.readers = l.beside && e.said != vetoed
	l.answer, l.others, l.leased, l.beside = noAnswer, false, false, false
	kept := 0
	for i := range s.link[p] {
		if s.link[p][i].kept {
			kept++
		}
	}
	tell := func(s queueState) {
		by.Breaks = c.take(&s, p, e)
		visit(s, by)
	}
	tell(s)
	if c.readers && e.said == refused && i != theQueueNode {
		e.readers, by.Format = true, "process %d is refused by node %d, which names readers"
		tell(s)
		e.readers = false
	}
	if kept >= c.need && a.Nodes[theQueueNode].Vote == Yes {
		e.late, by.Format = true, "process %d is refused by node %d for long"
		tell(s)
	}
}

var answers = [...]string{
	granted:     "process %d is granted by node %d",
	refused:     "process %d is refused by node %d",
	vetoed:      "process %d is vetoed by node %d",
	unreachable: "process %d cannot reach node %d",
	endsCrowded: "process %d hears of its release by node %d: others wait",
}

// The nodes.

// serve has a node take a message.
func (c *queueSearch) serve(s *queueState, p, i int, m queueMessage) {
	me := uint8(p + 1)
	switch m {
	case acquire, acquireLate:
		said := c.acquire(s, me, i)
		if m == acquireLate {
			return
		}
		l := &s.link[p][i]
		l.answer = said
		l.others = i == theQueueNode && (said == vetoed || c.others(&s.queue, me))
		l.beside = i != theQueueNode && s.readers[i]&^(1<<p) != 0
		l.leased = c.elsewhere && said == refused && (c.late || c.isLeased(s, p, i))
		if i == theQueueNode && said == granted {
			if c.inOrder {
				s.said.join(me)
			}
			if c.elsewhere && !c.late {
				s.date(p)
			}
		}
		return
	case extend:
		switch {
		case s.key[i] != noProcess:
		case c.reads(me):
			s.readers[i] |= 1 << p
		case s.readers[i] == 0:
			s.key[i] = me
		}
		return
	}
	if s.key[i] == me {
		s.key[i] = noProcess
	}
	s.readers[i] &^= 1 << p
	if i != theQueueNode {
		return
	}
	if l := &s.link[p][i]; c.ended(s, p, m) && m == release && l.answer == noAnswer && !slices.Contains(l.lane[:], acquire) {
		l.answer, l.others = endsCrowded, true
	}
}

// isLeased reports whether the key on a node is that of a lease that had not been released when
// the queue node granted the attempt of a process. The key of an attempt does not stay for long:
// the queue node refuses that attempt.
func (c *queueSearch) isLeased(s *queueState, p, i int) bool {
	return slices.ContainsFunc([]int{0, 1, 2}, func(owner int) bool {
		if s.key[i] != uint8(owner+1) && s.readers[i]>>owner&1 == 0 {
			return false
		}
		if c.list[s.process[owner]].holds() {
			return true
		}
		lane := s.link[owner][i].lane[:]
		j := slices.IndexFunc(lane, func(m queueMessage) bool { return m.kind() == release })
		return j >= 0 && lane[j]&before(p) == 0
	})
}

func (c *queueSearch) acquire(s *queueState, me uint8, i int) nodeAnswer {
	if i == theQueueNode {
		if c.queue.acquireAttends || s.isTurn() {
			c.attend(s, me)
		}
		mine := s.readers[i]>>(me-1)&1 != 0
		behind := c.reads(me) && !mine && c.lets(s, me) && c.behindWriter(s, me) && c.queue.readersWait
		if s.isTurn() && s.turn != me && !(s.turn == readersTurn && c.reads(me)) || behind {
			return vetoed
		}
	}
	switch {
	case s.key[i] == me:
		return granted
	case s.key[i] != noProcess, !c.reads(me) && s.readers[i] != 0:
		return refused
	case c.reads(me):
		s.readers[i] |= 1 << (me - 1)
	default:
		s.key[i] = me
	}
	if i == theQueueNode {
		c.dequeue(s, me)
	}
	return granted
}

// dequeue takes a process out of the queue.
func (c *queueSearch) dequeue(s *queueState, me uint8) {
	s.queue.leave(me)
	if s.turn == me && c.queue.endsTurn || s.turn == readersTurn && !c.reads(s.queue[0]) && c.queue.readersEnd {
		s.turn, s.unseen = noProcess, 0
	}
}

// ended has the queue node end an attempt or a lease, whose key has been dropped. It reports whether another
// process wants the key.
func (c *queueSearch) ended(s *queueState, p int, m queueMessage) (wanted bool) {
	me, free := uint8(p+1), s.key[theQueueNode] == noProcess && s.readers[theQueueNode] == 0
	if m == rest || m == restGranted {
		c.rested(s, p, m == restGranted, free)
		return false
	}
	if m != release || !c.reads(me) { // other callers of a reader may wait
		c.dequeue(s, me)
	}
	switch {
	case !s.isTurn():
		if free {
			s.turn = noProcess
		}
		c.attend(s, noProcess)
	case c.queue.callsOn && c.lets(s, s.turn) && !(s.turn == readersTurn && c.reads(me)): // readers are not in each other's way
		for _, x := range c.called(s) {
			s.call(x, c.deaf)
		}
	}
	if !free && !s.isTurn() && c.queue.marks && (c.queue.marksReaders || s.readers[theQueueNode] == 0) {
		s.turn = theMark
	}
	return s.key[theQueueNode] != noProcess || c.others(&s.queue, me)
}

// rested puts a process into the queue. A process that has the turn by then hears of that by the reply.
func (c *queueSearch) rested(s *queueState, p int, granted, free bool) {
	me, missed := uint8(p+1), s.turn == theMark
	s.queue.join(me)
	s.unseen &^= 1 << me
	if c.inOrder && !slices.ContainsFunc(s.link[p][theQueueNode].lane[:], func(m queueMessage) bool { return m.kind() == rollback || m.kind() == release }) {
		s.said.join(me)
	}
	switch {
	case s.isTurn():
		if c.has(s, me) && c.lets(s, me) && !granted {
			s.call(me, false)
		}
	case granted && !missed && free && !c.queue.restAttends(granted, missed):
		s.turn = theNote
	case c.queue.restAttends(granted, missed):
		if free && missed {
			s.turn = noProcess
		}
		c.attend(s, me)
	}
}

// attend gives the turn to the first process in the queue that is alive, if the key lets it in.
func (c *queueSearch) attend(s *queueState, asker uint8) {
	if s.isTurn() || s.turn == theNote {
		return
	}
	for s.queue[0] != noProcess && s.process[s.queue[0]-1] == dead {
		s.queue.leave(s.queue[0])
	}
	head := s.queue[0]
	if head == noProcess || !c.lets(s, head) {
		return
	}
	s.turn, s.unseen = head, 0
	if c.reads(head) {
		s.turn = readersTurn
	}
	for i, x := range c.called(s) {
		if x != noProcess && i < c.queue.callsReaders {
			s.call(x, c.deaf && x != asker)
			s.unseen |= 1 << x
		}
	}
}

// call tells a process that it has the turn, unless it is deaf.
func (s *queueState) call(p uint8, deaf bool) {
	if p != noProcess && s.process[p-1] != dead && !deaf {
		s.calls[p-1] = min(s.calls[p-1]+1, 2)
	}
}
