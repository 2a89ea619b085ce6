package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/reason"
)

// This file orders the callers of one process that want the same resource. They stand in line,
// first come, first served. The head alone asks the nodes. Readers have a line of their own. The head of
// the other line asks only while the process does not have the resource.

// waitline is the line of a process for one resource, as a state machine: its methods take an event
// and the present moment, and return the next step and the caller to wake. They know no
// clock, channel, goroutine or mutex. The waitlines run it; the exhaustive search of
// queue_search_test.go runs it, too.
//
// Source: ALGORITHM section 10.
type waitline struct {
	key         lineKey
	policy      *queuePolicy
	holder      *grant  // by which the process has the resource; nil if it does not, and in a line that is not alone
	first, rear *caller // the callers that wait; first is the head
	joined      int     // callers that have joined the line
	mayShare    int     // how many of them had joined when the head began its attempt

	// State of the head's attempts. The next head goes on from there, because the place in the
	// queue belongs to the process.
	last      *failure // nil if the process has rested without an attempt
	failures  int
	elsewhere int       // last attempts in a row that the queue node granted and a quorum refused
	askAt     time.Time // when to make the next attempt
	allUntil  time.Time // until then attempts ask the queue node first
	called    bool      // the queue node has called since the last attempt began
	released  bool      // the process has just had the resource
	queuedAt  int       // the node in whose queue the process is; -1 for none

	lone caller // room for the caller that began the line: most lines have no other caller
}

// lineKey names a line of a process. Readers have a line of their own.
type lineKey struct {
	resource string
	shared   bool
}

// line returns the line of the callers that want such a lease on a resource.
func (lc *lockConfig) line(resource string) lineKey { return lineKey{resource, lc.shared} }

// caller is a call of Lock or Do that stands in a line.
type caller struct {
	line        *waitline
	ahead, next *caller
	ctx         context.Context
	done        <-chan struct{} // of ctx
	number      int             // of the caller in its line, from 1
	config      lockConfig
	began       time.Time
	wake        chan struct{} // holds one token, which means: look again; nil until the caller has waited
	idle        bool          // the caller makes no attempt just now
	behind      bool          // the caller has waited for another caller's lease
	lease       *Lease        // that was handed over to the caller or is shared with it; the caller has left the line then
}

// advice tells a caller what to do next: take a lease that was handed over to it, rest, make an
// attempt, or wait until it is woken. If wait is not 0, it bounds the waiting.
type advice struct {
	lease *Lease
	rest  bool // join the queue of the queue node without an attempt
	ask   bool
	how   strategy
	wake  <-chan struct{} // made by the waitlines
	wait  time.Duration
}

// count returns the number of lines.
func (t *waitlines) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

// join puts a caller at the end of the line.
func (l *waitline) join(c *caller) {
	l.joined++
	c.line, c.ahead, c.number = l, l.rear, l.joined
	if l.rear == nil {
		l.first = c
	} else {
		l.rear.next = c
	}
	l.rear = c
}

// look tells a caller what to do. crowded says that other processes are known to wait.
func (l *waitline) look(c *caller, crowded bool, now time.Time) advice {
	c.idle = true
	switch {
	case c.lease != nil:
		return advice{lease: c.lease}
	case l.first != c || l.holder != nil:
		c.behind = c.behind || l.holder != nil
		return advice{}
	case now.Before(l.askAt) && !l.called:
		return advice{wait: l.askAt.Sub(now)}
	case crowded && l.failures == 0 && !l.called && l.queuedAt < 0: // an attempt would be refused
		return advice{rest: true}
	}
	l.mayShare = l.joined
	c.idle, l.askAt = false, time.Time{} // if the caller gives up during its attempt, the next head asks at once
	return advice{ask: true, how: l.strategy(crowded, now)}
}

