package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// This file is about the callers of one process that want the same resource. They stand
// in line: the head alone asks the nodes, and only while the process does not have the
// resource. First come, first served.

// waitlines are the lines of a Locker.
type waitlines struct {
	policy *queuePolicy

	mu     lockorder.Mutex[lockorder.Waitlines]
	lines  map[string]*waitline // guarded by mu; those with a holder or a caller
	remote remoteWaiters        // guarded by mu
	inLine int                  // guarded by mu; callers in all lines
}

// waitline is what a process does with one resource. The waitlines' mutex guards it.
type waitline struct {
	resource    string
	holder      *grant  // that has it for this process, if one has
	first, rear *caller // those who want it; the first is the head

	// Of the head's attempts. The next head goes on from there: the place in the
	// queue is the process's.
	last      *failure
	failed    int
	elsewhere int       // in a row, up to the last one: the queue node granted, but a quorum refused
	askAt     time.Time // when to make the next one
	allUntil  time.Time // until then the queue node is asked first
	called    bool      // the queue node has called since the last one began
	released  bool      // the process has just had the resource
	queuedAt  int       // the node in whose queue the process is; -1 for none

	lone caller // room for the one who began the line: most lines see no other
}

// caller is a place in a line.
type caller struct {
	line        *waitline
	ahead, next *caller
	ctx         context.Context
	done        <-chan struct{} // of ctx
	config      lockConfig
	began       time.Time
	wake        chan struct{} // holds one token: look again; nil until the caller has waited
	idle        bool          // makes no attempt just now
	behind      bool          // has waited for another caller's lease
	lease       *Lease        // was handed over, and the caller has left the line
}

// advice is what a caller is to do next: take a lease that it was handed, make an attempt,
// or wait until it is woken, for a time at the most if that is not 0.
type advice struct {
	lease *Lease
	ask   bool
	how   strategy
	wake  <-chan struct{}
	wait  time.Duration
}

// lineLocked is the line of a resource, which begins here if there is none.
func (t *waitlines) lineLocked(resource string) *waitline {
	l := t.lines[resource]
	if l == nil {
		if t.lines == nil {
			t.lines = make(map[string]*waitline)
		}
		l = &waitline{resource: resource, queuedAt: -1}
		t.lines[resource] = l
	}
	return l
}

// tidyLocked forgets a line that nobody is in.
func (t *waitlines) tidyLocked(l *waitline) {
	if l.first == nil && l.holder == nil {
		delete(t.lines, l.resource)
	}
}

// join puts a caller at the end of the line for resource.
func (t *waitlines) join(ctx context.Context, resource string, lc lockConfig, began time.Time) *caller {
	done := ctx.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lineLocked(resource)
	c := &l.lone
	if c.line != nil {
		c = new(caller)
	}
	*c = caller{line: l, ahead: l.rear, ctx: ctx, done: done, config: lc, began: began}
	if l.rear == nil {
		l.first = c
	} else {
		l.rear.next = c
	}
	l.rear = c
	t.inLine++
	return c
}

// waits reports whether somebody of this process wants a resource that it does not have.
func (t *waitlines) waits(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[resource]
	return l != nil && l.first != nil
}

// waiting is how many callers stand in line, or ask the nodes at the head of one.
func (t *waitlines) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inLine
}

// look tells a caller what to do.
func (t *waitlines) look(c *caller) advice {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, now := c.line, time.Now()
	c.idle = true
	switch {
	case c.lease != nil:
		return advice{lease: c.lease}
	case l.first != c || l.holder != nil:
		c.behind = c.behind || l.holder != nil
		return c.pause(0)
	case now.Before(l.askAt) && !l.called:
		return c.pause(l.askAt.Sub(now))
	}
	c.idle = false
	return advice{ask: true, how: t.strategyLocked(l, now)}
}

// pause has the caller wait.
func (c *caller) pause(d time.Duration) advice {
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	return advice{wake: c.wake, wait: d}
}

// strategyLocked is how the head of a line makes its next attempt.
//
// Source: ALGORITHM section 10.
func (t *waitlines) strategyLocked(l *waitline, now time.Time) strategy {
	how := strategy{waits: true, patient: t.remote.known(l.resource, now)}
	switch {
	case l.called: // nobody else is let in now
		how.patient, l.called = false, false
	case l.failed == 0 && (how.patient || l.released): // or it would overtake the one who is called now
		how.queueNodeFirst = true
		l.allUntil = now.Add(t.policy.askAllEvery)
	case l.failed > 0 && l.last.queue.heard && now.Before(l.allUntil):
		how.queueNodeFirst = true
	default:
		l.allUntil = now.Add(t.policy.askAllEvery)
	}
	return how
}

// failed notes how an attempt of the head ended. The next one is due after d, or when the queue
// node calls, which it can if the process hears it.
//
// Source: ALGORITHM section 10.
func (t *waitlines) failed(c *caller, f *failure, hears bool, d func(failed int) time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, now := c.line, time.Now()
	l.last = f
	l.failed++
	wait := d(l.failed)
	if f.queue.elsewhere {
		l.elsewhere++
	} else {
		l.elsewhere = 0
	}
	switch most := t.policy.mostRefused; {
	case f.queue.elsewhere && l.elsewhere < most: // a release may be under way
	case f.queue.elsewhere && (l.elsewhere == most || !hears):
		wait = t.policy.room()
	case f.queue.queued && hears:
		l.allUntil = now // in case the queue is not as it should be
		wait = max(wait, t.policy.patience(f.queue.left))
	}
	l.askAt = now.Add(wait)
}

