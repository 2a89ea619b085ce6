// Package line orders the waiting for a resource: among the callers of one process, and among
// processes as far as a process can do that. The node that keeps the queue of the processes is
// asked elsewhere.
//
// A [Line] is a state machine. Its methods take an event and the present moment, and return the
// next step and the caller to wake. They know no clock, channel, goroutine, mutex or node. [Lines]
// has the lines of a process by resource, and runs them.
//
// H identifies a lease by which the process has the resource. The package carries
// a C for each caller, and does not look at it.
//
// Source: ALGORITHM section 10.
package line

import (
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/wire"
)

// Key names a line of a process. Readers have a line of their own. Callers that want any of several
// resources stand in several lines of what names their queue (wire.QueueOf), each with its own place in
// the queue.
type Key struct {
	Resource string
	Shared   bool
	Slot     int // from 1, of a line for any of several resources; otherwise 0
}

// queue names what all lines have in common that stand in one queue for the same.
func (k Key) queue() Key { return Key{Resource: k.Resource, Shared: k.Shared} }

// Nowhere is the place of a process that is in the queue of no node. Otherwise the place is the
// index of the node.
const Nowhere = -1

// Line has the callers of one process that want the same resource: first come, first served. The
// head alone asks the nodes, and in a line of writers only while the process does not have the
// resource.
type Line[H comparable, C any] struct {
	key         Key
	kind        *kind
	policy      *Policy
	holder      H             // by which the process has the resource; zero if it does not, and in a line of readers or for any of several
	first, rear *Caller[H, C] // the callers that wait; first is the head
	joined      int           // callers that have joined the line
	mayShare    int           // how many of them had joined when the head began its attempt
	atGrant     int           // how many of them had joined when the holder got the resource
	contested   bool          // an attempt of the line had failed before the holder got the resource
	attempts    int           // that the heads have made
	began       time.Time     // of a line for any of several resources
	told        time.Time     // when the log last said that the head waits

	Attempts

	lone Caller[H, C] // room for the caller that began the line: most lines have no other caller
}

// Attempts has the outcome of the attempts of a line's heads. The next head goes on from there,
// because the place in the queue belongs to the process.
type Attempts struct {
	Why       error     // why the last attempt failed; nil if none has
	Unheard   bool      // the queue node did not answer it, or has not answered a rest yet
	Failures  int       // attempts, and rests without one
	Elsewhere int       // last attempts in a row that the queue node granted and a quorum refused
	AskAt     time.Time // when to ask again
	Rests     bool      // to rest then: the queue node knows which process is next. Otherwise all nodes are asked
	IsCalled  bool      // the queue node has called since the last attempt began
	Released  bool      // the process has just had the resource
	Number    int       // of the one of several resources to which the queue node has called
	Polls     bool      // the process cannot be called
	QueuedAt  int       // the node in whose queue the process is, or Nowhere
	Before    int       // processes before this one in that queue, as the node last said
	Outage    bool      // fewer nodes than a quorum were up: no attempt until a quorum is; the head looks at AskAt, and each OutageLook
}

// Caller is a call that stands in a line.
type Caller[H comparable, C any] struct {
	Call C

	line        *Line[H, C]
	ahead, next *Caller[H, C]
	number      int              // in its line, from 1
	arrival     int              // in the lines of its process, from 1
	wake        lockorder.Signal // nil until the caller has waited
	idle        bool             // the caller makes no attempt just now
	behind      bool             // the caller has waited for another caller's lease
	served      bool             // the caller has a lease of the holder, and has left the line
}

// Key returns the name of the caller's line.
func (c *Caller[H, C]) Key() Key { return c.line.key }

// Advice tells a caller what to do next.
type Advice struct {
	Step Step
	How  Strategy        // of Ask and Rest
	Wake <-chan struct{} // of Wait and Rest
	For  time.Duration   // bounds Wait; 0 = until Wake alone
}

// Step is what a caller does next.
type Step uint8

const (
	Wait Step = iota // until it is woken
	Rest             // ask the queue node alone: it has a place in its queue for the process, and replies what an attempt needs to know
	Ask              // make an attempt
	Take             // the lease that was handed over to the caller, or is shared with it
)

