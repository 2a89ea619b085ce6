package attempt

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock/chaos/model/search"
	"github.com/d0720281/redlock/chaos/model/searchtest"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// This file searches every state that a few processes can reach while they wait for one resource.
// What a process does is the code of package line and attempt.go itself: a state has the number of
// each process' state in a list. What a node does is the rule of acquire.lua, release.lua and
// queue.lua in a few lines. queue_search_steps_test.go has both.
//
// There is no time. What a process sends to a node arrives in order. Apart from that a message, an
// answer or a call takes as long as it likes. A pause may be over at any moment, but a process that
// waits to be called has no timer, except where the search says so. A key ends by itself only when
// its process has died.
//
// Some processes may be readers. Each has one lease at a time.
//
// Source: ALGORITHM sections 10 and 12; section 13, I1, I10 and I11.

const (
	queueNodes     = 3
	queueProcesses = 3
	queueCallers   = 2
	laneDepth      = 4
	theQueueNode   = 0
)

// queueSearch has the bounds and the rules of a search.
type queueSearch struct {
	nodes   int
	need    int   // votes
	callers []int // of each process
	block   int   // callers that have one lease, one after the other
	sharers int   // the last processes are readers, of one caller at a time

	// What may happen.
	slowQueueNode bool // an attempt may go on without the queue node's answer
	elsewhere     bool // a quorum may refuse for long what the queue node has granted, if a lease is in the way
	late          bool // with elsewhere: also if only the releases of a lease are late
	renewals      bool // a holder sets its key on the queue node if there is none
	timers        bool // a process that waits to be called may ask again by itself
	turnsEnd      bool // a turn may end before its process has come
	deaf          bool // no process can be called: it polls
	readers       bool // a node that refuses may name readers as the holders
	oneByOne      bool // a caller comes to a process when the one before it has gone

	// What may go wrong.
	lostCalls, deaths int
	leaves            int  // callers that give up
	timeUp            int  // attempts whose time is up though all nodes answer
	queueNodeDies     bool // with its queue

	inOrder bool // check that no process overtakes another

	rules  *rules.Rules
	policy line.Policy
	asks   askPolicy
	queue  queueRules

	lease    lease
	list     []*queueProcess
	mirrors  map[uint32]uint32 // in the list: the same, with nodes 1 and 2 exchanged
	numbers  map[string]uint32
	outcomes map[queueStep]queueOutcome // of what was searched before
}

// lease stands for what a process is granted. Its callers have nothing to say.
type lease struct{ _ byte }

type (
	waitline = line.Line[*lease, struct{}]
	caller   = line.Caller[*lease, struct{}]
)

// queueRules are the rules that the controls replace.
type queueRules struct {
	rests          func(*Attempt) bool                           // an attempt that failed tells the queue node that its process goes on waiting
	leave          func(*waitline, *caller) (bool, int, *caller) // a caller gives up
	call           func(*waitline) *caller                       // the queue node calls the process
	heeds          func(wire.Word) wire.Word                     // what an attempt hears of the queue node's answer
	restAttends    func(granted, missed bool) bool               // a rest gives the turn to the head of the queue
	acquireAttends bool                                          // and so does an acquire
	marks          bool                                          // a release leaves the mark
	endsTurn       bool                                          // a process that leaves the queue leaves its turn
	until          func(*Attempt) instant                        // how long an attempt waits
	callsOn        bool                                          // a process that has its turn is called by the next release, too
	readersWait    bool                                          // a reader that stands behind a writer is refused
	readersEnd     bool                                          // the turn of the readers ends when no reader is first any more
	marksReaders   bool                                          // a release leaves the mark although readers alone have the key
	callsReaders   int                                           // how many readers are called at a time
}

func queueAlgorithm() queueRules {
	return queueRules{
		rests:          (*Attempt).Rests,
		leave:          (*waitline).Leave,
		call:           func(l *waitline) *caller { return l.Called(0) },
		heeds:          func(w wire.Word) wire.Word { return w },
		restAttends:    func(granted, missed bool) bool { return !granted || missed },
		acquireAttends: true,
		marks:          true,
		endsTurn:       true,
		until:          (*Attempt).until,
		callsOn:        true,
		readersWait:    true,
		readersEnd:     true,
		marksReaders:   true,
		callsReaders:   queueProcesses,
	}
}

