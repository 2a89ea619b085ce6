// Package permitqueue models the order of the processes that want permits of a semaphore: the queue node
// with its slots, its queue and its turn, and the attempts of processes that ask it first. The other nodes
// are left out. What they answer is either that they agree, or that they refuse what the queue node gave.
//
// What a process sends arrives in order. Apart from that every message, reply and call takes any time. Time
// itself is not modelled: what a timer does can happen at any moment, and the slots of a process end by
// themselves only when it is dead.
//
// Source: ALGORITHM section 14, "Order".
package permitqueue

import "github.com/d0720281/redlock/chaos/model/search"

const (
	most      = 3 // processes
	mostSlots = 2
	depth     = 3 // messages of one process on their way
)

// What can break, beside a goal that gets out of reach: all callers that live are served, and the queue is
// empty.
const (
	Overtaken = "the queue node grants, and a process that came before waits"
	Stuck     = "a process waits for ever"
	Litter    = "the queue or the turn is left behind"
	Lost      = "a slot is taken, and no process has it"
)

// Config says what the model includes, and which of the rules.
type Config struct {
	Wants   []int // permits that each process wants
	Of      int   // permits that there are
	Callers int   // of each process, one after the other
	Keepers int   // processes below this number hold for ever

	// What may happen. A timer is no fault, but with it no process is ever stuck.
	Timers bool // a process that waits asks again after a while

	// What can go wrong.
	Refusals int  // attempts that the other nodes refuse
	Losses   int  // calls that are lost
	Crashes  int  // processes that die
	GiveUps  int  // callers that stop waiting
	Expiry   bool // a turn ends before its process comes

	InOrder bool // check that no process is overtaken

	// Rules left out, or done in a wrong way.
	PassQueue     bool // what is free is given past the queue
	CallIfAllFree bool // a release calls only when all slots are free
	NoChain       bool // a grant calls no process
	NoRestCall    bool // a rest calls no process
	KeepRefused   bool // what the other nodes refused is kept
}

type phase uint8

const (
	idle phase = iota
	asking
	waiting
	holding
	dead
)

type message uint8

const (
	none    message = iota
	choose          // wants slots
	late            // a choose whose attempt is over: no process waits for the reply
	rest            // after a refusal of the queue node: drops what there is, and joins the queue
	restOff         // the same after a refusal of the other nodes
	drop            // gives the slots back
	leave           // gives the place in the queue back, too
)

type answer uint8

const (
	open answer = iota
	granted
	refused
)

type process struct {
	phase   phase
	callers uint8 // to be served
	lane    [depth]message
	reply   answer // on its way
	calls   uint8  // on their way
	called  bool   // has been called since the attempt began
	again   bool   // asks again by itself, as the other nodes refused
}

// line has processes, by number and 1; 0 where it ends.
type line [most]uint8

type state struct {
	slot  [mostSlots]uint8 // process and 1
	turn  uint8            // process and 1
	queue line
	came  line // the processes that wait, in the order in which they joined: for the check alone

	refusals, losses, crashes, giveUps uint8

	process [most]process
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	var start state
	for i := range c.Wants {
		start.process[i].callers = uint8(c.Callers)
	}
	return search.Model[state]{Start: start, Next: c.next, Ends: c.ends, Goal: func(s state) bool { return c.ends(s) == "" }}
}

// ends says what is wrong in a state after which nothing happens.
func (c Config) ends(s state) string {
	for i := range s.process {
		if p := &s.process[i]; p.phase != dead && (p.phase != idle || p.callers > 0) && !c.keeps(&s, i) {
			return Stuck
		}
	}
	if s.turn != 0 || s.queue[0] != 0 && s.process[s.queue[0]-1].phase != dead {
		return Litter
	}
	for _, owner := range s.slot {
		if owner > most || owner != 0 && !c.keeps(&s, int(owner-1)) {
			return Lost
		}
	}
	return ""
}

// keeps reports whether a process holds for ever.
func (c Config) keeps(s *state, p int) bool { return p < c.Keepers && s.process[p].phase == holding }

func (l *line) join(p uint8) {
	for i, x := range l {
		if x == p {
			return
		}
		if x == 0 {
			l[i] = p
			return
		}
	}
}

func (l *line) leave(p uint8) {
	var left line
	n := 0
	for _, x := range l {
		if x != p && x != 0 {
			left[n] = x
			n++
		}
	}
	*l = left
}