// Strategy is how the head of a line approaches the nodes.
type Strategy struct {
	Waits   bool // the process waits for the resource if another one has it
	Patient bool // other processes are known to wait: a quorum waits for the queue node's answer
	Number  int  // of the attempt, among those of the line
	OneOf   int  // the one of several resources to ask for; 0 = any
}

// Failure is the failure of an attempt, as far as the order depends on it.
type Failure struct {
	Why       error
	Word      wire.Word     // of the queue node
	Elsewhere bool          // the queue node granted, but a quorum refused
	KeysLeft  time.Duration // with Elsewhere: until the keys that refused end; 0 if that is not known
	Queued    bool          // the process has a place in the queue
	Listens   bool          // and can be called; otherwise it polls
	Outage    bool          // fewer nodes than a quorum are up
}

// left returns for how long the key or turn that refused the attempt lasts; negative if that is
// unknown, or if it has no end.
func (f *Failure) left() time.Duration {
	switch {
	case f.Elsewhere && f.KeysLeft > 0:
		return f.KeysLeft
	case f.Elsewhere || !f.Word.Heard:
		return -1
	}
	return f.Word.Left
}

// Has reports whether the process has the resource.
func (l *Line[H, C]) Has() bool {
	var none H
	return l.holder != none
}

// Join puts a caller at the end of the line.
func (l *Line[H, C]) Join(c *Caller[H, C]) {
	l.joined++
	c.line, c.ahead, c.number = l, l.rear, l.joined
	if l.rear == nil {
		l.first = c
	} else {
		l.rear.next = c
	}
	l.rear = c
}

// Look tells a caller what to do. crowded says that other processes are known to wait.
func (l *Line[H, C]) Look(c *Caller[H, C], crowded bool, now time.Time) Advice {
	c.idle = true
	switch {
	case c.served:
		return Advice{Step: Take}
	case l.first != c || l.Has():
		c.behind = c.behind || l.Has()
		return Advice{}
	case l.Outage && !now.Before(l.AskAt):
		return Advice{For: l.policy.OutageLook}
	case now.Before(l.AskAt) && (l.Outage || !l.IsCalled):
		return Advice{For: l.AskAt.Sub(now)}
	case l.rests(crowded):
		return Advice{Step: Rest, How: Strategy{Waits: true, Number: l.attempts}}
	}
	l.mayShare = l.joined
	l.attempts++
	how := Strategy{Waits: true, Patient: crowded, Number: l.attempts, OneOf: l.Number}
	if l.IsCalled { // the queue node grants the resource to no other process now, but may call again to another one
		how.Patient = l.kind.named
	}
	c.idle, l.IsCalled, l.Rests, l.AskAt = false, false, false, time.Time{} // if the caller gives up during its attempt, the next head asks at once
	return Advice{Step: Ask, How: how}
}

// rests reports whether the head asks the queue node alone. An attempt would be refused or overtake the process that is
// called now, where others wait, or where the process has just had the resource. Without a name it would not know what to
// ask for: one attempt is made, for the reason.
func (l *Line[H, C]) rests(crowded bool) bool {
	switch {
	case l.IsCalled || l.Unheard:
		return false
	case l.Failures == 0:
		return crowded || l.Released || l.kind.named
	}
	return l.Rests || l.kind.named && l.Why != nil
}

// Failed notes a failed attempt of the head. The next attempt is due after a pause, which is about
// that of the number of failures, or when the queue node calls.
func (l *Line[H, C]) Failed(f Failure, pause func(failures int) time.Duration, now time.Time) {
	l.Why, l.Unheard, l.Outage = f.Why, !f.Word.Heard, f.Outage
	l.Failures++
	wait := pause(l.Failures)
	if f.Elsewhere {
		l.Elsewhere++
	} else {
		l.Elsewhere = 0
	}
	l.Polls = !f.Listens
	switch most := l.policy.MostRefused; {
	case f.Outage:
		wait = max(wait, l.policy.QueuedDelay)
	case f.Elsewhere && l.Elsewhere < most: // a release may be under way
	case f.Elsewhere && (l.Elsewhere == most || !f.Listens):
		wait = l.policy.room()
	case f.Queued:
		if asksAgain := l.wait(f.left()); f.Listens {
			wait = max(wait, asksAgain)
		}
	}
	l.AskAt = now.Add(wait)
}

