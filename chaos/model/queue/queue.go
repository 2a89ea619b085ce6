// Package queue models how processes wait for one resource: the queue and the turn on the
// queue node, the call of the first process in the queue, and the callers inside a process.
//
// The messages of a process to one node arrive in order. Otherwise a message, a reply or a
// call takes any time. Time itself is not modelled: the effect of a timer can come at any
// moment, and a key expires only when its process is dead.
//
// Some processes may be readers, which have the resource together.
//
// Source: ALGORITHM sections 10 and 12.
package queue

import (
	"bytes"

	"github.com/d0720281/redlock/chaos/model/search"
)

const (
	nodes     = 3
	quorum    = 2
	queueNode = 0
	most      = 3 // processes
	depth     = 3 // messages under way from one process to one node
)

// What can break, apart from the goal: all callers of live processes are served, and the
// queue is empty.
const (
	TwoHolders = "two holders, not both of them readers"
	Overtaken  = "a process in conflict that said earlier that it waits still waits"
	Jumped     = "a process in conflict waits, and the holder had not said that it waits"
	Stuck      = "a caller waits for ever"
	Litter     = "the queue or the turn is left behind"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Processes int
	Readers   int // the last processes; the others are writers
	Callers   int // of each process, one after the other
	Block     int // tokens of one grant: so many callers in a row

	// What may happen. A timer is no fault, but with it no caller is stuck for good.
	Timers   bool // a waiting process asks again after a while
	Barging  bool // a quorum is enough where the queue node is slow to answer
	Renewals bool // a holder sets its key on the queue node if there is none
	Deaf     bool // no process can be called: each asks again after a while, and hears of its turn by a reply
	Stranger bool // the last process takes another node for the queue node, and waits by timer only

	// An attempt that the queue node granted ends if a quorum was busy with a lease that had
	// not been released at that moment: another process may hold the lock without the queue node.
	Elsewhere bool
	Pauses    bool // such a process asks the queue node again after a while

	// What can go wrong.
	Losses        int  // calls that are lost
	Crashes       int  // processes that die
	GiveUps       int  // callers whose context ends while they wait
	Expiry        bool // a turn ends before its process comes
	TimeUp        bool // an attempt ends before it has a quorum, though the queue node granted
	QueueNodeDies bool // with its queue
	// A writer becomes a reader while it holds, and such a writer releases when no reader waits any
	// more.
	Downgrades, WaitsForReaders bool
	Late                        bool // a release that was sent before the queue node granted may arrive after the attempt

	InOrder      bool // check that no waiting process is overtaken
	JoinsInOrder bool // the same of readers that join others, which have held since before

	// Rules left out, to see what they are for.
	AskOnce            bool // only an attempt that answers a call asks a busy node again
	NoRetry            bool // an attempt that failed behind the queue node leaves the rest to the timer
	KeepTurn           bool // a process that leaves the queue keeps its turn
	PopHead            bool // the head leaves the queue when it gets the turn
	DeafAcquire        bool // an acquire of a free key gives no process the turn
	MuteDowngrade      bool // a downgrade gives no process the turn
	NoPoll             bool // a process that cannot be called does not ask again
	CallOnce           bool // the process with the turn is called once, and not again at the next release
	OwnQueueNodeOnly   bool // a release calls only at the node that the releasing process takes for the queue node
	NoVeto             bool // a quorum is enough though the queue node refused
	QueueNodeOrNothing bool // a queue node that does not answer keeps an attempt from succeeding
	MuteRest           bool // a rest calls no process
	LeaveElsewhere     bool // an attempt that ends elsewhere leaves the queue, and calls no process
	NoMark             bool // a release that comes while another has the key leaves no mark
	DeafRest           bool // a rest of an attempt that ended elsewhere does not look for the mark
	MarkIsTurn         bool // the mark is taken for a process that has been called
	ReadersPass        bool // a reader is granted whichever process waits before it
	JoinBlindly        bool // a reader that would join others does not wait for the queue node
	NoMarkForReaders   bool // a release that finds other readers leaves no mark
	KeepReadersTurn    bool // the turn of the readers goes on when all of them have come
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
	late            // an acquire whose attempt is over: its reply is ignored
	extend
	release // of a lease: the process leaves the queue, and the next one is called
	undo    // of an attempt: the same
	rest    // the process goes on waiting, and the queue node had refused
	away    // the same, and the queue node had granted but a quorum was busy
	quiet   // a release without regard to the queue
	share   // a downgrade: the writer is a reader from now on

	kind = 1<<4 - 1 // of a message; above that a bit for each process: it was sent before the queue node granted its attempt
)