// heard takes what the queue node said to an attempt that failed.
func (t *waitlines) heard(resource string, q queueReply, ttl time.Duration) {
	if !q.heard {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remote.note(resource, q.others, ttl)
	if l := t.lines[resource]; l != nil && q.queued {
		l.queuedAt = q.node
	}
}

// behind reports whether a caller waits behind the head of the line for a resource.
func (t *waitlines) behind(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[resource]
	return l != nil && l.first != nil && l.first.next != nil
}

// crowded reports whether other processes are known to wait for a resource.
func (t *waitlines) crowded(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remote.known(resource, time.Now())
}

// call tells the head of a line that the queue node says it is its turn. It may come before the
// answer that it would have to wait.
func (t *waitlines) call(resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lines[resource]; l != nil && l.first != nil && l.holder == nil {
		l.called = true
		l.first.poke()
	}
}

// held notes that this process has the resource. The caller that got it, if there is one,
// leaves the line. If the process is in a queue where the grant's release will not take it
// out, that is the result.
func (t *waitlines) held(g *grant, c *caller) (queuedAt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lineLocked(g.resource)
	if c != nil {
		t.removeLocked(c)
	}
	g.mu.Lock()
	heard, others := g.hand.heard, g.hand.others
	g.hand.contested = l.failed > 0
	for c := l.first; c != nil && g.hand.inLine < crowdedHandovers; c = c.next {
		g.hand.inLine++
	}
	g.mu.Unlock()
	if heard {
		t.remote.note(g.resource, others, g.ttl)
	}
	l.holder = g
	l.last, l.failed, l.elsewhere, l.askAt, l.called, l.released = nil, 0, 0, time.Time{}, false, false
	queuedAt, l.queuedAt = l.queuedAt, -1
	if queuedAt == g.queueNode {
		return -1
	}
	return queuedAt
}

// freed notes that a grant does not have the resource any more: its keys are about to
// be dropped, or it was lost.
func (t *waitlines) freed(g *grant) {
	g.mu.Lock()
	others := g.hand.others // the queue node's answer may have come after the verdict
	g.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if others {
		t.remote.note(g.resource, true, g.ttl)
	}
	l := t.lines[g.resource]
	if l == nil {
		return
	}
	if l.holder == g {
		l.holder, l.released = nil, true
	}
	if l.holder == nil && l.first != nil {
		l.askAt = time.Time{}
		l.first.poke()
	}
	t.tidyLocked(l)
}

// leave takes a caller out of its line, wherever it stands. If it was handed a lease in the
// same moment that is the result: somebody has to give it back. If it was the last, and the
// process is in a queue, that is the other.
func (t *waitlines) leave(c *caller) (lease *Lease, queuedAt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.lease != nil {
		return c.lease, -1
	}
	l := c.line
	t.removeLocked(c)
	queuedAt = -1
	if l.first == nil {
		queuedAt, l.queuedAt = l.queuedAt, -1
	}
	t.tidyLocked(l)
	return nil, queuedAt
}

// removeLocked takes a caller out of its line, and has a new head look.
func (t *waitlines) removeLocked(c *caller) {
	l := c.line
	t.inLine--
	if c.next != nil {
		c.next.ahead = c.ahead
	} else {
		l.rear = c.ahead
	}
	if c.ahead != nil {
		c.ahead.next = c.next
		return
	}
	l.first = c.next
	if l.first != nil {
		l.first.poke()
	}
}

func (c *caller) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// closed reports whether a context has ended, by its channel: Err can be anybody's code, which
// may block. It is not called before that, nor under a mutex, nor by another's goroutine.
func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// last is how the last attempt by the head of the caller's line ended; and if there
// was none since, whether the caller has waited for a lease of this process.
func (t *waitlines) last(c *caller) (verdict *QuorumError, behind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.line.last == nil {
		return nil, c.behind
	}
	return c.line.last.verdict, false
}

// whyNot is what keeps this process from having a resource that it does not have, as far as
// is known.
func (t *waitlines) whyNot(resource string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch l := t.lines[resource]; {
	case l == nil:
		return nil
	case l.holder != nil:
		return fmt.Errorf("%w in this process", ErrTaken)
	case l.last == nil:
		return nil
	default:
		return l.last.err
	}
}

// until blocks until ready is closed or has a token, or d is over (never, if it is
// 0), or the context or the Locker ends, which is the error.
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
		return contextError(ctx)
	case <-closing:
		return ErrClosed
	}
	return nil
}

// remoteWaiters remembers for which resources other processes wait. That is told by queue nodes, and
// holds for a TTL.
type remoteWaiters struct {
	until   map[string]time.Time
	sweepAt int
}

func (s *remoteWaiters) known(resource string, now time.Time) bool {
	return len(s.until) > 0 && now.Before(s.until[resource])
}

func (s *remoteWaiters) note(resource string, crowded bool, ttl time.Duration) {
	if !crowded {
		delete(s.until, resource)
		return
	}
	now := time.Now()
	if s.until == nil {
		s.until = make(map[string]time.Time)
	}
	s.until[resource] = now.Add(ttl)
	if len(s.until) > s.sweepAt {
		for r, end := range s.until {
			if !now.Before(end) {
				delete(s.until, r)
			}
		}
		s.sweepAt = 2*len(s.until) + 64
	}
}