// strategy returns the strategy of the next attempt.
func (l *waitline) strategy(crowded bool, now time.Time) strategy {
	how := strategy{waits: true, patient: crowded}
	switch {
	case l.called: // the queue node grants the resource to no other process now
		how.patient, l.called = false, false
	case l.failures == 0 && (crowded || l.released): // asking all nodes could overtake the process that is called now
		how.queueNodeFirst = true
		l.allUntil = now.Add(l.policy.askAllEvery)
	case l.failures > 0 && (l.last == nil || l.last.queue.heard) && now.Before(l.allUntil):
		how.queueNodeFirst = true
	default:
		l.allUntil = now.Add(l.policy.askAllEvery)
	}
	return how
}

// failed notes a failed attempt of the head. The next attempt is due after a delay, which is
// about d of the number of failures, or when the queue node calls.
func (l *waitline) failed(f *failure, d func(failures int) time.Duration, now time.Time) {
	l.last = f
	l.failures++
	wait := d(l.failures)
	if f.elsewhere {
		l.elsewhere++
	} else {
		l.elsewhere = 0
	}
	switch most := l.policy.mostRefused; {
	case f.elsewhere && l.elsewhere < most: // a release may be under way
	case f.elsewhere && (l.elsewhere == most || !f.listens):
		wait = l.policy.room()
	case f.queued && f.listens:
		wait = max(wait, l.policy.patience(f.left()))
		if f.queue.endsSoon(l.policy) { // after the end the queue node has the key of the process that is next
			l.allUntil = now.Add(wait + l.policy.askAllEvery)
		}
	}
	l.askAt = now.Add(wait)
}

// rested notes that the process joins the queue of a node without an attempt.
func (l *waitline) rested(queueNode int, listening bool, now time.Time) {
	l.queuedAt = queueNode
	l.failures++
	l.allUntil = now.Add(l.policy.askAllEvery)
	if listening {
		l.askAt = now.Add(l.policy.restDelay)
	} else {
		l.askAt = now.Add(l.policy.retryDelay(l.failures))
	}
}

// placed notes how many processes are before this one in the queue. At the end of a key they ask first.
func (l *waitline) placed(place int, now time.Time) {
	if now.Before(l.askAt) {
		l.askAt = l.askAt.Add(time.Duration(min(place, l.policy.mostSpread)) * time.Millisecond)
	}
}

// call notes that the queue node has called the process, and returns the caller to wake. The
// call may come before the answer to the attempt that joined the queue.
func (l *waitline) call() (wake *caller) {
	if l.first == nil || l.holder != nil {
		return nil
	}
	l.called = true
	return l.first
}

// held notes that the process has the resource. The caller that got it leaves the line; c is nil
// if it stood in none. If the process is in the queue of a node where the grant's release will
// not remove it, queuedAt is that node, and otherwise -1.
func (l *waitline) held(g *grant, c *caller) (queuedAt int, wake *caller) {
	if c != nil {
		wake = l.remove(c)
	}
	l.holder = g
	l.begin()
	queuedAt, l.queuedAt = l.queuedAt, -1
	if queuedAt == g.queueNode {
		queuedAt = -1
	}
	return queuedAt, wake
}

// begin forgets what the attempts came to, because one was granted.
func (l *waitline) begin() {
	l.last, l.failures, l.elsewhere, l.askAt, l.called, l.released = nil, 0, 0, time.Time{}, false, false
}

// admit notes that the head of a line of readers has a lease. It leaves the line, and so do the readers that may share the lease: those that were in line when the attempt
// began and want such a lease. Later readers make attempts of their own, which the queue node sees:
// otherwise a busy process would keep writers out. If the process is in the queue of a node, and no caller
// waits any more, queuedAt is that node.
//
// Source: ALGORITHM section 12.
func (l *waitline) admit(g *grant, head *caller) (sharers []*caller, queuedAt int, wake *caller) {
	l.remove(head)
	for c := l.first; c != nil; c = c.next {
		if c.number <= l.mayShare && c.config == g.lockConfig && !closed(c.done) {
			l.remove(c)
			sharers = append(sharers, c)
		}
	}
	l.begin()
	if g.hand.heard && l.queuedAt == g.queueNode { // which has taken the process out
		l.queuedAt = -1
	}
	queuedAt = -1
	if l.first == nil {
		queuedAt, l.queuedAt = l.queuedAt, -1
	}
	return sharers, queuedAt, l.first
}

