package redlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// This file is about waiting for a resource that somebody else has: in line with
// the other callers of this process, and then, at the head of it, for the nodes.

const (
	firstDelay = 2 * time.Millisecond   // largest pause before the second attempt
	maxDelay   = 100 * time.Millisecond // largest pause between attempts
)

// retryDelay is how long to pause after the given number of failed attempts: a
// random part of a limit that doubles, so that callers who collided part ways.
func retryDelay(failed int) time.Duration {
	limit := maxDelay
	if failed < 10 {
		limit = min(firstDelay<<max(failed-1, 0), maxDelay)
	}
	return rand.N(limit) + time.Microsecond
}

// turns lines up the callers of this process that want the same resource: only the
// head of a line asks the nodes. First come, first served.
type turns struct {
	mu    sync.Mutex
	lines map[string]*line // guarded by mu; those that are not empty
}

// line is the callers that want one resource. The turns' mutex guards it.
type line struct {
	resource    string
	first, rear *caller       // the first is the head
	poked       chan struct{} // holds one token: the resource was released in this process
	verdict     *QuorumError  // what the head's last attempt ended with
}

// caller is a place in a line.
type caller struct {
	line        *line
	ahead, next *caller
	turn        chan struct{} // closed when the caller gets to the head
}

// atHead is the turn of a caller that need not wait for it.
var atHead = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// join puts a caller at the end of the line for resource.
func (t *turns) join(resource string) *caller {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = make(map[string]*line)
	}
	l := t.lines[resource]
	if l == nil {
		c := &caller{line: &line{resource: resource}, turn: atHead}
		c.line.first, c.line.rear = c, c
		t.lines[resource] = c.line
		return c
	}
	c := &caller{line: l, ahead: l.rear, turn: make(chan struct{})}
	l.rear.next, l.rear = c, c
	return c
}

// leave takes a caller out of its line, wherever it stands, and passes the turn on.
func (t *turns) leave(c *caller) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := c.line
	if c.next != nil {
		c.next.ahead = c.ahead
	} else {
		l.rear = c.ahead
	}
	switch {
	case c.ahead != nil:
		c.ahead.next = c.next
	case c.next != nil:
		l.first = c.next
		close(l.first.turn)
	default:
		delete(t.lines, l.resource)
	}
}

// poke tells the head of the line, if there is one, that the resource was released
// in this process: it need not sit out its pause.
func (t *turns) poke(resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lines[resource]; l != nil && l.poked != nil {
		select {
		case l.poked <- struct{}{}:
		default:
		}
	}
}

// failed notes the verdict of an attempt by the head, which is about to pause.
func (t *turns) failed(c *caller, verdict *QuorumError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.line.verdict = verdict
	if c.line.poked == nil {
		c.line.poked = make(chan struct{}, 1)
	}
}

// last is the verdict of the last attempt by the head of the caller's line.
func (t *turns) last(c *caller) *QuorumError {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.line.verdict
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
