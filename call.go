package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/wire"
)

// This file has the way of a call, from its arrival to its lease or error, and that of the lease to
// its release.

// tryOnce makes one attempt. Attempts that masters in quarantine have kept from a quorum do not count,
// as long as the call may wait for these masters.
func (p *pool) tryOnce(ctx context.Context, resource string, lc lockConfig) (*Lease, error) {
	doubts := 0
	for began := time.Now(); ; {
		g, f := p.attempt(ctx, resource, lc, strategy{patient: p.waitlines.crowded(resource)})
		if f == nil {
			return p.grantLease(ctx, g, nil, began), nil
		}
		if err := p.outwait(ctx, f, lc.votesWait-time.Since(began), &doubts); err != nil {
			p.events.gaveUp(lc.line(resource), began, err)
			return nil, err
		}
	}
}

// mostDoubts is how often a call looks again whether it was a holder that refused it.
const mostDoubts = 6

// outwait returns nil after a pause, if a failed attempt lacked the votes of masters in quarantine, and
// if they will have their votes within left and before the deadline of ctx. Otherwise it returns the error
// of the call.
//
// While masters are in quarantine, attempts that wait for them set their keys all the same, for moments. Such
// a key may be what refused the attempt, and no process may have the resource: of three processes that each
// find the keys of the other two, all would give up. So the call looks again a few times, which doubts counts.
func (p *pool) outwait(ctx context.Context, f *failure, left time.Duration, doubts *int) error {
	if f.verdict == nil || f.verdict.Permanent() || left <= 0 {
		return f.err
	}
	if errors.Is(f.err, ErrTaken) && slices.ContainsFunc(f.verdict.Masters, func(n *MasterError) bool { return n.Quarantine > 0 }) && *doubts < mostDoubts {
		*doubts++
		if reason := until(ctx, p.closing, nil, min(left, p.conf.queue.retryDelay(*doubts+2))); reason != nil {
			return f.verdict.because(reason)
		}
		return nil
	}
	if !errors.Is(f.err, ErrQuarantine) {
		return f.err
	}
	in := f.verdict.votesIn()
	if end, limited := ctx.Deadline(); in > left || limited && time.Until(end) < in {
		return f.err
	}
	if reason := until(ctx, p.closing, nil, min(left, p.awaitVotes(f.verdict))); reason != nil {
		return f.verdict.because(reason)
	}
	return nil
}

// attempt makes one attempt, and reports it to the waitlines and the observer if it failed.
func (p *pool) attempt(ctx context.Context, resource string, lc lockConfig, how strategy) (*grant, *failure) {
	began := time.Now()
	get := (*pool).acquire
	if lc.permits.Of > 0 {
		get = (*pool).acquirePermits
	}
	g, f := get(p, ctx, resource, lc, how)
	p.outage.note(p, f)
	if f != nil {
		p.waitlines.heard(lc.line(resource), f, lc.ttl)
		p.events.notAcquired(lc.line(resource), began, f.err)
	}
	return g, f
}

// attemptAll makes an attempt for each of several resources, and reports those that failed.
func (p *pool) attemptAll(ctx context.Context, resources []string, lc lockConfig) ([]*grant, []*failure) {
	began := time.Now()
	grants, failures := p.acquireAll(ctx, resources, lc)
	for i, f := range failures {
		p.outage.note(p, f)
		if f != nil {
			p.waitlines.heard(lineKey{resource: resources[i]}, f, lc.ttl)
			p.events.notAcquired(lineKey{resource: resources[i]}, began, f.err)
		}
	}
	return grants, failures
}

// waitFor waits until it has a lease or the call ends without one, which it tells the observer.
func (p *pool) waitFor(ctx context.Context, resource string, lc lockConfig) (*Lease, error) {
	began := time.Now()
	le, err := p.waitInLine(ctx, resource, lc, began)
	if err != nil {
		p.events.gaveUp(lc.line(resource), began, err)
	}
	return le, err
}