// heir returns the caller that can take over a grant: it waits at the head of the line, and has
// the same options. It returns nil if there is no such caller.
func (l *waitline) heir(g *grant) *caller {
	if c := l.first; c != nil && l.holder == g && c.idle && c.config == g.lockConfig {
		return c
	}
	return nil
}

// handedTo notes that a lease of this process was handed over to the heir, which leaves the line. If the
// process is in the queue of a node where the grant's release will not remove it, queuedAt is that node.
func (l *waitline) handedTo(heir *caller, le *Lease) (queuedAt int, wake *caller) {
	heir.lease = le
	return l.held(l.holder, heir)
}

// freed notes that a grant does not have the resource any more.
func (l *waitline) freed(g *grant) (wake *caller) {
	if l.holder == g {
		l.holder, l.released = nil, true
	}
	if l.holder != nil || l.first == nil {
		return nil
	}
	l.askAt = time.Time{}
	return l.first
}

// leave takes a caller out of the line. If a lease was handed over to it in the same moment,
// leave returns the lease, and the caller of leave has to unlock it. If the line is empty now,
// queuedAt is the node in whose queue the process is. Otherwise, and if there is none, it is -1.
func (l *waitline) leave(c *caller) (lease *Lease, queuedAt int, wake *caller) {
	if c.lease != nil {
		return c.lease, -1, nil
	}
	wake, queuedAt = l.remove(c), -1
	if l.first == nil {
		queuedAt, l.queuedAt = l.queuedAt, -1
	}
	return nil, queuedAt, wake
}

// remove takes a caller out of the line. If it was the head, remove returns the new head.
func (l *waitline) remove(c *caller) (wake *caller) {
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

// waitlines are the lines of a Locker. They tell each line what happens and when, and wake callers.
type waitlines struct {
	policy *queuePolicy

	mu     lockorder.Mutex[lockorder.Waitlines]
	lines  map[lineKey]*waitline // guarded by mu, as each line is; the lines with a holder or a caller
	known  memories              // guarded by mu
	inLine int                   // guarded by mu; callers in all lines
}

// lineLocked returns a line, and makes it if there is none.
func (t *waitlines) lineLocked(key lineKey) *waitline {
	l := t.lines[key]
	if l == nil {
		if t.lines == nil {
			t.lines = make(map[lineKey]*waitline)
		}
		l = &waitline{key: key, policy: t.policy, queuedAt: -1}
		t.lines[key] = l
	}
	return l
}

// tidyLocked deletes a line without a holder and callers.
func (t *waitlines) tidyLocked(l *waitline) {
	if l.first == nil && l.holder == nil {
		delete(t.lines, l.key)
	}
}

// join puts a caller at the end of the line for resource.
func (t *waitlines) join(ctx context.Context, resource string, lc lockConfig, began time.Time) *caller {
	done := ctx.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lineLocked(lc.line(resource))
	c := &l.lone
	if c.line != nil {
		c = new(caller)
	}
	*c = caller{ctx: ctx, done: done, config: lc, began: began}
	l.join(c)
	t.inLine++
	return c
}

// waits reports whether a caller waits in a line.
func (t *waitlines) waits(key lineKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	return l != nil && l.first != nil
}

// behind reports whether a caller waits behind the head of a line.
func (t *waitlines) behind(key lineKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	return l != nil && l.first != nil && l.first.next != nil
}

// waiting returns the number of callers in all lines, heads included.
func (t *waitlines) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inLine
}

// crowded reports whether other processes are known to wait for a resource.
func (t *waitlines) crowded(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known.crowded(resource, time.Now())
}

// look tells a caller what to do.
func (t *waitlines) look(c *caller) advice {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	next := t.pauseLocked(c, now)
	if next.wait == 0 {
		next = c.line.look(c, t.known.crowded(c.line.key.resource, now), now)
	}
	if next.lease == nil && !next.ask {
		if c.wake == nil {
			c.wake = make(chan struct{}, 1)
		}
		next.wake = c.wake
	}
	return next
}

