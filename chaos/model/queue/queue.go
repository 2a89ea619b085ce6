// Package queue models how processes wait for one resource: the queue and the reservation
// on the gate node, the notification of its head, and the turns inside a process.
//
// What a process sends to one node arrives in order, as on a lane; apart from that every
// message, reply and notification takes any time. Time itself is not modelled: what a
// timer does can happen at any moment, and a key only ends by itself when its process is
// dead.
//
// Source: ALGORITHM section 10.
package queue

import (
	"bytes"

	"github.com/d0720281/redlock/chaos/model/search"
)

const (
	nodes  = 3
	quorum = 2
	gate   = 0 // the node of that number
	most   = 3 // processes
	depth  = 3 // messages on one lane
)

// What can break, beside a goal that gets out of reach: all callers that live are served,
// and the queue is empty.
const (
	TwoHolders = "two holders"
	Overtaken  = "somebody who said so earlier still waits"
	Jumped     = "somebody waits, and the holder has not said that it would"
	Stuck      = "somebody waits for ever"
	Litter     = "the queue or the reservation is left behind"
)

// Config is what is modelled, and with which of the rules.
type Config struct {
	Processes int
	Callers   int // of each process, one after the other
	Block     int // tokens of one grant: so many callers in a row

	// What may happen. A timer is no fault, but with it nobody is ever stuck for good.
	Timers   bool // who waits asks again after a while
	Barging  bool // a quorum is enough where the gate is slow to answer
	Renewals bool // a holder sets its key on the gate if there is none
	Stranger bool // the last process takes another node for the gate, and waits by timer only

	// An attempt that the gate granted ends when a quorum was busy with a lease that had not
	// been released then: somebody may hold the lock without the gate.
	Elsewhere bool
	Pauses    bool // such a process asks the gate again after a while

	// What can go wrong.
	Losses   int  // notifications that are lost
	Crashes  int  // processes that die
	GiveUps  int  // callers whose context ends while they wait
	Expiry   bool // a reservation ends before its owner comes
	TimeUp   bool // an attempt ends before it has a quorum, though the gate granted
	GateDies bool // with its queue
	Late     bool // a release that was sent before the gate granted may arrive after the attempt

	InOrder bool // check that nobody is overtaken

	// Rules left out, to see what they are for.
	AskOnce         bool // only a notified attempt asks a node again that was busy
	NoRetry         bool // an attempt that failed behind the gate leaves the rest to the timer
	KeepReservation bool // who leaves may leave its reservation behind
	NotifyOnce      bool // the owner of a reservation is not told of another release
	OwnGateOnly     bool // a release wakes on the node only that the releaser takes for the gate
	Forget          bool // a notification that comes before the refusal it answers is lost on the process
	NoVeto          bool // a quorum is enough though the gate refused
	GateOrNothing   bool // a gate that does not answer keeps an attempt from succeeding
	MuteRest        bool // a rest calls nobody
	LeaveElsewhere  bool // an attempt that ends elsewhere leaves the queue, and calls nobody
	NoMark          bool // a release that comes while another has the key leaves no mark
	DeafRest        bool // a rest of an attempt that ended elsewhere does not look for the mark
	MarkIsTurn      bool // the mark is taken for a process that has been called
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
	acquire         // with the process's place in the queue
	late            // an acquire whose attempt is over: nobody waits for the reply
	extend
	release // of a lease: the process leaves the queue, and the next is called
	undo    // of an attempt: the same, but nobody waits for it
	rest    // the process goes on waiting, and the gate had refused
	away    // the same, and the gate had granted but a quorum was busy
	quiet   // a release without regard to the queue

	kind = 1<<4 - 1 // of a message; above that a bit for each process: it was sent before the gate granted its attempt
)

// of is the kind of a message.
func (m message) of() message { return m & kind }

// before reports whether it was sent before the gate granted the attempt of a process.
func (m message) before(p int) bool { return m&((kind+1)<<p) != 0 }

// mark is a reservation for nobody: a release has come by while another had the key.
const mark = most + 1

type answer uint8

const (
	open answer = iota
	granted
	refused
)

// A link is what is between a process and a node.
type link struct {
	lane  [depth]message
	reply answer // on its way
	crowd bool   // with it: others wait
	vote  answer
	fresh bool // the reply is the refusal of a node that a lease keeps busy
	busy  bool // there was such a reply
}

type process struct {
	phase    phase
	callers  uint8 // to be served
	used     uint8 // tokens of the block
	notes    uint8 // notifications on their way
	woken    bool  // has been notified
	retry    bool  // has to ask the gate again at once
	crowd    bool  // knows that others wait
	extended bool
	notified bool // the attempt answers a notification
	behind   bool // the attempt asks the gate first, which has not granted yet

	link [nodes]link
}

// A line of processes, by number and 1; 0 where it ends.
type line [most]uint8

type state struct {
	key      [nodes]uint8 // process and 1
	reserved uint8        // the same, on the gate, or mark
	queue    line
	seen     line // who waits, in the order in which they said so: for the check alone
	gateDead bool

	losses, crashes, giveUps uint8

	process [most]process
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	var start state
	for i := range c.Processes {
		start.process[i].callers = uint8(c.Callers)
	}
	return search.Model[state]{Start: start, Next: c.next, Ends: c.ends, Canon: canon, Goal: c.served}
}

// stranger reports whether a process takes another node for the gate.
func (c Config) stranger(p int) bool { return c.Stranger && p == c.Processes-1 }

// ends says what is wrong in a state after which nothing happens.
func (c Config) ends(s state) string {
	for i := range s.process {
		if p := &s.process[i]; p.phase != dead && (p.phase != idle || p.callers > 0) {
			return Stuck
		}
	}
	if s.reserved != 0 && s.reserved != mark || s.queue[0] != 0 && s.process[s.queue[0]-1].phase != dead {
		return Litter
	}
	return ""
}

func (c Config) served(s state) bool { return c.ends(s) == "" }

// canon sorts the nodes that are not the gate: they are alike.
func canon(s state) state {
	var rank [nodes][]byte
	var room [nodes][most * (depth + 4)]byte
	for n := gate + 1; n < nodes; n++ {
		rank[n] = append(room[n][:0], s.key[n])
		for i := range s.process {
			l := &s.process[i].link[n]
			rank[n] = append(rank[n], byte(l.lane[0]), byte(l.lane[1]), byte(l.lane[2]), byte(l.reply)<<4|byte(l.vote)<<2|flags(l.fresh, l.busy))
		}
	}
	if bytes.Compare(rank[1], rank[2]) > 0 {
		s.key[1], s.key[2] = s.key[2], s.key[1]
		for i := range s.process {
			l := &s.process[i].link
			l[1], l[2] = l[2], l[1]
		}
	}
	return s
}

func flags(a, b bool) (f byte) {
	if a {
		f = 1
	}
	if b {
		f |= 2
	}
	return f
}

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
	var rest line
	n := 0
	for _, x := range l {
		if x != p && x != 0 {
			rest[n] = x
			n++
		}
	}
	*l = rest
}

func (l *line) has(p uint8) bool { return bytes.IndexByte(l[:], p) >= 0 }

// crowd reports whether somebody else is in the line.
func (l *line) crowd(p uint8) bool { return l[0] != 0 && l[0] != p || l[1] != 0 }