// queueProcess is a process: its line, and the attempt of the head of the line.
type queueProcess struct {
	line     waitline
	caller   [queueCallers]queueCaller
	attempt  *Attempt // nil for none
	shared   bool     // it is a reader
	has      bool     // a lease of a reader
	crowded  bool     // other processes are known to wait
	handed   int      // how often the lease was handed over
	extended bool
}

// holds reports whether the process has the resource.
func (p *queueProcess) holds() bool { return p.line.Has() || p.has }

// queueCaller is a caller, and where its goroutine is.
type queueCaller struct {
	caller
	stage callerStage
	woken bool // it will look what to do
	timer callerTimer
}

type callerStage uint8

const (
	absent  callerStage = iota
	inLine              // or it has been handed a lease, and does not know it yet
	holding             // the lease
	gone
)

type callerTimer uint8

const (
	noTimer  callerTimer = iota
	pauses               // until its next attempt
	tillCall             // until it is called; if no call comes it asks again
)

const longWait = time.Hour // is for a call

// queueStep is a step of a process.
type queueStep struct {
	process      uint32
	what         queueEvent
	caller, node uint8
	said         nodeAnswer
	others       bool // wait, says the queue node
	readers      bool // hold the key, says another node
	late         bool // some time has gone by
}

type queueEvent uint8

const (
	callerComes queueEvent = iota
	callerLooks
	callerTimesOut
	callerUnlocks
	callerGivesUp
	nodeAnswers
	attemptTimesOut
	processCalled
	processExtends
)

// queueOutcome is the state of a process after a step, and what it sends.
type queueOutcome struct {
	process uint32
	won     bool
	n       uint8
	sends   [queueNodes + 1]struct {
		node    uint8
		message queueMessage
	}
}

func (o *queueOutcome) send(node int, m queueMessage) {
	o.sends[o.n].node, o.sends[o.n].message = uint8(node), m
	o.n++
}

type queueMessage uint8

const (
	noMessage    queueMessage = iota
	acquire                   // of an attempt under way
	acquireLate               // of an attempt that is over: no answer is awaited
	extend                    // by a holder
	release                   // of a lease
	rollback                  // a release without a lease
	rest                      // the process goes on waiting, and the queue node had refused
	restGranted               // the same, and it had granted
	messageKinds = 1<<4 - 1   // above is a bit for each process: see date
)

func (m queueMessage) kind() queueMessage { return m & messageKinds }

func before(process int) queueMessage { return (messageKinds + 1) << process }

type nodeAnswer uint8

const (
	noAnswer nodeAnswer = iota
	granted
	refused
	vetoed
	unreachable
	endsCrowded // the reply to a release: others wait
)

// queueState is a state of all. Processes count from 1 where 0 is none.
type queueState struct {
	process [queueProcesses]uint32 // in the list
	link    [queueProcesses][queueNodes]queueLink
	calls   [queueProcesses]uint8 // on their way
	key     [queueNodes]uint8
	readers [queueNodes]uint8 // that have the key instead, a bit each
	turn    uint8
	unseen  uint8 // processes that were called and have not rested since, a bit each
	queue   processes
	said    processes // in the order in which they told the queue node that they wait; for the check alone

	queueNodeDead                   bool
	lostCalls, deaths, left, timeUp uint8
}

// queueLink has the messages between a process and a node.
type queueLink struct {
	lane   [laneDepth]queueMessage
	answer nodeAnswer // on its way
	others bool       // with it
	leased bool       // with it: the key is that of a lease
	kept   bool       // the last answer said so
	beside bool       // with it: other readers have the key
}

const (
	noProcess   = 0
	theMark     = queueProcesses + 1
	theNote     = queueProcesses + 2
	readersTurn = queueProcesses + 3 // of all readers in the queue that no writer stands before
	dead        = 0                  // in the list
)

type processes [queueProcesses]uint8

