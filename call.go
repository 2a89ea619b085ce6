package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// This file follows a call to its lease or error.

// tryOnce makes one attempt. Attempts that masters in quarantine have kept from a quorum do not
// count, as long as the call may wait for these masters.
func (p *pool) tryOnce(ctx context.Context, resource string, lc lockConfig) (*hold, error) {
	doubts := 0
	for began := time.Now(); ; {
		g, f := p.attempt(ctx, resource, lc, nil, line.Strategy{Patient: p.lines.Crowded(line.Key{Resource: wire.QueueOf(resource), Shared: lc.shared})})
		if f == nil {
			return p.grantLease(ctx, g, nil, began), nil
		}
		if err := p.outwait(ctx, f, lc.votesWait-time.Since(began), &doubts); err != nil {
			p.events.notAcquired(lc.key(resource), began, err)
			return nil, err
		}
	}
}

// mostDoubts is how often a call tries again because the refusal may not come from a holder.
const mostDoubts = 6

// outwait returns nil after a pause, if a failed attempt lacked the votes of masters in quarantine,
// and if they will have their votes within left and before the deadline of ctx. Otherwise it
// returns the error of the call.
//
// While masters are in quarantine, attempts that wait for them set their keys all the same, for
// moments. The refusal may come from such a key and not from a holder: three processes could each
// find the keys of the other two, and all give up. So the call tries again, mostDoubts times at
// most; doubts counts that.
func (p *pool) outwait(ctx context.Context, f *failure, left time.Duration, doubts *int) error {
	if f.verdict == nil || f.verdict.Permanent() || left <= 0 {
		return f.err
	}
	if errors.Is(f.err, ErrTaken) && slices.ContainsFunc(f.verdict.Masters, func(n *MasterError) bool { return n.Quarantine > 0 }) && *doubts < mostDoubts {
		*doubts++
		if why := until(ctx, p.closing, nil, min(left, line.DefaultPolicy.RetryDelay(*doubts+2))); why != nil {
			return f.verdict.because(why)
		}
		return nil
	}
	if !errors.Is(f.err, ErrQuarantine) {
		return f.err
	}
	in := f.verdict.VotesIn()
	if end, limited := ctx.Deadline(); in > left || limited && time.Until(end) < in {
		return f.err
	}
	if why := until(ctx, p.closing, nil, min(left, p.awaitVotes(f.verdict))); why != nil {
		return f.verdict.because(why)
	}
	return nil
}

// attempt makes one attempt, and reports it to the lines and the observer if it failed. head is the
// caller at the head of a line that makes it; nil if the caller stands in no line.
func (p *pool) attempt(ctx context.Context, resource string, lc lockConfig, head *caller, how line.Strategy) (*grant, *failure) {
	began := time.Now()
	g, f := p.acquire(ctx, resource, lc, head, how)
	p.noteAttempt(f)
	if f != nil {
		if f.Queued {
			p.lines.Queued(f.line, f.queueNode)
		}
		var before error
		if head != nil {
			before = p.lines.Standing(head).Why
		}
		p.events.attemptFailed(lc.key(resource), began, f.err, before)
	}
	return g, f
}

// waitFor waits until it has a lease, or until the call ends without one: it tells the observer then.
func (p *pool) waitFor(ctx context.Context, resource string, lc lockConfig) (*hold, error) {
	began := time.Now()
	le, err := p.waitInLine(ctx, resource, lc, began)
	if err != nil {
		p.events.notAcquired(lc.key(resource), began, err)
	}
	return le, err
}

// waitInLine stands in line until the resource is handed to this caller, or, at the head of
// the line, makes attempts until one is successful.
func (p *pool) waitInLine(ctx context.Context, resource string, lc lockConfig, began time.Time) (*hold, error) {
	wanted := call{ctx: ctx, done: ctx.Done(), config: lc, began: began}
	c, name := (*caller)(nil), resource
	if lc.several > 0 {
		c = p.lines.JoinAny(name+wire.OneOf, wanted)
	} else {
		c = p.lines.Join(lc.key(name), wanted)
	}
	served := false
	defer func() {
		if !served { // also if a method of ctx panicked
			p.leave(c)
		}
	}()
	for {
		switch next := p.lines.Look(c); next.Step {
		case line.Take:
			served = true
			return c.Call.lease, nil
		case line.Rest:
			p.rest(c.Key().Alone(), c, next.How.Number)
		case line.Ask:
			if lc.several > 0 {
				resource = c.Call.chosen(c.Key(), next.How.OneOf)
			}
			g, f := p.attempt(ctx, resource, lc, c, next.How)
			if f == nil {
				served = true
				return p.grantLease(ctx, g, c, began), nil
			}
			if err := p.retryable(ctx, resource, c, f); err != nil {
				return nil, err
			}
		default:
			if why := until(ctx, p.closing, next.Wake, next.For); why != nil {
				return nil, p.gaveUp(name, c, why)
			}
			p.outlasts()
			p.waitsLong(name, c)
		}
	}
}

