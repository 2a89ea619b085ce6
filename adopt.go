package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// This file passes a lease from one process to another. The first process ends its handles and
// leaves the keys on the nodes. The second process finds them by the token.

// Detach ends the lease for this process, but not on the masters: their keys stay until they
// expire, a TTL after the last renewal at most. Until then no other holder gets the resource, and
// another process can go on with the lease by [Locker.Adopt]. Call Validity before Detach to know
// how much time that process has.
//
// All handles of the lease end with [ErrDetached], also those of re-entry. The library no longer
// renews the lease, and neither Unlock nor Close releases it. Detach sends nothing and does not
// wait. For one master timeout more, a master may still carry out a request that is under way. If
// the other process unlocks the lease in that time, a master may keep the key, for a TTL at most.
//
// If the lease was over before, the error matches [ErrNotHeld], and [ErrLost], [ErrReleased] or
// ErrDetached for the reason. Detach then changes nothing.
//
// Source: ALGORITHM section 6.
func (le *Lease) Detach() error {
	g := le.grant
	g.mu.Lock()
	now := g.pool.now()
	after := g.expireLocked(now)
	if le.done || le.over != nil {
		err := notHeld("detach", g.resource, le.over)
		g.mu.Unlock()
		run(after)
		return err
	}
	g.pool.events.released(le.handle, ErrDetached)
	after = g.endLocked(ErrDetached, now)
	for _, h := range g.handles {
		h.done = true
	}
	g.handles = nil
	g.mu.Unlock()
	run(after)
	g.pool.renewer.remove(g)
	g.pool.lines.Freed(g.key(), g)
	return nil
}

// Adopt goes on with a lease after the process that got it has detached it or has died. token and
// fence are the results of [Lease.Token] and [Lease.Fence] in that process. If fence is not known,
// give 0. Fence of the adopted lease is then the first fencing token of the grant, or 0 if the
// masters do not know it either. That token is too small if the first process had handed the lease
// over to another caller.
//
// Adopt makes two rounds, each of which takes one master timeout at most. The first round reads the
// key on each master, and writes nothing. If a quorum has the key with that token, and no other
// holder can have been granted the resource since, the second round extends the key there, by the
// TTL of this call. The masters that lack the key get it afterwards. The validity counts from
// before the second round. The lease has the same token and fencing token, and is renewed unless
// [WithoutRenewal] is given. It is never handed over to another caller of this process.
//
// The error matches:
//
//   - [ErrNotHeld] if the masters do not have the lease any more, or have it with another fencing
//     token, with [ErrBroken] after Break of package admin, or with [ErrLost] if the lease was lost
//     in the second round;
//   - [ErrNoQuorum] if too few masters answered in either round, or if another holder may have had
//     the resource in between, because masters have lost the key and got it again;
//   - [ErrMasters] if the list of masters is wrong;
//   - ctx.Err() if ctx ended the call;
//   - [ErrConfig] if an argument is wrong. The token of a reader is wrong: only exclusive leases
//     can be adopted. So is a fence that is further ahead of the masters' clocks than a fencing
//     token can be;
//   - [ErrClosed] if the Locker is closed.
//
// After an error the masters keep the keys that they had, for the time that was left or the TTL of
// this call, whichever is longer. Adopt can be called again.
//
// Give a token to one process at a time: for the masters, each process with the token is the
// holder. Such processes share the lease. It stays as long as one of them renews it, and no other
// token gets the resource meanwhile. But nothing keeps these processes apart, nor the callers to
// which the first process may hand the lease over. The first Unlock ends the lease for all. Each
// other process notices that at its next renewal or Extend. If it had neither detached nor adopted
// the lease, it concludes that the masters have lost data, and puts them in quarantine.
//
// To end a lease that another process goes on with, use Break of package admin. A process that has
// adopted the lease leaves the placeholders of Break until they expire. The process that got the
// lease first deletes them, if it has not detached the lease.
//
// Source: ALGORITHM sections 4 and 6.
func (l *Locker) Adopt(ctx context.Context, resource, token string, fence int64, opts ...LockOption) (*Lease, error) {
	if err := l.conf.checkCall(ctx, "Adopt", resource); err != nil {
		return nil, err
	}
	switch {
	case !wire.IsToken(token):
		return nil, configErrorf("Adopt: the token is not that of a lease")
	case fence < 0:
		return nil, configErrorf("Adopt: fence %d: must not be negative", fence)
	}
	lc, err := l.conf.forCall(opts)
	switch {
	case err != nil:
		return nil, err
	case lc.shared:
		return nil, configErrorf("Adopt: the lease of a reader cannot be adopted")
	}
	if !l.calls.enter() {
		return nil, ErrClosed
	}
	defer l.calls.leave()
	began := time.Now()
	p := l.start()
	g, err := p.adopt(ctx, resource, token, fence, lc)
	if err != nil {
		p.events.attemptFailed(line.Key{Resource: resource}, began, err)
		return nil, err
	}
	return p.grantLease(ctx, g, nil, began).public(), nil
}

