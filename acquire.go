package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file runs an attempt (attempt.go): it sends the requests that a step asks for, passes
// the replies in, keeps the time, and turns the result into a grant or an error.

// acquisition is an attempt under way, and the grant that it may become. The grant's mutex
// guards both.
type acquisition struct {
	grant
	attempt attempt
	seed    int64           // where a missing counter should start
	sent    []*node.Request // by node: the request without an answer; nil for none
	actions []action        // room for those of a step
	later   []instant       // room for an event

	votersOfFive  [5]voter
	sentOfFive    [5]*node.Request
	actionsOfFive [5]action
}

// failure is the result of an attempt that was not granted.
type failure struct {
	err       error
	verdict   *QuorumError // err, if nodes were asked
	queue     queueReply
	elsewhere bool // as in approach
	queued    bool // the process has a place in the queue: the releases tell the queue node so
}

// left returns how long what is in the way lasts at most; a negative number if that is not known.
func (f *failure) left() time.Duration {
	if f.elsewhere {
		return -1
	}
	return f.queue.left
}

// acquire makes one attempt. If it fails, releases are on their way to all nodes.
//
// Source: distlock, "The Redlock Algorithm", steps 1 to 5; ALGORITHM section 3.
func (p *pool) acquire(ctx context.Context, resource string, lc lockConfig, how strategy) (*grant, *failure) {
	if closed(ctx.Done()) {
		return nil, &failure{err: endedBy(ctx)}
	}
	if err := p.set.Misconfigured(); err != nil {
		return nil, &failure{err: errorf("lock %q: %w: %w", resource, ErrNotAcquired, err)}
	}
	a := newAcquisition(p, resource, lc)
	if err := p.admission.enter(ctx, p.closing); err != nil {
		return nil, &failure{err: errorf("lock %q: %w: %w", resource, ErrNotAcquired, err)}
	}
	granted, queued := false, false
	defer func() { // also if a method of ctx panics
		p.admission.leave(a.answeredIn(), lc.timeout())
		if !granted {
			a.sendReleases(p.now(), queued)
		}
	}()
	a.ask(how, p.set.AwaitClocks(ctx, p.closing, p.now(), lc.timeout()))
	f := a.conclude(a.await(ctx))
	if f == nil {
		granted = true
		return &a.grant, nil
	}
	queued = f.queued && !f.verdict.Permanent() && p.goesOn(ctx, a.line())
	f.queued = queued
	return nil, f
}

// acquireAll makes one attempt for each of several resources, at the same time. Their requests go to
// each node together, and they count as one attempt for the admission: an attempt that waited for
// admission while others of the same call are under way could wait for ever.
//
// Source: ALGORITHM section 12.
func (p *pool) acquireAll(ctx context.Context, resources []string, lc lockConfig) ([]*grant, []*failure) {
	grants, failures := make([]*grant, len(resources)), make([]*failure, len(resources))
	all := make([]*acquisition, len(resources))
	for i, r := range resources {
		all[i] = newAcquisition(p, r, lc)
	}
	if err := p.admission.enter(ctx, p.closing); err != nil {
		for i, r := range resources {
			failures[i] = &failure{err: errorf("lock %q: %w: %w", r, ErrNotAcquired, err)}
		}
		return grants, failures
	}
	now := p.set.AwaitClocks(ctx, p.closing, p.now(), lc.timeout())
	release := p.set.Hold()
	for i, a := range all {
		a.ask(strategy{patient: p.waitlines.crowded(resources[i])}, now)
	}
	release()
	inParallel(len(all), func(i int) { failures[i] = all[i].conclude(all[i].await(ctx)) })
	slowest := time.Duration(0)
	for i, a := range all {
		slowest = max(slowest, a.answeredIn())
		if failures[i] == nil {
			grants[i] = &a.grant
			continue
		}
		a.sendReleases(p.now(), false)
	}
	p.admission.leave(slowest, lc.timeout())
	return grants, failures
}

// goesOn reports whether the process still wants a resource when an attempt of the
// head of its line has failed: the head waits, or another caller does.
func (p *pool) goesOn(ctx context.Context, line lineKey) bool {
	return p.opened.Err() == nil && (!closed(ctx.Done()) || p.waitlines.behind(line))
}

