package line

import (
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/wire"
)

// Lines are the lines of a process. They tell each line what happens and when, and wake callers.
type Lines[H comparable, C any] struct {
	policy *Policy

	mu      lockorder.Mutex[lockorder.Lines]
	lines   map[Key]*Line[H, C]       // guarded by mu, as each line is; the lines with a holder or a caller
	several map[string]*several[H, C] // guarded by mu; by what names the queue of several resources
	known   memories                  // guarded by mu
	inLine  int                       // guarded by mu; callers in all lines
	joined  int                       // guarded by mu; callers that have joined a line
}

// New returns the lines of a process. emptyPrefix says that the process may share every key with
// clients of another library.
func New[H comparable, C any](policy *Policy, emptyPrefix bool) *Lines[H, C] {
	ls := &Lines[H, C]{policy: policy, known: memories{emptyPrefix: emptyPrefix}}
	ls.known.holds = func(resource string) bool {
		l := ls.lines[Key{Resource: resource}]
		return l != nil && l.Has()
	}
	return ls
}

// NewLine returns a line without callers.
func NewLine[H comparable, C any](key Key, policy *Policy) *Line[H, C] {
	return &Line[H, C]{key: key, kind: key.kind(), policy: policy, Attempts: Attempts{QueuedAt: Nowhere}}
}

// lineLocked returns a line, and makes it if there is none.
func (ls *Lines[H, C]) lineLocked(key Key) *Line[H, C] {
	l := ls.lines[key]
	if l == nil {
		if ls.lines == nil {
			ls.lines = make(map[Key]*Line[H, C])
		}
		l = NewLine[H, C](key, ls.policy)
		ls.lines[key] = l
	}
	return l
}

// tidyLocked deletes a line without a holder and callers.
func (ls *Lines[H, C]) tidyLocked(l *Line[H, C]) {
	if l.first == nil && !l.Has() && ls.lines[l.key] == l {
		delete(ls.lines, l.key)
		ls.tidySeveralLocked(l)
	}
}

// Join puts a caller at the end of a line.
func (ls *Lines[H, C]) Join(key Key, call C) *Caller[H, C] {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.joinLocked(key, call)
}

func (ls *Lines[H, C]) joinLocked(key Key, call C) *Caller[H, C] {
	l := ls.lineLocked(key)
	c := &l.lone
	if c.line != nil {
		c = new(Caller[H, C])
	}
	c.Call = call
	l.Join(c)
	ls.inLine++
	ls.joined++
	c.arrival = ls.joined
	return c
}

// Look tells a caller what to do.
func (ls *Lines[H, C]) Look(c *Caller[H, C]) (next Advice) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if l := c.line; !c.served && l.first == c && !l.Has() {
		next.For = max(ls.known.pause(l.key.Resource, now), ls.several[l.key.Resource].pause(l, now))
		c.idle = true
	}
	if next.For == 0 {
		next = c.line.Look(c, ls.known.crowded(c.line.key.queue(), now), now)
	}
	if next.Step == Wait || next.Step == Rest {
		if c.wake == nil {
			c.wake = lockorder.NewSignal()
		}
		next.Wake = c.wake
	}
	return next
}

// Failed notes a failed attempt of the head of a line, as [Line.Failed] does.
func (ls *Lines[H, C]) Failed(c *Caller[H, C], f Failure, pause func(failures int) time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	c.line.Failed(f, pause, time.Now())
}

// Queued notes that the process is in the queue of a node, after an attempt.
func (ls *Lines[H, C]) Queued(key Key, queueNode int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.lines[key]; l != nil {
		l.QueuedAt = queueNode
	}
}

// Rested notes that the process joins the queue of a node without an attempt.
func (ls *Lines[H, C]) Rested(c *Caller[H, C], queueNode int, listens bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	c.line.Rested(queueNode, listens, time.Now())
}

// Served reports whether a lease has been handed over to a caller, which has left its line.
func (ls *Lines[H, C]) Served(c *Caller[H, C]) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return c.served
}

// Hear takes the word of a queue node, whenever it comes. That other processes wait is remembered
// for a TTL, or until a release counts none. A grant with no waiters proves little: the last holder
// may return at once. The reply to a rest is out of date once the line has made a further attempt:
// the process may have used the turn meanwhile. attempt is the number of the line's last attempt
// when the request was sent.
func (ls *Lines[H, C]) Hear(key Key, w wire.Word, ttl time.Duration, attempt int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case w.Heard:
		others := w.Others
		if !w.Ended { // a release names the process
			others -= ls.several[key.Resource].queued(key)
		}
		if l := ls.lines[Key{Resource: key.Resource}]; w.Ended && l != nil && l.Has() { // this process is the holder
			others--
		}
		if others > 0 {
			ls.known.crowd(key.queue(), ttl, time.Now())
		} else if w.Ended {
			delete(ls.known.crowds, key.queue())
		}
		if w.Foreign {
			ls.known.meet(key.Resource, time.Now())
		}
	case w.Joined:
		if l := ls.lines[key]; l == nil || l.attempts != attempt {
			return
		} else if w.Turn {
			l.Called(w.Number).Poke()
		} else {
			l.Placed(w, time.Now()).Poke()
		}
	}
}

// Call wakes the head of a line after the queue node has called the process, to the one of several
// resources that has the number.
func (ls *Lines[H, C]) Call(key Key, number int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.lines[key]; l != nil {
		l.Called(number).Poke()
	}
}

// Changed notes that a node can be asked that could not before, or never will be, as [Line.Changed]
// does.
func (ls *Lines[H, C]) Changed(news bool, queueNodeOf func(resource string) int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, l := range ls.lines {
		l.Changed(news, queueNodeOf(key.Resource)).Poke()
	}
}