// chosen returns the resource, of several, for the next attempt of a line: that with the number, or any. Another client
// may give the resources another number.
func (c *call) chosen(key line.Key, number int) string {
	for several := c.config.several; ; number = 1 + rand.N(several) {
		if one := key.Resource + strconv.Itoa(number); number > 0 && number <= several && !c.refuse[one] {
			return one
		}
	}
}

// hasAnother reports whether a verdict that is permanent is about one of several resources alone, and others are left.
func (c *call) hasAnother(resource string, verdict *QuorumError) bool {
	if c.config.several == 0 || !verdict.any(reason.WrongType) {
		return false
	}
	if c.refuse == nil {
		c.refuse = make(map[string]bool)
	}
	c.refuse[resource] = true
	return len(c.refuse) < c.config.several
}

// retryable notes the failure of an attempt by the head of a line. If the caller must stop
// waiting, it returns the error for the caller.
func (p *pool) retryable(ctx context.Context, resource string, c *caller, f *failure) error {
	if closed(ctx.Done()) && errors.Is(f.err, ctx.Err()) {
		// The attempt was cut short; an earlier one knew more.
		if last := p.lastVerdict(p.lines.Standing(c)); last != nil {
			return p.because(resource, last, reason.OfContext(ctx))
		}
		return f.err
	}
	if f.verdict == nil || f.verdict.Permanent() && !c.Call.hasAnother(resource, f.verdict) || errors.Is(f.err, ErrClosed) {
		return f.err
	}
	var voteless time.Duration
	if errors.Is(f.err, ErrQuarantine) {
		voteless = p.awaitVotes(f.verdict)
		if end, limited := ctx.Deadline(); limited && time.Until(end) < f.verdict.VotesIn() {
			return f.err // the deadline comes first
		}
	}
	f.Listens = f.Listens && f.queueNode == p.queueNodeOf(resource) // which may have come up meanwhile
	f.Outage = !p.quorumUp()
	pause := line.DefaultPolicy.RetryDelay
	if f.verdict.tooMany((*MasterError).denies) {
		pause = line.DefaultPolicy.DeniedPause
	}
	p.lines.Failed(c, f.Failure, func(failed int) time.Duration { return max(pause(failed), voteless) })
	if f.Outage && p.changes.Load() != f.changes { // meanwhile
		p.changed()
	}
	return nil
}

// leave ends the waiting of a caller without a lease.
func (p *pool) leave(c *caller) {
	served, queuedAt := p.lines.Leave(c)
	if served { // handed over in the same moment
		_, _ = p.unlock(c.Call.lease)
	}
	p.leaveQueue(c.Key(), queuedAt)
}

// gaveUp returns the error of a caller that has stopped waiting, and why. It includes the verdict of
// the line's last attempt, which this caller or the one ahead of it made.
func (p *pool) gaveUp(resource string, c *caller, why error) error {
	s := p.lines.Standing(c)
	last := p.lastVerdict(s)
	switch {
	case s.Behind:
		return reason.Errorf("lock %q: %w, %w in this process: %w", resource, ErrNotAcquired, ErrTaken, why)
	case last != nil:
		return p.because(resource, last, why)
	case s.Queued:
		return reason.Errorf("lock %q: %w, %w: other callers wait, too: %w", resource, ErrNotAcquired, ErrTaken, why)
	}
	return reason.Errorf("lock %q: %w: %w", resource, ErrNotAcquired, why)
}

// because returns the verdict of a call that ended for a reason, which says if the resource was taken by a lease of this
// process, as a reader's is for a writer.
func (p *pool) because(resource string, last *QuorumError, why error) error {
	if errors.Is(last, ErrTaken) && p.holds(resource) {
		last = last.because(errOwnLease)
	}
	return last.because(why)
}

// lastVerdict returns the verdict of the last attempt of a line; nil if there was none. A node that
// had not answered then may have been found down since.
func (p *pool) lastVerdict(s line.Standing) *QuorumError {
	last, _ := s.Why.(*QuorumError) // as conclude made it
	if last == nil {
		return nil
	}
	return p.updated(last)
}

// grantLease makes the first hold of a lease that was granted or adopted. head is the caller
// at the head of a line that got it; it is nil if the caller stood in no line.
func (p *pool) grantLease(ctx context.Context, g *grant, head *caller, began time.Time) *hold {
	le := &g.room.first
	g.mu.Lock()
	switch { // the process may wait for the next lease when this one is released
	case g.shared:
		g.name = wire.NoProcess
	case g.oneOf():
		g.name = p.channel
	}
	*le = hold{grant: g, fence: g.presentFenceLocked(), turn: g.hand.count, parent: ctx, since: time.Now()}
	g.holds = append(g.holds, le)
	g.term.Renewed(g.start)
	if g.passedOverLocked() {
		g.term.Hurry(g.start)
	}
	due := g.dueLocked()
	g.mu.Unlock()
	p.leaveQueue(g.key(), p.noteGrant(g, head))
	p.renewer.add(g, due, g.start)
	p.events.acquired(le, began)
	if why := p.set.Refused(); why != nil { // a node has refused this client since conclude looked
		var after []func()
		g.mu.Lock()
		if g.term.Stands() {
			after = g.endLocked(reason.Errorf("%w: %w", ErrLost, why), p.now())
		}
		g.mu.Unlock()
		run(after)
	}
	return le
}