func (l *processes) join(p uint8) {
	for i, x := range l {
		if x == p || x == noProcess {
			l[i] = p
			return
		}
	}
}

func (l *processes) leave(p uint8) {
	if i := slices.Index(l[:], p); i >= 0 {
		copy(l[i:], l[i+1:])
		l[queueProcesses-1] = noProcess
	}
}

// others reports whether a process in conflict with another one is in the list.
func (c *queueSearch) others(l *processes, p uint8) bool {
	return slices.ContainsFunc(l[:], func(x uint8) bool { return x != noProcess && x != p && !(c.reads(x) && c.reads(p)) })
}

// reads reports whether a process, counted from 1, is a reader.
func (c *queueSearch) reads(p uint8) bool { return p != noProcess && int(p) > len(c.callers)-c.sharers }

// called returns the processes that have the turn.
func (c *queueSearch) called(s *queueState) (list processes) {
	switch {
	case s.turn <= queueProcesses:
		list[0] = s.turn
	case s.turn == readersTurn:
		for i := 0; i < queueProcesses && c.reads(s.queue[i]); i++ {
			list[i] = s.queue[i]
		}
	}
	return list
}

// has reports whether a process in the queue has the turn.
func (c *queueSearch) has(s *queueState, p uint8) bool {
	list := c.called(s)
	return slices.Contains(list[:], p)
}

// behindWriter reports whether a writer stands before a process in the queue.
func (c *queueSearch) behindWriter(s *queueState, p uint8) bool {
	i := slices.IndexFunc(s.queue[:], func(x uint8) bool { return x == p || !c.reads(x) })
	return i >= 0 && s.queue[i] != p && s.queue[i] != noProcess
}

// lets reports whether the queue node's key lets a process in.
func (c *queueSearch) lets(s *queueState, p uint8) bool {
	return s.key[theQueueNode] == noProcess && (s.readers[theQueueNode] == 0 || c.reads(p))
}

const (
	twoHold      = "two processes hold the resource"
	overtakes    = "a process overtakes a process that said before that it waits"
	waitsForEver = "a caller waits for ever"
	dawdles      = "an attempt waits past the moment at which it asks the nodes again"
	litters      = "the queue or the turn is left behind"
)

func (c *queueSearch) model() search.Model[queueState] {
	c.list, c.mirrors, c.numbers, c.outcomes = []*queueProcess{{}}, map[uint32]uint32{}, map[string]uint32{}, map[queueStep]queueOutcome{}
	m := search.Model[queueState]{Next: c.next, Check: c.check, Ends: c.ends, Canon: c.canon, Goal: func(s queueState) bool { return c.ends(s) == "" }}
	for p, n := range c.callers {
		begin := &queueProcess{shared: c.reads(uint8(p + 1))}
		for k := n; k < queueCallers; k++ {
			begin.caller[k].stage = gone
		}
		m.Start.process[p] = c.number(begin)
	}
	return m
}

func (c *queueSearch) check(s queueState) string {
	holders, writers := 0, 0
	for p := range c.callers {
		at := c.list[s.process[p]]
		if at.holds() {
			holders++
		}
		if at.line.Has() {
			writers++
		}
		if a := at.attempt; a != nil && a.approach.againAt != 0 && a.Nodes[theQueueNode].Vote != Awaited && c.queue.until(a) > a.approach.againAt {
			return dawdles
		}
	}
	if holders > 1 && writers > 0 {
		return twoHold
	}
	return ""
}

// ends says what is wrong in a state after which nothing happens. All callers have been served
// where nothing is.
func (c *queueSearch) ends(s queueState) string {
	for p := range c.callers {
		for _, x := range c.list[s.process[p]].caller {
			if s.process[p] != dead && x.stage != gone {
				return waitsForEver
			}
		}
	}
	if s.isTurn() || s.queue[0] != noProcess && s.process[s.queue[0]-1] != dead {
		return litters
	}
	return ""
}