// endedBy returns the error of a call whose context was over before a node was asked.
func endedBy(ctx context.Context) error {
	return errorf("%w: %w", ErrNotAcquired, contextError(ctx))
}

// contextError returns ctx.Err(), and with it the cause if that is another error.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func newAcquisition(p *pool, resource string, lc lockConfig) *acquisition {
	a := &acquisition{}
	a.init(p, resource, lc)
	// Most pools have no more than five nodes, whose state comes with the acquisition.
	n := len(p.nodes)
	a.sent = slices.Grow(a.sentOfFive[:0], n)[:n]
	a.actions = a.actionsOfFive[:0]
	a.attempt = attempt{
		rules:   &p.conf.rules,
		need:    p.need,
		timeout: lc.timeout(),
		skew:    p.skew,
		nodes:   slices.Grow(a.votersOfFive[:0], n)[:n],
	}
	return a
}

// ask begins the attempt at the present moment.
func (a *acquisition) ask(how strategy, now instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if how.waits {
		a.name = a.pool.queuesAs(a.line())
	}
	a.beginLocked(how, now, a.pool.queueNodeOf(a.resource))
	a.stepLocked(event{what: begun}, a.start)
}

// beginLocked makes the attempt ready to begin at a moment.
func (a *acquisition) beginLocked(how strategy, start instant, queueNode int) {
	p := a.pool
	a.start, a.queueNode = start, queueNode
	a.hand.since = start
	a.seed = p.set.Seed(start, a.timeout())
	t := &a.attempt
	t.start, t.useless = start, start.Add(a.ttl-a.minValidity())
	t.approach = approach{strategy: how, policy: &p.conf.queue, node: queueNode, shared: a.shared}
}

// stepLocked passes an event to the attempt, and sends the requests that the step returns.
func (a *acquisition) stepLocked(e event, now instant) {
	t := &a.attempt
	do := t.step(e, now, a.actions[:0])
	var reqs []node.Request
	for k := 0; k < len(do) && !t.phase.over(); k++ {
		if len(reqs) == 0 {
			reqs = make([]node.Request, len(do)-k)
		}
		r, i := &reqs[0], do[k].node
		reqs = reqs[1:]
		*r = node.Request{Op: do[k].op, Node: i, Key: &a.keys, Counter: do[k].counter, Target: do[k].target, Timeout: a.timeout(), Shared: a.shared, To: a}
		if r.Op == wire.Acquire {
			r.Target = a.seed
			if i == a.queueNode && a.choice == nil {
				r.Process = a.name
			}
		}
		a.sent[i] = r
		if err := a.pool.nodes[i].Send(r, now); err != nil {
			a.sent[i] = nil
			do = t.step(unsent(r, err), now, do)
		}
	}
	a.actions = do[:0]
	a.target = t.fencing.target
	a.hand.heard, a.hand.others, a.hand.foreign = t.approach.reply.heard, t.approach.reply.others, t.approach.reply.foreign
	if t.phase.over() || t.until() < t.armed {
		a.wake()
	}
}

// unsent returns the event for a request that could not be sent.
func unsent(r *node.Request, err error) event {
	if r.Op == wire.Raise {
		return event{what: raised, node: r.Node, err: err}
	}
	return event{what: voted, node: r.Node, vote: vote{err: err}}
}

// Receive implements [node.Receiver] for the acquire and the raise.
func (a *acquisition) Receive(r *node.Request, rep node.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent[r.Node] == r {
		a.sent[r.Node] = nil
	}
	e := event{what: raised, node: r.Node, err: rep.Refusal(&a.keys)}
	if r.Op == wire.Acquire {
		e = event{what: voted, node: r.Node, vote: vote{counter: rep.Counter, server: rep.Server, err: e.err}}
		e.vote.refused = rep.Err == nil && (rep.Code == wire.Busy || rep.Code == wire.Queued)
		if r.Process != "" {
			e.vote.queue = heardFrom(r.Node, rep)
		} else {
			e.vote.readers = readersAt(r, rep) && (r.Shared || a.attempt.approach.waits)
		}
		a.nodes[r.Node].takeGrant(rep, e.err == nil, a.keyLife(a.start, a.ttl))
	}
	a.stepLocked(e, rep.At)
}