// waitInLine stands in line until the resource is handed to this caller, or, at the head of
// the line, makes attempts until one is successful.
func (p *pool) waitInLine(ctx context.Context, resource string, lc lockConfig, began time.Time) (*Lease, error) {
	lines := &p.waitlines
	c := lines.join(ctx, resource, lc, began)
	left := false // the line
	defer func() {
		if !left { // a method of ctx panicked
			p.leave(c)
		}
	}()
	for {
		switch next := lines.look(c); {
		case next.lease != nil:
			left = true
			return next.lease, nil
		case next.ask:
			g, f := p.attempt(ctx, resource, lc, next.how)
			if f == nil {
				left = true
				return p.grantLease(ctx, g, c, c.began), nil
			}
			if err := p.retryable(ctx, c, f); err != nil {
				left = true
				p.leave(c)
				return nil, err
			}
		default:
			if reason := until(ctx, p.closing, next.wake, next.wait); reason != nil {
				left = true
				err := p.gaveUp(c, reason)
				p.leave(c)
				return nil, err
			}
		}
	}
}

// retryable notes the failure of an attempt by the head of a line. If the caller must stop
// waiting, it returns the error for the caller.
func (p *pool) retryable(ctx context.Context, c *caller, f *failure) error {
	if closed(c.done) && errors.Is(f.err, ctx.Err()) {
		// The attempt was cut short; an earlier one knew more.
		if last, _ := p.waitlines.last(c); last != nil {
			return last.because(contextError(ctx))
		}
		return f.err
	}
	if f.verdict == nil || f.verdict.Permanent() || errors.Is(f.err, ErrClosed) {
		return f.err
	}
	if f.queued {
		p.listen(f.queue.node)
	}
	var voteless time.Duration
	if errors.Is(f.err, ErrQuarantine) {
		voteless = p.awaitVotes(f.verdict)
		if end, limited := ctx.Deadline(); limited && time.Until(end) < f.verdict.votesIn() {
			return f.err // the deadline comes first
		}
	}
	p.waitlines.failed(c, f, p.hears(f.queue.node), func(failed int) time.Duration {
		return max(p.conf.queue.retryDelay(failed), voteless)
	})
	return nil
}

// leave ends the waiting of a caller without a lease.
func (p *pool) leave(c *caller) {
	lease, queuedAt := p.waitlines.leave(c)
	if lease != nil { // handed over in the same moment
		_, _ = p.unlock(lease)
	}
	if queuedAt >= 0 {
		p.leaveQueue(c.line.key, queuedAt)
	}
}

// gaveUp is the error of a caller that stopped waiting for reason. It includes the verdict of
// the line's last attempt, which this caller or the one ahead of it made.
func (p *pool) gaveUp(c *caller, reason error) error {
	last, behind := p.waitlines.last(c)
	switch {
	case behind:
		return errorf("lock %q: %w, %w in this process: %w", c.line.key.name(), ErrNotAcquired, ErrTaken, reason)
	case last != nil:
		return last.because(reason)
	}
	return errorf("lock %q: %w: %w", c.line.key.name(), ErrNotAcquired, reason)
}

// grantLease makes the first handle of a lease that was granted or adopted. head is the caller
// at the head of a line that got it; it is nil if the caller stood in no line.
func (p *pool) grantLease(ctx context.Context, g *grant, head *caller, began time.Time) *Lease {
	le := &g.room.first
	g.mu.Lock()
	if g.shared { // the process may wait for the next lease when this one is released
		g.name = wire.NoProcess
	}
	*le = Lease{grant: g, fence: g.presentFenceLocked(), turn: g.hand.count, parent: ctx, since: time.Now()}
	g.handles = append(g.handles, le)
	g.renewal.at = g.nextRenewal(g.start)
	due := g.dueLocked()
	g.mu.Unlock()
	if queuedAt := p.waitlines.held(g, head); queuedAt >= 0 {
		p.leaveQueue(g.line(), queuedAt)
	}
	p.renewer.add(g, due, g.start)
	p.events.acquired(le, began)
	return le
}

// unlock ends a handle. last reports that it was the last handle of its lease; the releases
// have then been sent.
func (p *pool) unlock(le *Lease) (last bool, err error) {
	now := p.now()
	if p.passToNext(le, now) {
		return false, nil
	}
	last, err = le.end(ErrReleased, now)
	if last {
		p.release(le, now)
	}
	return last, err
}

// release sends the releases of a lease whose last handle was ended at now.
func (p *pool) release(le *Lease, now instant) {
	le.grant.sendReleases(now, false)
	p.renewer.remove(le.grant)
	p.waitlines.freed(le.grant)
}
