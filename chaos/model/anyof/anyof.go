// Package anyof models how processes wait for any of several keys in one queue: the queue, the turn of
// each key, the calls. The callers of a process are as many processes here.
//
// The messages of a process to the queue node arrive in order. Otherwise a message, a reply or a call
// takes any time. The other nodes are two that agree, and answer at once.
//
// Source: ALGORITHM section 10, "Any of several".
package anyof

import "github.com/d0720281/redlock/chaos/model/search"

const (
	most  = 3 // processes
	none  = 3 // the key that stands for none
	depth = 5 // messages under way from a process
)

// What can break, apart from the goal: all callers of live processes are served, and the queue is empty.
const (
	TwoHolders = "two holders of one key"
	Overtaken  = "a process that joined earlier has no turn"
	Stranded   = "a process waits, a key is free, and nothing is under way"
	Stuck      = "a process waits for ever, or the queue is left behind"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Processes, Keys, Turns int // turns of each process

	Barging bool // where the queue node is slow the other nodes are enough, also to refuse; renewals set its key
	GiveUps int  // callers whose context ends
	Faults  int  // processes that die, and calls that are lost; turns may end early, and waiting processes rest again

	// Rules left out.
	OneTurn  bool // the turn is that of the queue
	OwnKey   bool // a rest attends to the key that was asked for, or to the first one
	KeepTurn bool // a process that leaves keeps the turn of another key
	TwoTurns bool // a process that has a turn is given another one
	KeepHeld bool // a process that rests keeps the turn of a key that is held by now
	StayBack bool // a process does not get its place back when its turn was in vain
	Newest   bool // a free key goes to the process that joined last
	Stays    bool // a process that was granted without the queue node stays in the queue
	NoQuorum bool // the queue node is enough
}

// The phases of a process.
const (
	idle uint8 = iota
	waiting
	asking
	holding
	dead
)

// The kinds of messages. When an attempt is over, and when the next one begins, the replies to an
// acquire and to a rest are out of date: late, mute.
const (
	acquire uint8 = iota + 1
	late
	release
	rest
	mute
	away // a rest: the queue node had granted, and the other nodes refused
)

// The replies; that to a rest which tells of a turn is hasTurn and the key.
const (
	granted uint8 = iota + 1
	refused
	hasTurn
)

// The mark and the note stand in place of a process that has the turn.
const (
	mark = most + 1 + iota
	note
)

type message struct{ kind, key uint8 }

type process struct {
	phase, turns uint8
	key          uint8 // that it asks for or has
	called       uint8 // the key to which it was called + 1, or 0
	calls, reply uint8 // on their way; calls: a bit for each key
	sent         [depth]message
}

type state struct {
	key, others, turn [none]uint8 // the process + 1; others: on the other nodes
	queue             [most]uint8 // the processes + 1 in the order in which they joined
	its               [most]uint8 // the key whose turn a process was given last
	back, unseen      uint8       // those that stand behind the others; those called that have not rested since
	giveUps, faults   uint8
	process           [most]process
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	start := state{its: [most]uint8{none, none, none}}
	for i := range c.Processes {
		start.process[i].turns = uint8(c.Turns)
	}
	return search.Model[state]{Start: start, Next: c.next, Ends: c.ends, Check: c.check, Goal: func(s state) bool { return c.ends(s) == "" }}
}

func (c Config) ends(s state) string {
	for i := range s.process {
		p := &s.process[i]
		if p.phase != dead && (p.phase != idle || p.turns > 0 || c.turnOf(&s, i) != none || s.place(i) < most) {
			return Stuck
		}
	}
	return ""
}

// check looks at states in which nothing is under way: holders hold, and the others wait.
func (c Config) check(s state) string {
	waits := false
	for _, p := range s.process {
		if c.Faults > 0 || p.phase == asking || p.called+p.calls+p.reply+p.sent[0].kind > 0 {
			return ""
		}
		waits = waits || p.phase == waiting
	}
	for k := range c.Keys {
		if waits && s.key[k]+s.others[k] == 0 {
			return Stranded
		}
	}
	return ""
}