// wait returns for how long a process in the queue waits, before it asks again. left is how long what is in the way lasts;
// negative if that is not known. When that ends the process rests, and otherwise asks all nodes: the queue node's key may
// be that of an attempt which is over. So it does from time to time also if it rests often, and once soon, for the reason.
func (l *Line[H, C]) wait(left time.Duration) (wait time.Duration) {
	l.Rests = (l.Polls || l.policy.endsSoon(left)) && l.Failures%l.policy.AskAllEvery != 0
	switch wait = l.policy.patience(left); {
	case l.Polls:
		return l.policy.RetryDelay(l.Failures)
	case l.Why == nil && wait > l.policy.RestDelay:
		l.Rests = false
		return l.policy.RestDelay
	}
	return wait
}

// Rested notes that the process joins the queue of a node without an attempt. If the node does not answer, all nodes are
// asked.
func (l *Line[H, C]) Rested(queueNode int, listens bool, now time.Time) {
	l.QueuedAt = queueNode
	l.Failures++
	l.Unheard, l.Polls = true, !listens
	l.AskAt = now.Add(l.policy.RestDelay)
}

// Placed notes the reply to a rest that does not give the process the turn: the processes before it ask first when what is
// in the way ends. It returns the caller to wake.
func (l *Line[H, C]) Placed(w wire.Word, now time.Time) (wake *Caller[H, C]) {
	former := l.AskAt
	l.Before = max(0, w.Before)
	switch {
	case w.Before < 0 && l.Unheard: // there is no queue
		l.AskAt = now.Add(l.policy.RetryDelay(l.Failures))
	case l.Unheard:
		l.Unheard = false
		l.AskAt = now.Add(l.wait(w.Left))
	case w.Left >= 0 && !l.Polls && now.Add(w.Left).Before(l.AskAt):
		l.AskAt = now.Add(l.wait(w.Left))
	}
	if now.Before(l.AskAt) {
		l.AskAt = l.AskAt.Add(time.Duration(min(l.Before, l.policy.MostSpread)) * time.Millisecond)
	}
	if near := now.Add(l.policy.NearDelay); w.Before > 0 && w.Before <= l.policy.Near && near.Before(l.AskAt) {
		l.AskAt, l.Rests = near, l.Failures%l.policy.AskAllEvery != 0 // the process before it may be stopped, and keep its turn
	}
	if l.AskAt.Before(former) {
		return l.first
	}
	return nil
}

// Called notes that the queue node has called the process, to the one of several resources that has
// the number, and returns the caller to wake. The call may come before the answer to the attempt that
// joined the queue.
func (l *Line[H, C]) Called(number int) (wake *Caller[H, C]) {
	if l.first == nil || l.Has() {
		return nil
	}
	l.IsCalled, l.Number = true, number
	return l.first
}

// Held notes that the process has the resource by h. The caller that got it leaves the line; c is
// nil if it stood in none. leaves is the node that takes the process out of its queue at the latest
// when h is released. If the process is in the queue of another node, queuedAt is that node, and
// otherwise Nowhere.
func (l *Line[H, C]) Held(h H, c *Caller[H, C], leaves int) (queuedAt int, wake *Caller[H, C]) {
	l.contested = l.contested && l.holder == h || l.Why != nil
	if l.holder != h {
		l.atGrant = l.joined
	}
	if c != nil {
		wake = l.remove(c)
	}
	l.holder = h
	l.begin()
	return l.leaveQueue(leaves), wake
}

// begin forgets what the attempts came to, because one was granted.
func (l *Line[H, C]) begin() {
	l.Attempts = Attempts{QueuedAt: l.QueuedAt}
}

// leaveQueue notes that the process leaves its queue, and returns the node to tell: Nowhere if that
// is the one that takes the process out anyway.
func (l *Line[H, C]) leaveQueue(leaves int) (queuedAt int) {
	queuedAt, l.QueuedAt = l.QueuedAt, Nowhere
	if queuedAt == leaves {
		return Nowhere
	}
	return queuedAt
}

// mostMisfits is how many readers in a row may not fit before the search for sharers ends: a line
// in which each reader has options of its own must not be searched as a whole at each grant.
const mostMisfits = 64