// Held notes that this process has the resource by h, as [Line.Held] does.
func (ls *Lines[H, C]) Held(key Key, h H, c *Caller[H, C], leaves int) (queuedAt int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	queuedAt, wake := ls.lineLocked(key).Held(h, c, leaves)
	wake.Poke()
	if c != nil {
		ls.inLine--
	}
	return queuedAt
}

// Admit notes that the head of a line of readers has a lease, as [Line.Admit] does. share runs
// under the mutex of the lines.
func (ls *Lines[H, C]) Admit(head *Caller[H, C], leaves int, share func(*C) bool) (queuedAt int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	sharers, queuedAt, wake := head.line.Admit(head, leaves, share)
	ls.inLine -= 1 + len(sharers)
	for _, s := range sharers {
		s.Poke()
	}
	wake.Poke()
	ls.tidyLocked(head.line)
	return queuedAt
}

// HandOver offers the lease of a holder to the caller at the head of its line, if that waits. take
// runs under the mutex of the lines. If take accepts, the heir has left the line, and HandOver
// returns it: the caller of HandOver wakes it. queuedAt is as in [Line.Held].
func (ls *Lines[H, C]) HandOver(key Key, h H, leaves int, take func(Offer[C]) bool) (heir *Caller[H, C], queuedAt int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lines[key]
	if any := ls.several[key.Resource]; any != nil {
		l = any.firstHeir()
	} else if l != nil && l.holder != h {
		l = nil
	}
	if l == nil {
		return nil, Nowhere
	}
	if heir = l.Heir(); heir == nil {
		return nil, Nowhere
	}
	key = l.key
	readers := ls.lines[Key{Resource: key.Resource, Shared: true}]
	contested := l.contested || readers != nil && readers.first != nil || ls.known.crowded(key.queue(), time.Now())
	if !take(Offer[C]{Call: &heir.Call, Waited: heir.number <= l.atGrant, Contested: contested}) {
		return nil, Nowhere
	}
	queuedAt, wake := l.HandedOver(heir, leaves)
	wake.Poke()
	ls.inLine--
	ls.tidyLocked(l)
	return heir, queuedAt
}

// Freed notes that a holder does not have the resource any more: its lease is being released, or
// was lost or detached, or is that of a reader now. For the lease of a reader it does nothing.
func (ls *Lines[H, C]) Freed(key Key, h H) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.freedSeveralLocked(key, h)
	if l := ls.lines[key]; l != nil && !key.Shared {
		ls.known.freed(key.Resource, time.Now())
		l.Freed(h).Poke()
		ls.tidyLocked(l)
	}
}

// Leave takes a caller out of its line, as [Line.Leave] does.
func (ls *Lines[H, C]) Leave(c *Caller[H, C]) (served bool, queuedAt int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	served, queuedAt, wake := c.line.Leave(c)
	if !served {
		wake.Poke()
		ls.inLine--
		ls.tidyLocked(c.line)
	}
	return served, queuedAt
}

// Poke wakes a caller. It does nothing for nil.
func (c *Caller[H, C]) Poke() {
	if c != nil {
		c.wake.Set()
	}
}

// Count returns the number of lines.
func (ls *Lines[H, C]) Count() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.lines)
}

// Waiting returns the number of callers in all lines, heads included.
func (ls *Lines[H, C]) Waiting() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.inLine
}

// Each tells of each line with callers: which call is the first, how many there are, whether the process has the
// resource, and why the last attempt failed; nil if none has.
func (ls *Lines[H, C]) Each(tell func(key Key, first C, callers int, held bool, why error)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, l := range ls.lines {
		n := 0
		for c := l.first; c != nil; c = c.next {
			n++
		}
		if n > 0 {
			tell(key, l.first.Call, n, l.Has(), l.Why)
		}
	}
}

// Waits reports whether more than n callers wait in a line.
func (ls *Lines[H, C]) Waits(key Key, n int) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lines[key]
	if l == nil {
		return false
	}
	c := l.first
	for ; n > 0 && c != nil; n-- {
		c = c.next
	}
	return c != nil
}

// Crowded reports whether processes are known to wait that are in the way of a line's callers: to
// readers, only writers are.
func (ls *Lines[H, C]) Crowded(key Key) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.known.crowded(key.queue(), time.Now())
}

// Standing is what a caller has waited for so far.
type Standing struct {
	Why    error // why the last attempt of its line failed; nil if none has
	Behind bool  // the caller has waited for a lease of this process since
	Queued bool  // the process is in the queue of a node
	Before int   // processes before this one in that queue
}

// Standing returns what a caller has waited for so far.
func (ls *Lines[H, C]) Standing(c *Caller[H, C]) Standing {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := c.line
	return Standing{Why: l.Why, Behind: l.Why == nil && c.behind, Queued: l.QueuedAt != Nowhere, Before: l.Before}
}

// Tell reports whether the log is to say that the head of a line waits: it has said so of no head of the line within
// every.
func (ls *Lines[H, C]) Tell(head *Caller[H, C], every time.Duration) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, now := head.line, time.Now()
	if !l.told.IsZero() && now.Sub(l.told) < every {
		return false
	}
	l.told = now
	return true
}

// WhyNot returns why the last attempt for a resource, or for any of several of that name, has failed;
// nil if none has. held reports whether the process has the resource.
func (ls *Lines[H, C]) WhyNot(resource string) (held bool, why error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, shared := range []bool{false, true} {
		l := ls.lines[Key{Resource: resource, Shared: shared}]
		if l != nil && (l.Has() || l.Why != nil) {
			return l.Has(), l.Why
		}
	}
	if s := ls.several[resource+wire.OneOf]; s != nil {
		for _, l := range s.lines {
			if l.Why != nil {
				return false, l.Why
			}
		}
	}
	return false, nil
}
