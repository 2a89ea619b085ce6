package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// This file orders the callers of one process that want the same resource. They stand in line,
// first come, first served. The head alone asks the nodes, and only while the process does not
// have the resource.

// waitlines are the lines of a Locker.
type waitlines struct {
	policy *queuePolicy

	mu     lockorder.Mutex[lockorder.Waitlines]
	lines  map[string]*waitline // guarded by mu; the lines with a holder or a caller
	remote remoteWaiters        // guarded by mu
	inLine int                  // guarded by mu; callers in all lines
}

// waitline is what a process does with one resource. The waitlines' mutex guards it.
type waitline struct {
	resource    string
	holder      *grant  // by which the process has the resource; nil if it does not
	first, rear *caller // the callers that wait; first is the head

	// State of the head's attempts. The next head goes on from there, because the place in the
	// queue belongs to the process.
	last      *failure
	failed    int
	elsewhere int       // last attempts in a row that the queue node granted and a quorum refused
	askAt     time.Time // when to make the next attempt
	allUntil  time.Time // until then attempts ask the queue node first
	called    bool      // the queue node has called since the last attempt began
	released  bool      // the process has just had the resource
	queuedAt  int       // the node in whose queue the process is; -1 for none

	lone caller // room for the caller that began the line: most lines have no other caller
}

// caller is a call of Lock or Do that stands in a line.
type caller struct {
	line        *waitline
	ahead, next *caller
	ctx         context.Context
	done        <-chan struct{} // of ctx
	config      lockConfig
	began       time.Time
	wake        chan struct{} // holds one token, which means: look again; nil until the caller has waited
	idle        bool          // the caller makes no attempt just now
	behind      bool          // the caller has waited for another caller's lease
	lease       *Lease        // that was handed over to the caller, which has left the line then
}

// advice tells a caller what to do next: take a lease that was handed over to it, make an
// attempt, or wait until it is woken. If wait is not 0, it bounds the waiting.
type advice struct {
	lease *Lease
	ask   bool
	how   strategy
	wake  <-chan struct{}
	wait  time.Duration
}

// lineLocked returns the line of a resource, and makes it if there is none.
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

// tidyLocked deletes a line without a holder and callers.
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

// waits reports whether a caller of this process waits for a resource.
func (t *waitlines) waits(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[resource]
	return l != nil && l.first != nil
}

// waiting returns the number of callers in all lines, heads included.
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

// strategyLocked returns the strategy of the next attempt by the head of a line.
//
// Source: ALGORITHM section 10.
func (t *waitlines) strategyLocked(l *waitline, now time.Time) strategy {
	how := strategy{waits: true, patient: t.remote.known(l.resource, now)}
	switch {
	case l.called: // the queue node grants the resource to no other process now
		how.patient, l.called = false, false
	case l.failed == 0 && (how.patient || l.released): // asking all nodes could overtake the process that is called now
		how.queueNodeFirst = true
		l.allUntil = now.Add(t.policy.askAllEvery)
	case l.failed > 0 && l.last.queue.heard && now.Before(l.allUntil):
		how.queueNodeFirst = true
	default:
		l.allUntil = now.Add(t.policy.askAllEvery)
	}
	return how
}

// failed notes a failed attempt of the head. The next attempt is due after a delay, which is
// about d of the number of failures, or when the queue node calls. hears reports whether the
// process can hear such a call.
//
// Source: ALGORITHM section 10.
func (t *waitlines) failed(c *caller, f *failure, hears bool, d func(failed int) time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, now := c.line, time.Now()
	l.last = f
	l.failed++
	wait := d(l.failed)
	if f.elsewhere {
		l.elsewhere++
	} else {
		l.elsewhere = 0
	}
	switch most := t.policy.mostRefused; {
	case f.elsewhere && l.elsewhere < most: // a release may be under way
	case f.elsewhere && (l.elsewhere == most || !hears):
		wait = t.policy.room()
	case f.queued && hears:
		l.allUntil = now // the next attempt asks all nodes, in case the queue node has lost its queue
		wait = max(wait, t.policy.patience(f.left()))
	}
	l.askAt = now.Add(wait)
}

// heard takes the queue node's reply to an attempt that failed.
func (t *waitlines) heard(resource string, f *failure, ttl time.Duration) {
	if !f.queue.heard {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remote.note(resource, f.queue.others, ttl)
	if l := t.lines[resource]; l != nil && f.queued {
		l.queuedAt = f.queue.node
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

// call wakes the head of a line after the queue node has called the process. The call may come
// before the answer to the attempt that joined the queue.
func (t *waitlines) call(resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lines[resource]; l != nil && l.first != nil && l.holder == nil {
		l.called = true
		l.first.poke()
	}
}

// held notes that this process has the resource. The caller that got it leaves the line; c is
// nil if it stood in none. If the process is in the queue of a node where the grant's release
// will not remove it, held returns that node, and otherwise -1.
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

// freed notes that a grant does not have the resource any more: its lease is being released, or
// was lost or detached.
func (t *waitlines) freed(g *grant) {
	g.mu.Lock()
	others := g.hand.others // may have come after the verdict, so that held has not seen it
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

// leave takes a caller out of its line. If a lease was handed over to it in the same moment,
// leave returns the lease, and the caller of leave has to unlock it. If the line is empty now,
// queuedAt is the node in whose queue the process is. Otherwise, and if there is none, it is -1.
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

// removeLocked takes a caller out of its line, and wakes the new head, if there is one.
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
		return contextError(ctx)
	case <-closing:
		return ErrClosed
	}
	return nil
}

// remoteWaiters remembers for which resources other processes wait. The queue nodes tell it, and
// it is remembered for a TTL.
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