// canon exchanges nodes 1 and 2, which are alike, if that makes the state come first in an order.
func (c *queueSearch) canon(s queueState) queueState {
	if c.nodes < queueNodes {
		return s
	}
	t, order := s, cmp.Or(cmp.Compare(s.key[2], s.key[1]), cmp.Compare(s.readers[2], s.readers[1]))
	t.key[1], t.key[2], t.readers[1], t.readers[2] = s.key[2], s.key[1], s.readers[2], s.readers[1]
	for p := range c.callers {
		t.process[p] = c.mirror(s.process[p])
		t.link[p][1], t.link[p][2] = s.link[p][2], s.link[p][1]
		order = cmp.Or(order, cmp.Compare(t.process[p], s.process[p]), cmp.Compare(s.link[p][2].number(), s.link[p][1].number()))
	}
	if order < 0 {
		return t
	}
	return s
}

func (c *queueSearch) mirror(number uint32) uint32 {
	if c.list[number].attempt == nil {
		return number
	}
	m, ok := c.mirrors[number]
	if !ok {
		p := c.list[number].clone()
		p.attempt.Nodes[1], p.attempt.Nodes[2] = p.attempt.Nodes[2], p.attempt.Nodes[1]
		m = c.number(p)
		c.mirrors[number], c.mirrors[m] = m, number
	}
	return m
}

func (l *queueLink) number() (n uint64) {
	for _, m := range l.lane {
		n = n<<8 | uint64(m)
	}
	n = n<<8 | uint64(l.answer)
	for _, is := range []bool{l.others, l.leased, l.kept, l.beside} {
		n <<= 1
		if is {
			n++
		}
	}
	return n
}

// isTurn reports whether a process has been called.
func (s *queueState) isTurn() bool {
	return s.turn != noProcess && s.turn != theMark && s.turn != theNote
}

func queueSearchOf(nodes int, callers []int, block int, change func(*queueSearch)) *queueSearch {
	c := &queueSearch{nodes: nodes, need: nodes/2 + 1, callers: callers, block: block}
	c.rules, c.queue = rules.New(), queueAlgorithm()
	c.policy = line.Policy{FirstDelay: 1, MostDelay: 1, QueuedDelay: 2 * longWait, RestDelay: 2 * longWait, AskAllEvery: 2, RoomDelay: time.Minute}
	c.asks = askPolicy{leastPatience: 10, roundPause: 10, retryShare: 10}
	change(c)
	return c
}

// The events that a search is about.
func anyOrder(c *queueSearch) { c.slowQueueNode, c.elsewhere = true, true }

// inOrder checks the order. In the attempts of such a search a refusal of the queue node is a veto.
func inOrder(c *queueSearch) {
	c.inOrder = true
	c.queue.heeds = func(w wire.Word) wire.Word { w.Vetoed = w.Refused; return w }
}