// of is the kind of a message.
func (m message) of() message { return m & kind }

// before reports whether m was sent before the queue node granted the attempt of process p.
func (m message) before(p int) bool { return m&((kind+1)<<p) != 0 }

// The mark and the note are no turns. The mark: an end has come while another process had the key.
// The note: a quorum refused what the queue node had granted. The turn of the readers: that of all
// readers in the queue that no writer stands before.
const (
	mark = most + 1 + iota
	note
	readersTurn
)

type answer uint8

const (
	open answer = iota
	granted
	refused
)

// A link carries the messages and replies between a process and a node.
type link struct {
	sent   [depth]message
	reply  answer // on its way
	crowd  bool   // with it: others wait
	vote   answer
	beside bool // with it: other readers have the key there
	fresh  bool // the reply is a refusal, as a lease keeps the node busy
	busy   bool // a fresh reply has come
}

type process struct {
	phase    phase
	callers  uint8 // to be served
	used     uint8 // tokens of the block
	calls    uint8 // calls on their way
	woken    bool  // has been called
	retry    bool  // must ask the queue node again at once
	crowd    bool  // knows that others wait
	extended bool
	shared   bool  // the writer has become a reader
	answers  bool  // the attempt answers a call
	behind   bool  // the attempt has asked the queue node alone so far
	meets    bool  // the attempt has met other readers
	joins    uint8 // readers that have held since before the attempt, a bit each: for the check alone

	link [nodes]link
}

// A line has the processes by number + 1; a 0 ends it.
type line [most]uint8

type state struct {
	key           [nodes]uint8 // number of the process + 1; of a writer
	readers       [nodes]uint8 // the readers that have the key instead, a bit each
	turn          uint8        // the same, on the queue node; or mark, note, readersTurn
	rested        uint8        // the processes that have the turn and have rested since, a bit each
	queue         line
	seen          line // the processes that wait, in the order in which they said so: for the check alone
	queueNodeDead bool

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

// stranger reports whether process p takes another node for the queue node.
func (c Config) stranger(p int) bool { return c.Stranger && p == c.Processes-1 }

// reads reports whether process p is a reader.
func (c Config) reads(p int) bool { return p >= c.Processes-c.Readers }

// ends returns the fault of a final state, or "".
func (c Config) ends(s state) string {
	for i := range s.process {
		if p := &s.process[i]; p.phase != dead && (p.phase != idle || p.callers > 0) {
			return Stuck
		}
	}
	if s.called() || s.queue[0] != 0 && s.process[s.queue[0]-1].phase != dead {
		return Litter
	}
	return ""
}

func (c Config) served(s state) bool { return c.ends(s) == "" }

// canon sorts the other nodes, with their links: they are alike.
func canon(s state) state {
	const others = queueNode + 1
	var parts [nodes - others]struct {
		key, readers uint8
		link         [most]link
	}
	for n := range parts {
		parts[n].key, parts[n].readers = s.key[others+n], s.readers[others+n]
		for i := range s.process {
			parts[n].link[i] = s.process[i].link[others+n]
		}
	}
	search.Sort(parts[:])
	for n := range parts {
		s.key[others+n], s.readers[others+n] = parts[n].key, parts[n].readers
		for i := range s.process {
			s.process[i].link[others+n] = parts[n].link[i]
		}
	}
	return s
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

// crowd reports whether a process other than p is in the line.
func (l *line) crowd(p uint8) bool { return l[0] != 0 && l[0] != p || l[1] != 0 }