// pauseLocked tells the head of a line to wait if the resource is left to clients of another library.
func (t *waitlines) pauseLocked(c *caller, now time.Time) (next advice) {
	if l := c.line; c.lease == nil && l.first == c && l.holder == nil {
		next.wait = t.known.pause(l.key.resource, now)
		c.idle = true
	}
	return next
}

// failed notes a failed attempt of the head of a line.
func (t *waitlines) failed(c *caller, f *failure, d func(failures int) time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.line.failed(f, d, time.Now())
}

// hear remembers what a queue node says of other processes.
func (t *waitlines) hear(resource string, word queueReply, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !word.heard || !word.others && !word.foreign && t.known.all[resource] == nil {
		return
	}
	now := time.Now()
	t.known.crowd(resource, word.others, ttl, now)
	if word.foreign {
		t.known.meet(resource, now)
	}
}

// queued notes that the process is in the queue of a node, after an attempt.
func (t *waitlines) queued(key lineKey, queueNode int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lines[key]; l != nil {
		l.queuedAt = queueNode
	}
}

// inQueue reports whether the process is in the queue of a node for a caller.
func (t *waitlines) inQueue(c *caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.line.queuedAt >= 0
}

// rested notes that the process joins a queue without an attempt, as the method of the line does.
func (t *waitlines) rested(c *caller, queueNode int, listening bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.line.rested(queueNode, listening, time.Now())
}

// placed notes the reply to a rest: how many processes are before this one, or that it has the turn.
func (t *waitlines) placed(key lineKey, place int, hasTurn bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch l := t.lines[key]; {
	case l == nil:
	case hasTurn:
		l.call().poke()
	default:
		l.placed(place, time.Now())
	}
}

// call wakes the head of a line after the queue node has called the process.
func (t *waitlines) call(key lineKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lines[key]; l != nil {
		l.call().poke()
	}
}

// cameUp notes that a node can be asked that could not before. Another node may keep a queue now, and there
// may be a quorum again: the heads that are in no queue, or in that of another node, ask at once.
func (t *waitlines) cameUp(queueNodeOf func(resource string) int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, l := range t.lines {
		if l.first != nil && l.holder == nil && l.queuedAt != queueNodeOf(key.resource) {
			l.askAt = time.Time{}
			l.first.poke()
		}
	}
}

// held notes that this process has the resource, as the method of the line does.
func (t *waitlines) held(g *grant, c *caller) (queuedAt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.shared {
		return t.admitLocked(g, c)
	}
	l := t.lineLocked(g.line())
	contested := l.failures > 0
	queuedAt, wake := l.held(g, c)
	wake.poke()
	if c != nil {
		t.inLine--
	}
	g.mu.Lock()
	g.hand.contested = g.hand.contested || contested
	for c := l.first; c != nil && g.hand.inLine < crowdedHandovers; c = c.next {
		g.hand.inLine++
	}
	g.mu.Unlock()
	return queuedAt
}

// admitLocked notes that this process has a lease of a reader, as the method of the line does. c is nil if the caller that got the lease stood in no line.
func (t *waitlines) admitLocked(g *grant, c *caller) (queuedAt int) {
	queuedAt = -1
	g.mu.Lock()
	defer g.mu.Unlock()
	if c == nil {
		return queuedAt
	}
	sharers, queuedAt, wake := c.line.admit(g, c)
	for c := c.line.first; c != nil && g.hand.inLine < crowdedHandovers; c = c.next {
		g.hand.inLine++
	}
	t.inLine -= 1 + len(sharers)
	for _, s := range sharers {
		s.lease = g.newHandleLocked(s.ctx)
		s.poke()
	}
	wake.poke()
	t.tidyLocked(c.line)
	return queuedAt
}

// freed notes that a grant does not have the resource any more: its lease is being released, or
// was lost or detached, or is that of a reader now.
func (t *waitlines) freed(g *grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freedLocked(g)
}

func (t *waitlines) freedLocked(g *grant) {
	if l := t.lines[g.line()]; l != nil && !g.shared {
		t.known.freed(g.resource, time.Now())
		l.freed(g).poke()
		t.tidyLocked(l)
	}
}