// Admit notes that the head of a line of readers has a lease. It leaves the line, and so do the
// readers with which share shares the lease: share is called for those that were in line when the
// attempt began. Later readers make attempts of their own, which the queue node sees: otherwise a
// busy process would keep writers out. leaves is the node that has taken the process out of its
// queue, or Nowhere. If the process is in the queue of another node, and no caller waits any more,
// queuedAt is that node.
//
// Source: ALGORITHM section 12, "In one process".
func (l *Line[H, C]) Admit(head *Caller[H, C], leaves int, share func(*C) bool) (sharers []*Caller[H, C], queuedAt int, wake *Caller[H, C]) {
	l.remove(head)
	queuedAt = Nowhere
	misfits := 0
	for c := l.first; c != nil && c.number <= l.mayShare && misfits < mostMisfits; c = c.next {
		if !share(&c.Call) {
			misfits++
			continue
		}
		c.served, misfits = true, 0
		l.remove(c)
		sharers = append(sharers, c)
	}
	l.begin()
	if l.QueuedAt == leaves {
		l.QueuedAt = Nowhere
	}
	if l.first == nil {
		queuedAt = l.leaveQueue(Nowhere)
	}
	return sharers, queuedAt, l.first
}

// Offer describes the caller to which the lease of a holder can be handed over.
type Offer[C any] struct {
	Call      *C
	Waited    bool // the caller was in line when the holder got the resource
	Contested bool // other processes want the resource, or readers of this process
}

// Heir returns the caller that can take over a lease: it waits at the head of the line. It returns nil if there is no
// such caller.
func (l *Line[H, C]) Heir() *Caller[H, C] {
	if c := l.first; c != nil && c.idle {
		return c
	}
	return nil
}

// HandedOver notes that a lease was handed over to the heir, which leaves the line. leaves and queuedAt are as in Held, or
// as in Admit if the line does not have the resource: the process may have some of several, and want more.
func (l *Line[H, C]) HandedOver(heir *Caller[H, C], leaves int) (queuedAt int, wake *Caller[H, C]) {
	heir.served = true
	if !l.Has() {
		_, queuedAt, wake = l.Admit(heir, Nowhere, func(*C) bool { return false })
		return queuedAt, wake
	}
	return l.Held(l.holder, heir, leaves)
}

// Changed notes that a node can be asked that could not before, or never will be. queueNode is the
// queue node by now. A head that is in no queue, or in that of another node, asks at once. In an
// outage it asks if the attempt would tell anything new.
func (l *Line[H, C]) Changed(news bool, queueNode int) (wake *Caller[H, C]) {
	if l.first == nil || l.Has() || l.Outage && !news || !l.Outage && l.QueuedAt == queueNode {
		return nil
	}
	l.Outage, l.AskAt = false, time.Time{}
	return l.first
}

// Freed notes that a holder does not have the resource any more.
func (l *Line[H, C]) Freed(h H) (wake *Caller[H, C]) {
	if l.holder == h {
		var none H
		l.holder, l.Released = none, true
	}
	if l.Has() || l.first == nil {
		return nil
	}
	l.AskAt, l.Outage = time.Time{}, false
	return l.first
}

// Leave takes a caller out of the line. If a lease was handed over to it in the same moment, served
// is true, and the caller has to unlock that lease. If the line is empty now, queuedAt is the node
// in whose queue the process is. Otherwise, and if there is none, it is Nowhere.
func (l *Line[H, C]) Leave(c *Caller[H, C]) (served bool, queuedAt int, wake *Caller[H, C]) {
	if c.served {
		return true, Nowhere, nil
	}
	wake, queuedAt = l.remove(c), Nowhere
	if l.first == nil {
		queuedAt = l.leaveQueue(Nowhere)
	}
	return false, queuedAt, wake
}

// remove takes a caller out of the line. If it was the head, remove returns the new head.
func (l *Line[H, C]) remove(c *Caller[H, C]) (wake *Caller[H, C]) {
	if c.next != nil {
		c.next.ahead = c.ahead
	} else {
		l.rear = c.ahead
	}
	if c.ahead != nil {
		c.ahead.next = c.next
		return nil
	}
	l.first = c.next
	return l.first
}
