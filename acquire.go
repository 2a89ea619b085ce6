package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/attempt"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// This file runs an attempt (internal/attempt): it sends the requests that a step asks for,
// passes the replies in, keeps the time, and turns the result into a grant or an error.

// acquisition is an attempt under way, and the grant that it may become. The grant's mutex
// guards both.
type acquisition struct {
	grant
	former     []string // by node: the value that is taken over (adopt.go); nil for keys that must be free
	attempt    attempt.Attempt
	seed       int64            // where a missing counter should start
	quarantine time.Duration    // the quarantine that this client knew of when the attempt began
	sent       []*node.Request  // by node: the request without an answer; nil for none
	actions    []attempt.Action // room for those of a step
	later      []instant        // room for an event

	votersOfFive  [5]attempt.Voter
	sentOfFive    [5]*node.Request
	actionsOfFive [5]attempt.Action
}

// failure is the result of an attempt that was not granted.
type failure struct {
	err       error
	verdict   *QuorumError // err, if nodes were asked
	line      line.Key
	queueNode int
	changes   int64 // of the pool when the attempt began
	line.Failure
}

// acquire makes one attempt. If it fails, releases are on their way to all nodes.
//
// Source: distlock, "The Redlock Algorithm", steps 1 to 5; ALGORITHM section 3.
func (p *pool) acquire(ctx context.Context, resource string, lc lockConfig, head *caller, how line.Strategy) (*grant, *failure) {
	if closed(ctx.Done()) {
		return nil, &failure{err: endedBy(ctx)}
	}
	if err := p.set.Misconfigured(); err != nil {
		return nil, &failure{err: reason.Errorf("lock %q: %w: %w", resource, ErrNotAcquired, err)}
	}
	a, changes := newAcquisition(p, resource, lc), p.changes.Load()
	if head != nil {
		a.slot = head.Key().Slot
	}
	f := p.run(ctx, a, how, func(f *failure) {
		end := released
		if f != nil {
			f.changes = changes
			if f.Queued = f.Queued && !f.verdict.Permanent() && p.goesOn(ctx, a.key()); f.Queued {
				end = p.waitAt(a.queueNode)
				f.Listens = end == listens
			}
		}
		a.sendReleases(p.now(), end)
	})
	if f != nil {
		return nil, f
	}
	return &a.grant, nil
}

// run makes the attempt. If it fails, run calls undo: with the failure, or with nil if a method of ctx panics.
func (p *pool) run(ctx context.Context, a *acquisition, how line.Strategy, undo func(*failure)) (f *failure) {
	if err := p.admission.Enter(func(admitted <-chan struct{}) error { return until(ctx, p.closing, admitted, 0) }); err != nil {
		return &failure{err: reason.Errorf("lock %q: %w: %w", a.resource, ErrNotAcquired, err)}
	}
	asked, granted := false, false
	defer func() {
		if !asked {
			p.admission.Leave(0, a.Timeout())
			return
		}
		p.admission.Leave(a.answeredIn(), a.Timeout())
		if !granted {
			undo(f)
		}
	}()
	now := p.set.Survey(ctx, p.closing, p.now(), a.Timeout())
	if err := p.set.Refused(); err != nil { // a client that is refused does not join with its list elsewhere
		e := p.quorumError("lock", a.resource, 0, ErrNotAcquired, ErrNoQuorum, err)
		for i, n := range p.nodes {
			if err := n.Conflict(); err != nil {
				e.Masters = append(e.Masters, p.nodeError(i, "lock", err, 0))
			}
		}
		return &failure{err: e}
	}
	asked = true
	a.ask(how, now)
	f = a.conclude(a.await(ctx))
	granted = f == nil
	return f
}

// goesOn reports whether the process still wants a resource when an attempt of the
// head of its line has failed: the head waits, or another caller does.
func (p *pool) goesOn(ctx context.Context, key line.Key) bool {
	return p.opened.Err() == nil && (!closed(ctx.Done()) || p.lines.Waits(key, 1))
}

// endedBy returns the error of a call whose context was over before a node was asked.
func endedBy(ctx context.Context) error {
	return reason.Errorf("%w: %w", ErrNotAcquired, reason.OfContext(ctx))
}

func newAcquisition(p *pool, resource string, lc lockConfig) *acquisition {
	a := &acquisition{}
	a.init(p, resource, lc)
	// Most pools have no more than five nodes, whose state comes with the acquisition.
	n := len(p.nodes)
	a.sent = slices.Grow(a.sentOfFive[:0], n)[:n]
	a.actions = a.actionsOfFive[:0]
	a.attempt.Config = attempt.Config{Rules: p.conf.rules, Need: p.need, Timeout: lc.Timeout(), Skew: p.skew}
	a.attempt.Nodes = slices.Grow(a.votersOfFive[:0], n)[:n]
	return a
}

