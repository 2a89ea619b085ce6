package redlock

import (
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

// This file passes a lease from one process to another. The first process ends its holds and
// leaves the keys on the nodes. The second process finds them by the token.

// Detach ends the lease for this process, but not on the masters: their keys stay until they
// expire, a TTL after the last renewal at most. Until then no other holder gets the resource, and
// another process can go on with the lease by [Locker.Adopt]. Call Validity before Detach to know
// how much time that process has.
//
// All holds of the lease end with [ErrDetached], also those of re-entry. The library no longer
// renews the lease, and neither Unlock nor Close releases it. Detach sends nothing and does not
// wait. For one master timeout more, a master may still carry out a request that is under way. If
// the other process unlocks the lease in that time, a master may keep the key, for a TTL at most.
//
// If the lease was over before, the error matches [ErrNotHeld], and [ErrLost], [ErrReleased] or
// ErrDetached for the reason. Detach then changes nothing.
//
// Source: ALGORITHM section 6.
func (le *Lease) Detach() error {
	g := le.made().grant
	g.mu.Lock()
	now := g.pool.now()
	after := g.expireLocked(now)
	if le.done || le.over != nil {
		err := notHeld("detach", g.resource, le.over)
		g.mu.Unlock()
		run(after)
		return err
	}
	g.pool.events.left(EventReleased, le.hold, ErrDetached)
	after = g.endLocked(ErrDetached, now)
	for _, h := range g.holds {
		h.done = true
	}
	g.holds = nil
	g.mu.Unlock()
	run(after)
	g.pool.renewer.remove(g)
	g.pool.lines.Freed(g.key(), g)
	return nil
}

// Adopt goes on with a lease after the process that got it has detached it or has died. token and
// fence are the results of [Lease.Token] and [Lease.Fence] in that process; give 0 for a fence that is
// not known.
//
// Adopt makes two rounds, each of which takes one master timeout at most, and a third where the masters' counters
// differ. The first round reads the key on each master, and writes nothing. If a quorum has the key with that token,
// and no other holder can have been granted the resource since, the second round exchanges the token in the key for a
// new one, on each master that still has it. The validity counts from before the second round, with the TTL of this
// call. The lease is one like any other, with a token and a fencing token of its own: the fencing token is larger
// than all that the former holder had.
//
// From then on the former token is void. Whatever the former holder still sends changes nothing on the masters
// that took part, also if it forgot to detach the lease and unlocks it, or closes its Locker. Its lease ends, with
// an error that matches [ErrDetached] and [ErrLost], as soon as it hears of the adoption: by a message of the masters,
// at its next renewal, and at the end of its validity at the latest. Until then it believes in its lease. So detach a
// lease before it is adopted, or check fencing tokens at the store.
//
// Of several calls with one token, one at most succeeds.
//
// The error matches:
//
//   - [ErrNotHeld] if the masters do not have the lease any more, or have it with another fencing
//     token; with [ErrDetached] if another call adopted it meanwhile, and with [ErrBroken] after Break of package admin;
//   - [ErrNoQuorum] if too few masters answered in a round, or if another holder may have had
//     the resource in between, because masters have lost the key and got it again;
//   - [ErrMasterSetup] if the list of masters is wrong;
//   - ctx.Err() if ctx ended the call;
//   - [ErrConfig] if an argument is wrong. The token of a reader is wrong: only exclusive leases
//     can be adopted. So is a fence that is further ahead of the masters' clocks than a fencing
//     token can be;
//   - [ErrClosed] if the Locker is closed.
//
// After an error of the second round, the token may be void on some masters. If it is void on so many that the others
// are no quorum, the lease is over for its former holder, and no holder gets the resource until the keys have
// expired: after the TTL of this call, or the time that was left, whichever is longer. Otherwise Adopt can be called
// again.
//
// A minimum hold ([WithMinHold]) counts anew, by the options of this call. To end a lease that another process goes on
// with, use Break of package admin.
//
// Source: ALGORITHM sections 4 and 6.
func (l *Locker) Adopt(ctx context.Context, resource, token string, fence int64, opts ...LockOption) (*Lease, error) {
	p, lc, err := l.byToken(ctx, "Adopt", resource, token, fence, opts)
	if err != nil {
		return nil, err
	}
	defer l.calls.leave()
	began := time.Now()
	g, err := p.adopt(ctx, resource, token, fence, lc)
	if err != nil {
		p.events.attemptFailed(line.Key{Resource: resource}, began, err)
		return nil, err
	}
	return p.grantLease(ctx, g, nil, began).public(), nil
}

// ExtendToken extends the lease with a token by the TTL of opts from now on, and leaves it with its holder, which
// may be a process that has ended: a script can hold a lease during more than one command. It returns for how long
// the lease is valid from now on, and the first fencing token of its grant, or 0 if the masters do not know that.
// The life of a key never gets shorter. The errors are those of [Locker.Adopt], with [ErrLost] if the lease was
// lost meanwhile. After an error the lease is as it was, or extended.
//
// Source: ALGORITHM section 6, "By token".
func (l *Locker) ExtendToken(ctx context.Context, resource, token string, opts ...LockOption) (validity time.Duration, fence int64, err error) {
	p, lc, err := l.byToken(ctx, "ExtendToken", resource, token, 0, opts)
	if err != nil {
		return 0, 0, err
	}
	defer l.calls.leave()
	g, err := p.resume(ctx, "extend", resource, token, lc)
	if err != nil {
		return 0, 0, err
	}
	if err := g.firstRound(ctx); err != nil {
		return 0, 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.target > 0 {
		fence = firstFence(g.target)
	}
	return max(g.validity(), 0), fence, nil
}

// ReleaseToken ends the lease with a token, as [Lease.Unlock] does in the process of its holder.
// It returns nil if a quorum of the masters dropped the key. The errors are those of [Locker.Adopt]. After
// ErrNoQuorum the release is repeated in the background until the keys must have expired.
//
// The holder must have detached the lease or have ended. A holder that still renews the lease hears of the release as of an
// adoption: its lease ends with [ErrDetached] and [ErrLost], at its next renewal at the latest. Until then it believes in its
// lease, and another holder can get the resource. Against a holder that lives, use Break of package admin.
//
// Source: ALGORITHM section 6, "By token".
func (l *Locker) ReleaseToken(ctx context.Context, resource, token string) error {
	p, lc, err := l.byToken(ctx, "ReleaseToken", resource, token, 0, nil)
	if err != nil {
		return err
	}
	defer l.calls.leave()
	g, err := p.resume(ctx, "unlock", resource, token, lc)
	if err != nil {
		return err
	}
	g.target = wire.ByToken
	g.sendReleases(p.now(), released)
	err = g.awaitRelease()
	p.tellAdopted(resource)
	return err
}

// byToken checks the arguments of a call that has a token. After the call the caller leaves l.calls.
func (l *Locker) byToken(ctx context.Context, name, resource, token string, fence int64, opts []LockOption) (*pool, lockConfig, error) {
	if err := l.checkCall(ctx, name, resource); err != nil {
		return nil, lockConfig{}, err
	}
	switch {
	case !wire.IsToken(token):
		return nil, lockConfig{}, reason.Configf("%s: the token is not that of a lease", name)
	case fence < 0:
		return nil, lockConfig{}, reason.Configf("%s: fence %d: must not be negative", name, fence)
	}
	lc, err := l.conf.forCall(opts)
	switch {
	case err != nil:
		return nil, lc, err
	case lc.shared:
		return nil, lc, reason.Configf("%s: Shared is given, and a token is that of an exclusive lease", name)
	case !l.calls.enter():
		return nil, lc, ErrClosed
	}
	return l.start(), lc, nil
}

// adopt makes an attempt that takes the keys of a lease over.
func (p *pool) adopt(ctx context.Context, resource, token string, fence int64, lc lockConfig) (*grant, error) {
	found, err := p.lookAtLease(ctx, "adopt", resource, token, &fence)
	if err != nil {
		return nil, err
	}
	if e := p.unable(resource, found, token); e.Granted < p.need { // to no purpose, and the former holder may need the keys
		e.Reasons = e.why()
		return nil, e
	}
	a := newAcquisition(p, resource, lc)
	late := exclusive(len(found), p.need, asGranted(found, token, fence)) // the nodes whose acquire came late must not count
	for i := range found {
		value := found[i].Value
		if !found[i].Has(token) || late && !isAsGranted(&found[i], token, fence) {
			value = token + "|" // which no node has
		}
		a.former = append(a.former, value)
	}
	if fence > 0 {
		a.attempt.Least = fence + fenceBlock
	}
	f := p.run(ctx, a, nil, line.Advice{}, func(*failure) {
		a.keys.Abandon() // no release: a former holder that is not adopted counts on these keys
	})
	switch {
	case f == nil && a.between(found, fence):
		a.keys.Abandon()
		p.tellAdopted(resource) // the former lease is over
		return nil, p.quorumError("adopt", resource, a.attempt.Granted(), ErrNoQuorum, errors.New("another holder may have had the resource in between"))
	case f == nil:
		p.tellAdopted(resource)
		return &a.grant, nil
	case f.verdict == nil:
		return nil, f.err
	}
	e := f.verdict
	e.Op = "adopt"
	e.Reasons = slices.DeleteFunc(e.Reasons, func(why error) bool { return why == ErrNotAcquired })
	others := 0 // nodes that have the key of the former holder no more
	for _, m := range e.Masters {
		if m.Op == wire.Acquire.String() {
			m.Op = wire.Adopt.String()
		}
		for _, why := range []error{node.ErrGone, node.ErrHeldByOther, node.ErrTakenAway, node.ErrAdopted} {
			if errors.Is(m.Err, why) {
				others++
			}
		}
	}
	if i := slices.Index(e.Reasons, ErrTaken); i >= 0 { // of so few nodes, with an attempt of the former holder perhaps
		e.Reasons[i] = ErrNoQuorum
	}
	if !exclusive(e.Total, e.Need, e.Total-others) {
		e.Reasons = []error{ErrNotHeld}
		if e.any(node.ErrTakenAway) {
			e.Reasons = append(e.Reasons, ErrBroken)
		}
		if e.any(node.ErrAdopted) {
			e.Reasons = append(e.Reasons, ErrDetached)
		}
	}
	return nil, e
}

// between reports whether another holder may have been granted the resource between the grant of the former lease and
// the votes of an adoption that was successful. The look has asked the same, but not at one moment.
//
// Source: ALGORITHM section 6, "Adopt".
func (a *acquisition) between(found []node.Held, fence int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, moved := 0, 0
	for i := range found {
		h, n := &found[i], &a.attempt.Nodes[i]
		if n.Vote == attempt.Yes && isAsGranted(h, h.Token, fence) {
			kept++
		}
		if n.Vote != attempt.Yes || h.Counter > 0 && n.Counter >= fence+2*fenceBlock {
			moved++
		}
	}
	return !exclusive(len(found), a.pool.need, kept) && (fence == 0 || moved >= a.pool.need)
}

// isAsGranted reports whether a node has had the key ever since the grant. An acquire that came late has a larger
// counter, if the fencing token of the grant is known.
func isAsGranted(h *node.Held, token string, fence int64) bool {
	return h.Has(token) && h.Given > 0 && (fence == 0 || h.Given < fence+fenceBlock)
}

// asGranted returns how many nodes have had the key ever since the grant.
func asGranted(found []node.Held, token string, fence int64) (n int) {
	for i := range found {
		if isAsGranted(&found[i], token, fence) {
			n++
		}
	}
	return n
}

// unable returns an error that lists the nodes that have no vote for an adoption.
func (p *pool) unable(resource string, found []node.Held, token string) *QuorumError {
	now, i := p.now(), -1
	return p.lookError("adopt", resource, found, func(h *node.Held) error {
		i++
		standing := p.nodes[i].Standing()
		switch left := standing.VotesIn(now); {
		case h.Err != nil:
			return h.Err
		case !h.Has(token):
			return node.ErrGone
		case left > 0:
			return node.Quarantine(left)
		case p.set.Median(now) == 0:
			return node.ErrUnseeded
		}
		return standing.Void(now, true)
	})
}

// tellAdopted tells the former holder that its lease was adopted, or released by its token. It does not wait: a former holder that is not reached
// hears at its next renewal.
func (p *pool) tellAdopted(resource string) {
	for _, n := range p.nodes {
		p.listeners.Go(func() error {
			ctx, cancel := context.WithTimeout(p.opened, time.Second)
			defer cancel()
			_ = n.TellBroken(ctx, p.conf.keyPrefix+resource) // the next renewal tells, too
			return nil
		})
	}
}

// lookAtLease asks all nodes for a lease. If it can be gone on with, lookAtLease returns what they have, and
// sets fence if that is 0 and the nodes can tell it.
func (p *pool) lookAtLease(ctx context.Context, op, resource, token string, fence *int64) ([]node.Held, error) {
	if ctx.Err() != nil {
		return nil, reason.Errorf("%s %q: %w", op, resource, reason.OfContext(ctx))
	}
	found := p.look(ctx, resource)
	if err := p.set.Misconfigured(); err != nil {
		return nil, reason.Errorf("%s %q: %w", op, resource, err)
	}
	median := p.set.Median(p.now())
	if err := p.bounded(*fence, median); err != nil {
		return nil, err
	}
	if isReader(found, token) {
		return nil, reason.Configf("%s: the token is that of a reader, whose lease cannot be adopted", op)
	}
	given := *fence > 0
	failed := p.adoptable(op, resource, found, token, fence)
	if failed == nil && given && median == 0 && node.CounterOf(found, p.need, token) == 0 {
		failed = p.lookError(op, resource, found, func(h *node.Held) error { return h.Err })
		failed.Reasons = []error{ErrNoQuorum, errors.New("the masters' clocks do not tell whether there can be such a fencing token")}
	}
	if failed != nil {
		if ctx.Err() != nil {
			failed.Reasons = append(failed.Reasons, reason.OfContext(ctx))
		}
		return nil, failed
	}
	return found, nil
}

// resume makes a grant for a lease whose keys are on the nodes, to extend or to release it once.
func (p *pool) resume(ctx context.Context, op, resource, token string, lc lockConfig) (*grant, error) {
	start, fence := p.now(), int64(0)
	found, err := p.lookAtLease(ctx, op, resource, token, &fence)
	if err != nil {
		return nil, err
	}
	g := new(grant)
	g.init(p, resource, lc)
	g.keys.ID, g.queueNode, g.start = token, p.queueNodeOf(resource), start
	g.term.Begin(g.start)
	g.takeUp(found)
	return g, nil
}

// look asks all nodes for what they have of a resource.
func (p *pool) look(ctx context.Context, resource string) []node.Held {
	found, errs := node.Each(ctx, p.opened, p.set, func(ctx context.Context, n *node.Node) (node.Held, error) {
		return n.Look(ctx, p.conf.keyPrefix+resource)
	})
	for i, err := range errs {
		found[i].Err = err
	}
	return found
}

// lookError returns an error that lists the nodes for which wrong returns an error. The caller
// sets its reasons.
func (p *pool) lookError(op, resource string, found []node.Held, wrong func(*node.Held) error) *QuorumError {
	e := p.quorumError(op, resource, 0)
	for i := range found {
		if err := wrong(&found[i]); err != nil {
			e.Masters = append(e.Masters, &MasterError{Master: p.nodes[i].Addr(), Op: "look", Err: err})
		}
	}
	e.Granted = len(found) - len(e.Masters)
	return e
}

// bounded refuses a fencing token that no lease can have: a token further ahead of the nodes'
// clocks than a counter can be. If the median of the clocks is not known, it is 0.
//
// Source: ALGORITHM section 4, "MaxAhead".
func (p *pool) bounded(fence, median int64) error {
	most := p.set.MaxAhead()
	if median == 0 || fence <= median+most.Microseconds() {
		return nil
	}
	return reason.Configf("Adopt: fence %d: must not be ahead of the masters' clocks, %d, by more than %v", fence, median, most)
}

// adoptable returns nil if the nodes have the lease with a token, and no other holder was
// granted the resource since. If fence is 0, and the nodes can tell the fencing token, it sets
// fence. A later grant is seen by the counters: it has lifted those of a quorum by a block.
//
// Source: ALGORITHM section 4.
func (p *pool) adoptable(op, resource string, found []node.Held, token string, fence *int64) *QuorumError {
	e := p.lookError(op, resource, found, func(h *node.Held) error {
		switch {
		case h.Err != nil:
			return h.Err
		case h.Has(token):
			return nil
		case !h.Taken():
			return node.ErrGone
		case h.Token == token:
			return node.ErrTakenAway
		}
		return node.HeldByOther{Owner: wire.OwnerOf(h.Token), Left: h.TTL}
	})
	unknown, later, broken := 0, 0, false
	for i := range found {
		h := &found[i]
		switch {
		case h.Err != nil:
			unknown++
		case *fence > 0 && h.Counter-fenceBlock >= *fence:
			later++
		}
		broken = broken || h.Broken && h.Token == token
	}
	between := !exclusive(len(found), p.need, asGranted(found, token, *fence)) // the keys alone do not exclude another holder in between
	counter := node.CounterOf(found, p.need, token)
	switch {
	case e.Granted+unknown < p.need:
		e.Reasons = []error{ErrNotHeld}
		if broken {
			e.Reasons = append(e.Reasons, ErrBroken)
		}
	case e.Granted < p.need:
		e.Reasons = []error{ErrNoQuorum}
	case between && later >= p.need:
		e.Reasons = []error{ErrNotHeld, errors.New("another holder had the resource in between")}
	case between && (*fence == 0 || later+unknown >= p.need):
		e.Reasons = []error{ErrNoQuorum, errors.New("another holder may have had the resource in between")}
	case *fence > 0 && counter > 0 && (*fence < firstFence(counter) || *fence > counter):
		e.Reasons = []error{ErrNotHeld, fmt.Errorf("the lease has another fencing token than %d", *fence)}
	case *fence == 0 && counter > 0:
		*fence = firstFence(counter)
		return nil
	default:
		return nil
	}
	return e
}

// isReader reports whether a node has the key of a reader with a token.
func isReader(found []node.Held, token string) bool {
	return slices.ContainsFunc(found, func(h node.Held) bool {
		return slices.ContainsFunc(h.Readers, func(r node.Reader) bool { return r.Token == token })
	})
}

// takeUp gives the grant the keys, counters and deadline that the nodes have.
//
// Source: ALGORITHM section 6.
func (g *grant) takeUp(found []node.Held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	need := g.pool.need
	g.target = node.CounterOf(found, need, g.keys.ID)
	var ends []instant
	for i := range found {
		g.keys.AssumeSent(g.pool.nodes[i]) // each node has to be told of the release
		if h := &found[i]; h.Has(g.keys.ID) {
			p, end := &g.nodes[i], never
			p.state, p.counter = keyHeld, h.Given // without keepsTo: the holder may release the key meanwhile
			if h.TTL >= 0 {
				end = g.keyLife(h.Asked, h.TTL)
				g.keys.Live(h.TTL)
			}
			ends = append(ends, end)
		}
	}
	slices.Sort(ends)
	slices.Reverse(ends)
	g.setDeadlineLocked(g.start, g.TTL)
	g.term.Shorten(ends[need-1]) // a quorum has the key until then
}

// firstRound extends the lease on the nodes where it was found. Only these nodes count, and they alone are asked. If a
// node loses the key between the two rounds, it gets the key back.
//
// Source: ALGORITHM section 6, "By token".
func (g *grant) firstRound(ctx context.Context) error {
	g.mu.Lock()
	g.start = g.pool.now()
	rd := &round{grant: g, start: g.start, ttl: g.TTL, answered: make([]bool, len(g.nodes)), done: make(chan struct{})}
	reqs := make([]node.Request, len(g.nodes))
	for i := range g.nodes {
		if g.nodes[i].state == keyHeld {
			g.extendOnLocked(rd, &reqs[i], i, g.start)
			continue
		}
		rd.out++
		rd.answered[i] = true
		g.noteLocked(i, wire.Extend, node.ErrGone)
	}
	_ = g.judgeRoundLocked(rd) // the renewer does not know of the lease yet
	g.mu.Unlock()

	timer := g.pool.timers.start(g.Timeout())
	defer g.pool.timers.stop(timer)
	var reasons []error
	select {
	case <-rd.done:
	case <-timer.C:
		reasons = append(reasons, timeoutError(g.Timeout()))
	case <-ctx.Done():
		reasons = append(reasons, reason.OfContext(ctx))
	case <-g.pool.closing:
		reasons = append(reasons, ErrClosed)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.term.Stands(): // by the nodes' answers the lease is over
		return notHeld("extend", g.resource, g.term.Cause())
	case rd.tally != attempt.Reached:
		g.keys.Abandon()
		return g.roundErrorLocked(rd, reasons...)
	}
	return nil
}