// adopt makes a grant for a lease whose keys are on the nodes already.
func (p *pool) adopt(ctx context.Context, resource, token string, fence int64, lc lockConfig) (*grant, error) {
	if ctx.Err() != nil {
		return nil, errorf("adopt %q: %w", resource, reason.OfContext(ctx))
	}
	g := newGrant(p, resource, lc)
	g.keys.ID, g.adopted, g.queueNode = token, true, p.queueNodeOf(resource)
	g.start = p.now()
	g.hand.since = g.start
	found := p.look(ctx, resource)
	if err := p.set.Misconfigured(); err != nil {
		return nil, errorf("adopt %q: %w", resource, err)
	}
	median := p.set.Median(p.now())
	if err := p.bounded(fence, median); err != nil {
		return nil, err
	}
	if isReader(found, token) {
		return nil, configErrorf("Adopt: the token is that of a reader, whose lease cannot be adopted")
	}
	given := fence > 0
	failed := p.adoptable(resource, found, token, &fence)
	if failed == nil && given && median == 0 && node.CounterOf(found, p.need, token) == 0 {
		failed = p.lookError(resource, found, func(h *node.Held) error { return h.Err })
		failed.Reasons = []error{ErrNoQuorum, errors.New("the masters' clocks do not tell whether there can be such a fencing token")}
	}
	if failed != nil {
		if ctx.Err() != nil {
			failed.Reasons = append(failed.Reasons, reason.OfContext(ctx))
		}
		return nil, failed
	}
	g.takeUp(found, fence)
	return g, g.firstRound(ctx)
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
func (p *pool) lookError(resource string, found []node.Held, wrong func(*node.Held) error) *QuorumError {
	e := p.quorumError("adopt", resource, 0)
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
	return configErrorf("Adopt: fence %d: must not be ahead of the masters' clocks, %d, by more than %v", fence, median, most)
}

// adoptable returns nil if the nodes have the lease with a token, and no other holder was
// granted the resource since. If fence is 0, and the nodes can tell the fencing token, it sets
// fence. A later grant is seen by the counters: it has lifted those of a quorum by a block.
//
// Source: ALGORITHM section 4.
func (p *pool) adoptable(resource string, found []node.Held, token string, fence *int64) *QuorumError {
	e := p.lookError(resource, found, func(h *node.Held) error {
		switch {
		case h.Err != nil:
			return h.Err
		case h.Has(token):
			return nil
		case !h.Taken():
			return errGone
		case h.Token == token:
			return errTakenAway
		}
		return node.HeldByOther{Owner: wire.OwnerOf(h.Token), Left: h.TTL}
	})
	unknown, later, asGranted, broken := 0, 0, 0, false
	for i := range found {
		h := &found[i]
		switch {
		case h.Err != nil:
			unknown++
		case *fence > 0 && h.Counter-fenceBlock >= *fence:
			later++
		}
		broken = broken || h.Broken && h.Token == token
		if h.Has(token) && h.Given > 0 {
			asGranted++ // the node has had the key ever since
		}
	}
	between := !exclusive(len(found), p.need, asGranted) // the keys alone do not exclude another holder in between
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
func (g *grant) takeUp(found []node.Held, fence int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	need := g.pool.need
	if g.target = node.CounterOf(found, need, g.keys.ID); g.target == 0 {
		g.target = fence // the counter of the lease is no smaller, so it is safe to raise other nodes to fence
	}
	g.hand.count = int(fence - firstFence(g.target))
	var ends []instant
	for i := range found {
		g.keys.AssumeSent(g.pool.nodes[i]) // each node has to be told of the release
		if h := &found[i]; h.Has(g.keys.ID) {
			p := &g.nodes[i]
			p.held, p.had, p.counter, p.keepsTo = true, true, h.Given, never
			if h.TTL >= 0 {
				p.keepsTo = g.keyLife(h.Asked, h.TTL)
			}
			ends = append(ends, p.keepsTo)
		}
	}
	slices.Sort(ends)
	slices.Reverse(ends)
	g.setDeadlineLocked(g.start, g.ttl)
	if held := ends[need-1]; held < g.deadline() { // a quorum has the key until then
		g.limits.deadline.Store(int64(held))
	}
}

// firstRound extends the lease on the nodes where it was found. Only these nodes count, and
// they alone are asked at first, so that a failed round leaves no key on the other nodes. If a
// node loses the key between the two rounds, it gets the key back. After a failure it keeps
// that key until it expires, because another process with this token may count on it.
//
// Source: ALGORITHM section 6.
func (g *grant) firstRound(ctx context.Context) error {
	g.mu.Lock()
	g.start = g.pool.now()
	rd := &round{grant: g, start: g.start, ttl: g.ttl, answered: make([]bool, len(g.nodes)), done: make(chan struct{})}
	reqs := make([]node.Request, len(g.nodes))
	var rest []int
	for i := range g.nodes {
		if g.nodes[i].held {
			g.extendOnLocked(rd, &reqs[i], i, g.start)
			continue
		}
		rd.out++
		rd.answered[i] = true
		rest = append(rest, i)
		g.noteLocked(i, wire.Extend, errGone)
	}
	_ = g.judgeRoundLocked(rd) // the renewer does not know of the lease yet
	g.mu.Unlock()

	timer := g.pool.timers.start(g.timeout())
	defer g.pool.timers.stop(timer)
	var reasons []error
	select {
	case <-rd.done:
	case <-timer.C:
		reasons = append(reasons, g.timeoutError())
	case <-ctx.Done():
		reasons = append(reasons, reason.OfContext(ctx))
	case <-g.pool.closing:
		reasons = append(reasons, ErrClosed)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.cause != nil: // by the nodes' answers the lease is over
		return notHeld("adopt", g.resource, g.cause)
	case rd.tally != reached:
		g.keys.Abandon()
		err := g.roundErrorLocked(rd, reasons...)
		err.Op = "adopt"
		return err
	}
	for _, i := range rest {
		g.extendOnLocked(rd, &reqs[i], i, g.pool.now())
	}
	return nil
}