// No two processes hold the resource, but for readers. Every caller can be served from every state, without the
// timer of a process that waits to be called, and at the end the queue and the turn are empty.
func TestQueueSearch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		*queueSearch
	}{
		{"release, acquire and rest in any order", queueSearchOf(3, []int{1, 1}, 1, anyOrder)},
		{"release, acquire and rest in any order, with pauses", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.policy.MostRefused = 2 })},
		{"release, acquire and rest in any order, twice", queueSearchOf(3, []int{2, 1}, 1, func(c *queueSearch) { c.elsewhere, c.oneByOne = true, true })},
		{"release, acquire and rest in any order, with renewals", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.renewals, c.turnsEnd = true, true })},
		{"hand-over and a caller that gives up", queueSearchOf(3, []int{2, 1}, 2, func(c *queueSearch) { c.elsewhere, c.leaves = true, 1 })},
		{"all callers give up", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.leaves = 2 })},
		{"three processes and one node", queueSearchOf(1, []int{2, 2, 1}, 2, func(c *queueSearch) { c.slowQueueNode, c.leaves = true, 1 })},
		{"attempts without a quorum", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { c.timeUp = 1 })},
		{"late releases, with timers", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.late, c.timers = true, true })},
		{"lost calls and a death, with timers", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) {
			c.slowQueueNode, c.renewals, c.turnsEnd, c.timers, c.lostCalls, c.deaths, c.leaves = true, true, true, true, 1, 1, 1
		})},
		{"nodes that refuse name readers", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.readers = true })},
		{"a writer and a reader, release, acquire and rest in any order", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.sharers = 1 })},
		{"a writer and a reader, twice", queueSearchOf(3, []int{2, 2}, 1, func(c *queueSearch) { c.elsewhere, c.oneByOne, c.sharers = true, true, 1 })},
		{"a writer and a reader, a caller that gives up, renewals", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) {
			c.slowQueueNode, c.renewals, c.turnsEnd, c.sharers, c.leaves = true, true, true, 1, 1
		})},
		{"two writers and a reader, one node", queueSearchOf(1, []int{2, 1, 1}, 2, func(c *queueSearch) { c.slowQueueNode, c.sharers, c.leaves = true, 1, 1 })},
		{"a writer and two readers, one node", queueSearchOf(1, []int{1, 2, 2}, 1, func(c *queueSearch) {
			c.slowQueueNode, c.oneByOne, c.sharers, c.leaves = true, true, 2, 1
		})},
		{"in order, a writer and two readers, one node", queueSearchOf(1, []int{1, 2, 2}, 1, func(c *queueSearch) { c.inOrder, c.oneByOne, c.sharers = true, true, 2 })},
		{"in order, a writer and a reader", queueSearchOf(3, []int{1, 2}, 1, func(c *queueSearch) { inOrder(c); c.oneByOne, c.sharers = true, 1 })},
		{"no process can be called", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.deaf, c.turnsEnd = true, true })},
		{"in order, a death, with timers, three processes and one node", queueSearchOf(1, []int{1, 1, 1}, 1, func(c *queueSearch) { c.inOrder, c.timers, c.deaths = true, true, 1 })},
		{"the queue node dies, with timers", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { c.queueNodeDies, c.timers = true, true })},
		{"in order, hand-over", queueSearchOf(3, []int{2, 2}, 2, inOrder)},
		{"in order, three processes and one node", queueSearchOf(1, []int{2, 2, 2}, 1, func(c *queueSearch) { c.inOrder = true })},
	} {
		t.Run(test.name, func(t *testing.T) {
			searchtest.Sound(t, test.model())
			t.Logf("%d states of one process", len(test.list)-1)
		})
	}
}