// readersAt reports whether a node other than the queue node says that other readers have the key.
func readersAt(r *node.Request, rep node.Reply) bool {
	switch rep.Code {
	case wire.Granted, wire.Mine:
		return r.Shared && rep.Extra > 0
	case wire.Busy:
		return rep.Counter > 0
	}
	return false
}

// takeGrant notes what the answer to an acquire says of the key, even if it is too late for a
// vote.
func (n *nodeKey) takeGrant(rep node.Reply, isVote bool, keepsTo instant) {
	if rep.HasKey() {
		n.held, n.had, n.keepsTo = true, true, keepsTo
	}
	if isVote {
		n.counter = rep.Counter
	}
}

// await waits for the end of the attempt. The result says why the caller will not have the
// lease, whatever the votes; nil if it will.
func (a *acquisition) await(ctx context.Context) (over error) {
	timer := a.pool.timers.start(a.firstWait())
	defer a.pool.timers.stop(timer)
	for {
		select {
		case <-a.signal:
		case <-timer.C:
			a.timeUp()
		case <-ctx.Done():
			return contextError(ctx)
		case <-a.pool.closing:
			return ErrClosed
		}
		if a.rearm(timer) {
			continue
		}
		if closed(ctx.Done()) { // while the votes came in
			return contextError(ctx)
		}
		return nil
	}
}

// firstWait returns for how long to set the timer first. The nodes have been asked just now, so the clock need
// not be read for it.
func (a *acquisition) firstWait() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.attempt.arm().Sub(a.attempt.asked), time.Microsecond)
}

// rearm sets the timer for the attempt. It reports false if the attempt is over.
func (a *acquisition) rearm(timer *time.Timer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attempt.phase.over() {
		return false
	}
	timer.Reset(max(a.attempt.arm().Sub(a.pool.now()), time.Microsecond))
	return true
}

// timeUp tells the attempt that its time has come, and which answers may come later.
func (a *acquisition) timeUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.later == nil {
		a.later = make([]instant, len(a.sent))
	}
	for i, r := range a.sent {
		a.later[i] = 0
		if r == nil {
			continue
		}
		due, hasTurn := a.pool.nodes[i].DueAt(r)
		if due == 0 && hasTurn { // other requests go before it
			due = a.attempt.asked.Add(2 * a.timeout())
		}
		a.later[i] = due
	}
	a.stepLocked(event{what: timeUp, later: a.later}, a.pool.now())
}

// answeredIn returns the time until a quorum of the nodes had answered. If they have not, it
// returns the time until now.
func (a *acquisition) answeredIn() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := &a.attempt; t.answered != 0 {
		return t.answered.Sub(t.asked)
	}
	return a.pool.now().Sub(a.attempt.asked)
}

// conclude turns the attempt into a lease's deadline, or a failure. over says that the caller will
// not have the lease. A failure is queued if the attempt may leave its process in the queue.
//
// Source: ALGORITHM section 3, point 4 ("deadline D"); section 1, "MinValidity".
func (a *acquisition) conclude(over error) *failure {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &a.attempt
	if err := a.pool.set.Misconfigured(); err != nil && over == nil {
		over = err
	}
	var reasons []error
	switch {
	case over != nil:
		reasons = []error{over}
	case t.phase == lost:
		reasons = t.reasons()
	default:
		now := a.pool.now()
		a.hand.took = now.Sub(a.start)
		a.setDeadlineLocked(a.pool.conf.rules.validFrom(a.start, now), a.ttl)
		left := validity(a.deadline(), now)
		if left >= a.minValidity() {
			return nil
		}
		reasons = []error{ErrNoQuorum, fmt.Errorf("only %v of the validity was left", max(left, 0))}
	}
	a.stepLocked(event{what: gaveUp}, a.pool.now())
	e := a.pool.quorumError("lock", a.resource, t.granted(), append([]error{ErrNotAcquired}, reasons...)...)
	for i := range t.nodes {
		if n := &t.nodes[i]; n.failed() {
			e.Masters = append(e.Masters, a.pool.nodeError(i, n.op.String(), n.err, a.timeout()))
		}
	}
	return &failure{
		err:       e,
		verdict:   e,
		queue:     t.approach.reply, // which may still change
		elsewhere: t.approach.elsewhere,
		queued:    t.approach.rests(),
	}
}