// ask begins the attempt at the present moment.
func (a *acquisition) ask(how line.Strategy, now instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if how.Waits {
		a.name = a.key().Ticket(a.pool.channel)
	}
	a.beginLocked(how, now, a.pool.queueNodeOf(a.resource))
	a.stepLocked(attempt.Event{What: attempt.Begun}, a.start)
}

// beginLocked makes the attempt ready to begin at a moment.
func (a *acquisition) beginLocked(how line.Strategy, start instant, queueNode int) {
	p := a.pool
	a.start, a.queueNode, a.number, a.quarantine = start, queueNode, how.Number, p.set.Quarantine(start)
	a.term.Begin(start)
	a.seed = p.set.Seed(start, a.Timeout())
	a.keys.ID = p.conf.newToken(a.owner, a.seed-a.Timeout().Microseconds())
	a.attempt.Prepare(attempt.Way{
		Strategy: how, QueueNode: queueNode, Shared: a.shared, AnyOf: a.several > 0, Yields: a.oneOf() && how.Patient && !how.Waits,
	}, start, start.Add(a.TTL-a.minValidity()))
}

// stepLocked passes an event to the attempt, and sends the requests that the step returns.
func (a *acquisition) stepLocked(e attempt.Event, now instant) {
	t := &a.attempt
	do := t.Step(e, now, a.actions[:0])
	var reqs []node.Request
	for k := 0; k < len(do) && !t.Over(); k++ {
		if len(reqs) == 0 {
			reqs = make([]node.Request, len(do)-k)
		}
		r, i := &reqs[0], do[k].Node
		reqs = reqs[1:]
		*r = node.Request{Op: do[k].Op, Node: i, Key: &a.keys, Counter: do[k].Counter, Target: do[k].Target, Timeout: a.Timeout(), Shared: a.shared, To: a}
		if r.Op == wire.Acquire {
			r.Target = a.seed
			switch {
			case a.former != nil:
				r.Op, r.Process = wire.Adopt, a.former[i]
			case i == a.queueNode:
				r.Process = a.name
			}
		}
		a.sent[i] = r
		if err := a.pool.nodes[i].Send(r, now); err != nil {
			a.sent[i] = nil
			do = t.Step(unsent(r, err), now, do)
		}
	}
	a.actions = do[:0]
	a.target = t.Target()
	switch w := t.Word(); {
	case w.Heard && w.Refused:
		a.queueVote = attempt.No
	case w.Heard:
		a.queueVote = attempt.Yes
	}
	if t.Due() {
		a.signal.Set()
	}
}

// unsent returns the event for a request that could not be sent.
func unsent(r *node.Request, err error) attempt.Event {
	if r.Op == wire.Raise {
		return attempt.Event{What: attempt.Raised, Node: r.Node, Err: err}
	}
	return attempt.Event{What: attempt.Voted, Node: r.Node, Vote: attempt.Vote{Err: err}}
}

// Receive implements [node.Receiver] for the acquire and the raise.
func (a *acquisition) Receive(r *node.Request, rep node.Reply) {
	word := a.hear(r, rep) // also if it comes after the verdict
	var after []func()
	defer func() { run(after) }()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent[r.Node] == r {
		a.sent[r.Node] = nil
	}
	e := attempt.Event{What: attempt.Raised, Node: r.Node, Err: rep.Refusal(&a.keys)}
	if r.Op.Wants() {
		refusal := e.Err
		e = attempt.Event{What: attempt.Voted, Node: r.Node, Vote: attempt.Vote{Counter: rep.Counter, Server: rep.Server, Err: refusal, Word: word}}
		e.Vote.Refused = rep.Err == nil && (rep.Code == wire.Busy || rep.Code == wire.Queued)
		if r.Process == "" {
			e.Vote.Readers = readersAt(r, rep) && (r.Shared || a.attempt.Waits())
		}
		a.nodes[r.Node].takeGrant(rep, refusal == nil, a.keyLife(a.start, a.TTL))
	}
	a.stepLocked(e, rep.At)
	if word.Refused && a.passedOverLocked() && len(a.holds) > 0 { // see grantLease
		after = append(after, a.probe)
	}
	if len(a.holds) > 0 && a.term.Stands() { // before the first hold conclude and grantLease look
		if why := a.pool.nodes[r.Node].Conflict(); why != nil {
			after = append(after, a.endLocked(reason.Errorf("%w: %w", ErrLost, why), rep.At)...)
		}
	}
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
		n.set(true)
		n.keepsTo = keepsTo
	}
	if isVote {
		n.counter = rep.Counter
	}
}