// Each rule that is wrong is missed, and nothing more is promised than what holds.
func TestQueueSearchControls(t *testing.T) {
	for _, test := range []struct {
		name   string
		search *queueSearch
		wrong  func(*queueSearch)
		want   string
	}{
		{"a process that goes on waiting sends a plain release", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) {
			c.queue.rests = func(*Attempt) bool { return false }
		}, waitsForEver},
		{"a process that may have met a holder elsewhere is in no queue", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) {
			c.queue.rests = func(a *Attempt) bool { return a.Rests() && !a.Elsewhere() }
		}, waitsForEver},
		{"a caller that gives up stays in the queue", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) {
			c.leaves = 1
			c.queue.leave = func(l *waitline, x *caller) (bool, int, *caller) {
				served, _, wake := l.Leave(x)
				return served, line.Nowhere, wake
			}
		}, litters},
		{"a caller that gives up does not wake the next head", queueSearchOf(3, []int{2, 1}, 1, anyOrder), func(c *queueSearch) {
			c.leaves = 1
			c.queue.leave = func(l *waitline, x *caller) (bool, int, *caller) {
				served, queuedAt, _ := l.Leave(x)
				return served, queuedAt, nil
			}
		}, waitsForEver},
		{"the head after a caller that gave up pauses until it is called", queueSearchOf(1, []int{2, 1}, 1, anyOrder), func(c *queueSearch) {
			c.leaves = 1
			c.queue.leave = func(l *waitline, x *caller) (bool, int, *caller) {
				l.AskAt = searchNow.Add(2 * longWait)
				return l.Leave(x)
			}
		}, waitsForEver},
		{"a call before the refusal that it answers is forgotten", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) {
			c.queue.call = func(l *waitline) *caller {
				if x := l.First(); x != nil && !x.Idle() {
					return nil
				}
				return l.Called(0)
			}
		}, waitsForEver},
		{"a rest calls no process", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) {
			c.queue.restAttends = func(_, _ bool) bool { return false }
		}, waitsForEver},
		{"a release leaves no mark", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) { c.queue.marks = false }, waitsForEver},
		{"a rest does not look for the mark", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) {
			c.queue.restAttends = func(granted, _ bool) bool { return !granted }
		}, waitsForEver},
		{"a process that leaves the queue keeps its turn", queueSearchOf(1, []int{2, 2}, 1, anyOrder), func(c *queueSearch) {
			c.leaves, c.queue.endsTurn = 1, false
		}, waitsForEver},
		{"a process is called once", queueSearchOf(3, []int{2, 1}, 1, anyOrder), func(c *queueSearch) {
			c.elsewhere, c.renewals, c.oneByOne, c.queue.callsOn = false, true, true, false
		}, waitsForEver},
		{"an attempt goes on waiting for the queue node's answer when that has come", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.readers = true }), func(c *queueSearch) {
			c.queue.until = func(a *Attempt) instant {
				if w := &a.approach; w.waitsTo != 0 && !w.waited {
					return w.waitsTo
				}
				return a.until()
			}
		}, dawdles},
		{"readers overtake the queue", queueSearchOf(1, []int{1, 2, 2}, 1, func(c *queueSearch) { c.inOrder, c.oneByOne, c.sharers = true, true, 2 }), func(c *queueSearch) {
			c.queue.readersWait = false
		}, overtakes},
		{"the turn of the readers goes on when all have come", queueSearchOf(1, []int{1, 1, 1}, 1, func(c *queueSearch) { c.sharers = 2 }), func(c *queueSearch) {
			c.queue.readersEnd = false
		}, litters},
		{"a release that finds readers leaves no mark", queueSearchOf(3, []int{1, 1}, 1, func(c *queueSearch) { anyOrder(c); c.sharers = 1 }), func(c *queueSearch) {
			c.queue.marksReaders = false
		}, waitsForEver},
		{"the first reader alone is called", queueSearchOf(1, []int{1, 1, 1}, 1, func(c *queueSearch) { c.sharers = 2 }), func(c *queueSearch) {
			c.queue.callsReaders = 1
		}, waitsForEver},
		{"a quorum of one", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) { c.need = 1 }, twoHold},
		{"no timer, a call is lost", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) { c.lostCalls, c.turnsEnd = 1, true }, waitsForEver},
		{"no timer, a holder dies", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) { c.deaths = 1 }, waitsForEver},
		{"no timer, a release comes to the other nodes after two attempts", queueSearchOf(3, []int{1, 1}, 1, anyOrder), func(c *queueSearch) { c.late = true }, waitsForEver},
		{"in order: no veto", queueSearchOf(3, []int{2, 1}, 1, inOrder), func(c *queueSearch) {
			c.queue.heeds = func(w wire.Word) wire.Word { w.Vetoed = w.Refused && !w.Vetoed; return w }
		}, overtakes},
		{"in order: a refusal of the queue node is no veto", queueSearchOf(3, []int{1, 1}, 1, inOrder), func(c *queueSearch) {
			c.queue.heeds = queueAlgorithm().heeds
		}, overtakes},
		{"in order: the queue node is slow", queueSearchOf(3, []int{1, 1}, 1, inOrder), func(c *queueSearch) { c.slowQueueNode = true }, overtakes},
		{"in order: a turn ends early", queueSearchOf(1, []int{1, 1, 1}, 1, inOrder), func(c *queueSearch) { c.turnsEnd = true }, overtakes},
		{"in order: an acquire of a key that has ended does not attend", queueSearchOf(1, []int{1, 1, 1}, 1, func(c *queueSearch) { c.inOrder, c.timers, c.deaths = true, true, 1 }), func(c *queueSearch) {
			c.queue.acquireAttends = false
		}, overtakes},
		{"in order: an attempt without a quorum", queueSearchOf(3, []int{1, 1}, 1, inOrder), func(c *queueSearch) { c.timeUp = 1 }, overtakes},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.wrong(test.search)
			searchtest.Breaks(t, test.search.model(), test.want)
		})
	}
}