// leave takes a caller out of its line, as the method of the line does.
func (t *waitlines) leave(c *caller) (lease *Lease, queuedAt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lease, queuedAt, wake := c.line.leave(c)
	if lease == nil {
		wake.poke()
		t.inLine--
		t.tidyLocked(c.line)
	}
	return lease, queuedAt
}

// poke wakes a caller. It does nothing for nil.
func (c *caller) poke() {
	if c == nil {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// closed reports whether a context has ended, by its channel. Err of a context can be foreign
// code that blocks. So Err is called only after the context has ended, only by the goroutine of
// the call, and not under a mutex.
func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// last returns the verdict of the last attempt by the head of the caller's line. If there was
// none since, behind reports whether the caller has waited for a lease of this process.
func (t *waitlines) last(c *caller) (verdict *QuorumError, behind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.line.last == nil {
		return nil, c.behind
	}
	return c.line.last.verdict, false
}

// whyNot returns the reason why this process does not have a resource, or why a caller of it
// has to wait. It returns nil if none is known.
func (t *waitlines) whyNot(resource string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, shared := range []bool{false, true} {
		switch l := t.lines[lineKey{resource: resource, shared: shared}]; {
		case l == nil:
		case l.holder != nil:
			return fmt.Errorf("%w in this process", ErrTaken)
		case l.last != nil:
			return l.last.err
		}
	}
	return nil
}

// until blocks until ready is closed or has a token, or until d is over. A d of 0 is never
// over. If the context or the Locker ends first, until returns that as an error.
func until(ctx context.Context, closing, ready <-chan struct{}, d time.Duration) error {
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ready:
	case <-after:
	case <-ctx.Done():
		return reason.OfContext(ctx)
	case <-closing:
		return ErrClosed
	}
	return nil
}

// memories has what the Locker remembers of resources, also while none of its callers wants them.
type memories struct {
	emptyPrefix bool
	all         map[string]*memory
	sweepAt     int
}

type memory struct {
	crowdedUntil time.Time // other processes are known to wait until then
	other        otherLibrary
}

// of returns the memory of a resource, and makes it if there is none.
func (s *memories) of(resource string, now time.Time) *memory {
	m := s.all[resource]
	if m != nil {
		return m
	}
	if len(s.all) > s.sweepAt {
		for r, m := range s.all {
			if now.Sub(m.other.met) >= otherMemory && now.Sub(m.other.freed) >= otherMemory && !now.Before(m.crowdedUntil) {
				delete(s.all, r)
			}
		}
		s.sweepAt = 2*len(s.all) + 64
	}
	if s.all == nil {
		s.all = make(map[string]*memory)
	}
	m = &memory{other: otherLibrary{since: now}}
	s.all[resource] = m
	return m
}

// crowded reports whether other processes are known to wait for a resource.
func (s *memories) crowded(resource string, now time.Time) bool {
	m := s.all[resource]
	return m != nil && now.Before(m.crowdedUntil)
}

// crowd notes whether other processes wait for a resource, as a queue node has said. It is remembered for
// a TTL.
func (s *memories) crowd(resource string, crowded bool, ttl time.Duration, now time.Time) {
	if crowded {
		s.of(resource, now).crowdedUntil = now.Add(ttl)
	} else if m := s.all[resource]; m != nil {
		m.crowdedUntil = time.Time{}
	}
}

// meet notes that a key of another library was in the way.
func (s *memories) meet(resource string, now time.Time) { s.of(resource, now).other.met = now }

// freed notes that this process does not have a resource any more.
func (s *memories) freed(resource string, now time.Time) {
	if m := s.all[resource]; m != nil || s.emptyPrefix {
		s.of(resource, now).other.freed = now
	}
}

// pause returns how long this process leaves a resource to clients of another library.
func (s *memories) pause(resource string, now time.Time) time.Duration {
	if m := s.all[resource]; m != nil {
		return m.other.pause(s.emptyPrefix, now)
	}
	return 0
}