// await waits for the end of the attempt. The result says why the caller will not have the lease,
// whatever the votes; nil if it will.
func (a *acquisition) await(ctx context.Context) (over error) {
	timer := a.pool.timers.start(a.firstWait())
	defer a.pool.timers.stop(timer)
	for {
		select {
		case <-a.signal:
		case <-timer.C:
			a.timeUp()
		case <-ctx.Done():
			return reason.OfContext(ctx)
		case <-a.pool.closing:
			return ErrClosed
		}
		if a.rearm(timer) {
			continue
		}
		if closed(ctx.Done()) { // while the votes came in
			return reason.OfContext(ctx)
		}
		return nil
	}
}

// firstWait returns for how long to set the timer first. The nodes have been asked just now, so the
// clock need not be read for it.
func (a *acquisition) firstWait() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.attempt.Arm().Sub(a.start), time.Microsecond)
}

// rearm sets the timer for the attempt. It reports false if the attempt is over.
func (a *acquisition) rearm(timer *time.Timer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attempt.Over() {
		return false
	}
	timer.Reset(max(a.attempt.Arm().Sub(a.pool.now()), time.Microsecond))
	return true
}

// timeUp tells the attempt that its time has come, and which answers may come later: if the look comes too late, all may.
//
// Source: ALGORITHM section 5, "Late looks".
func (a *acquisition) timeUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.pool.now()
	missed := a.attempt.Armed().Missed(now)
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
			due = a.start.Add(2 * a.Timeout())
		}
		if due > 0 && missed > 0 {
			due = max(due, now.Add(min(missed, a.Timeout())))
		}
		a.later[i] = due
	}
	a.stepLocked(attempt.Event{What: attempt.TimeUp, Later: a.later}, now)
}

// answeredIn returns the time until a quorum of the nodes had answered. If they have not, it
// returns the time until now.
func (a *acquisition) answeredIn() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attempt.AnsweredIn(a.pool.now())
}

// conclude turns the attempt into a lease's deadline, or a failure. over says that the caller will
// not have the lease. A failure is queued if the attempt may leave its process in the queue.
//
// Source: ALGORITHM section 3, point 4 ("deadline D"); section 1, "MinValidity".
func (a *acquisition) conclude(over error) *failure {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &a.attempt
	over = cmp.Or(over, a.pool.set.Misconfigured())
	refused := a.pool.set.Refused() // by a master that answered after the votes had begun
	var reasons []error             // nil: the votes decided
	switch {
	case over != nil:
		reasons = []error{over}
	case refused != nil:
		reasons = []error{ErrNoQuorum, refused}
	case t.Won():
		now := a.pool.now()
		a.hand.took = now.Sub(a.start)
		a.setDeadlineLocked(a.pool.conf.rules.ValidFrom(a.start, now), a.TTL)
		left := validity(a.term.Deadline(), now)
		switch {
		case a.pool.set.Quarantine(now) > a.quarantine: // a voter's quarantine may be longer than that node knew
			reasons = []error{ErrNoQuorum, errors.New("a larger TTL of another client became known")}
		case left >= a.minValidity():
			return nil
		default:
			reasons = []error{ErrNoQuorum, fmt.Errorf("only %v of the validity was left", max(left, 0))}
		}
	}
	a.stepLocked(attempt.Event{What: attempt.GaveUp}, a.pool.now())
	e := a.pool.quorumError("lock", a.resource, t.Granted(), ErrNotAcquired)
	for i := range t.Nodes {
		if n := &t.Nodes[i]; n.Failed() {
			err := n.Err
			if refused != nil {
				err = cmp.Or(a.pool.nodes[i].Conflict(), err)
			}
			e.Masters = append(e.Masters, a.pool.nodeError(i, n.Op.String(), err, a.Timeout()))
		}
	}
	if reasons == nil {
		reasons = e.why()
	}
	e.Reasons = append(e.Reasons, reasons...)
	f := &failure{
		err:       e,
		verdict:   e,
		line:      a.lineOf(a.shared),
		queueNode: a.queueNode,
		Failure:   line.Failure{Why: e, Word: t.Word(), Elsewhere: t.Elsewhere(), Queued: t.Rests()},
	}
	if f.Elsewhere {
		_, f.KeysLeft = e.Holder()
	}
	return f
}
