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

// This file is about a lease that goes from one process to another: the first ends its
// handles and leaves the keys where they are, the second finds them by the token.

// Detach ends the lease for this process, but not on the nodes: their keys stay until
// they expire, a TTL after the last renewal at most. Nobody else gets the resource
// before, and whoever has the token and the fencing token can go on with the lease
// meanwhile, in another process or a later one: see [Locker.Adopt]. The Validity that is
// left for that has to be asked for before.
//
// All handles of the lease end, also those of re-entry, as if by Unlock but with
// [ErrDetached]: it is not renewed any more, and neither Unlock nor Close releases it.
// Nothing is sent and nothing waited for. What is under way to a node may
// still be carried out, within a node timeout, so that a lease that is unlocked elsewhere
// within that time can leave a key behind on some node, for a TTL at most.
//
// If the lease was over before, the error matches [ErrNotHeld], and [ErrLost],
// [ErrReleased] or ErrDetached for the reason, and nothing is changed.
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
	g.pool.events.detached(le)
	after = g.endLocked(ErrDetached, now)
	for _, h := range g.handles {
		h.done = true
	}
	g.handles = nil
	g.mu.Unlock()
	run(after)
	g.pool.renewer.remove(g)
	g.pool.waitlines.freed(g)
	return nil
}

// Adopt goes on with a lease by its token, where the process that got it has detached it
// or has died. fence is what [Lease.Fence] said of it. A caller that was not told gives 0,
// and gets the first of the grant's fencing tokens if the nodes can tell, which is too
// small to be of use if that process had handed the lease over inside itself; if they
// cannot, Fence stays 0.
//
// Two rounds are made, each a node timeout long at the most. In the first the nodes say
// what they have, and nothing is written. If a quorum has the key with that token, and nobody
// else can have been granted the resource since, the second extends it there, by the TTL
// of this call; the nodes that lack the key get it afterwards. The validity counts from
// before the second round. The result is a lease like any other, with the same token and fencing
// token, and is renewed unless [WithoutRenewal] is given. It is never handed over to
// another caller of this process.
//
// If the nodes do not have the lease any more the error matches [ErrNotHeld], and
// [ErrBroken] if [Locker.Break] has taken it away. It matches
// [ErrNoQuorum] if too few of them answered to say, or to extend it, or, where no fencing
// token was given, if they cannot say whether somebody else had it in between: after too
// many nodes have lost the key and got it again. It is a [*QuorumError], which has what each node
// said, but for a lease that was lost in the second round: that is [ErrLost] with
// [ErrNotHeld]. Bad arguments give [ErrConfig], also a fence that is further ahead of the
// nodes' clocks than a fencing token can be; a closed Locker [ErrClosed]. After a
// failure the nodes have what they had, and keep it for at most the longer of what was
// left and the TTL of this call; Adopt can be called again.
//
// To the nodes whoever has the token is the holder, and a token is for one process at a
// time. If the lease goes on where it came from, or is adopted twice, it is shared: it stays
// as long as one of them renews it, no other token gets the resource meanwhile, but
// nothing keeps apart those who have this one, nor the callers to whom the first process
// may hand it over. The first to unlock it ends it for all: the others notice at their next
// renewal or Extend, and until then take themselves for holders beside the next one. If one of
// them had neither detached nor adopted the lease it takes the nodes for ones that have lost
// data, and puts them in quarantine. To end a lease that somebody else goes on with
// use [Locker.Break]: those who have adopted it leave the placeholders until they expire, as the
// others may not have heard, but one that had it first, and has not detached it, does not know of them.
//
// Source: ALGORITHM sections 4 and 6.
func (l *Locker) Adopt(ctx context.Context, resource, token string, fence int64, opts ...LockOption) (*Lease, error) {
	if err := l.conf.checkCall(ctx, "Adopt", resource); err != nil {
		return nil, err
	}
	switch {
	case !isID(token):
		return nil, configErrorf("Adopt: the token is not that of a lease")
	case fence < 0:
		return nil, configErrorf("Adopt: fence %d: must not be negative", fence)
	}
	lc, err := l.conf.forCall(opts)
	if err != nil {
		return nil, err
	}
	if !l.calls.enter() {
		return nil, ErrClosed
	}
	defer l.calls.leave()
	began := time.Now()
	l.pool.start()
	g, err := l.pool.adopt(ctx, resource, token, fence, lc)
	if err != nil {
		l.pool.events.notAcquired(resource, began, err)
		return nil, err
	}
	return l.grantLease(ctx, g, nil, began), nil
}

// adopt makes the grant of a lease that the nodes have already.
func (p *pool) adopt(ctx context.Context, resource, token string, fence int64, lc lockConfig) (*grant, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("redlock: adopt %q: %w", resource, contextError(ctx))
	}
	g, err := newGrant(p, resource, lc)
	if err != nil {
		return nil, err
	}
	g.keys.ID, g.adopted, g.queueNode = token, true, p.queueNodeOf(resource)
	g.start = p.now()
	g.hand.since = g.start
	in := p.inspect(ctx, resource)
	if err := p.set.Misconfigured(); err != nil {
		return nil, fmt.Errorf("redlock: adopt %q: %w", resource, err)
	}
	median := p.set.Median()
	if err := p.bounded(fence, median); err != nil {
		return nil, err
	}
	given := fence > 0
	failed := in.adoptable(token, &fence)
	if failed == nil && given && median == 0 && in.counterOf(token) == 0 {
		failed = in.errorOf("adopt", func(n *NodeLock) error { return n.Err })
		failed.reasons = []error{ErrNoQuorum, errors.New("the nodes' clocks do not tell whether there can be such a fencing token")}
	}
	if failed != nil {
		if ctx.Err() != nil {
			failed.reasons = append(failed.reasons, contextError(ctx))
		}
		return nil, failed
	}
	g.takeUp(&in, fence)
	return g, g.firstRound(ctx)
}

// bounded refuses a fencing token that no lease can have: it is further ahead of the nodes'
// clocks than a counter can be. A median of 0 is one that is not known.
//
// Source: ALGORITHM section 4, "MaxAhead".
func (p *pool) bounded(fence, median int64) error {
	most := p.set.MaxAhead()
	if median == 0 || fence <= median+most.Microseconds() {
		return nil
	}
	return configErrorf("Adopt: fence %d: must not be ahead of the nodes' clocks, %d, by more than %v", fence, median, most)
}

// adoptable tells whether the nodes have the lease with a token, and nobody else was granted
// the resource since this one. A fence of 0 is set if they can tell that, too.
//
// Source: ALGORITHM section 4: whoever was granted the resource after this lease has lifted
// the counters of a quorum by a block.
func (in *Inspection) adoptable(token string, fence *int64) *QuorumError {
	e := in.errorOf("adopt", func(n *NodeLock) error {
		switch {
		case n.Err != nil:
			return n.Err
		case n.has(token):
			return nil
		case n.Token == "":
			return errGone
		case n.Token == token:
			return errTakenAway
		}
		return errHeldByOther
	})
	unknown, later, asGranted, broken := 0, 0, 0, false
	for i := range in.Nodes {
		n := &in.Nodes[i]
		switch {
		case n.Err != nil:
			unknown++
		case *fence > 0 && n.counter-fenceBlock >= *fence:
			later++
		}
		broken = broken || n.Broken && n.Token == token
		if n.has(token) && n.given > 0 {
			asGranted++ // and has had it ever since
		}
	}
	between := !exclusive(len(in.Nodes), in.Quorum, asGranted) // for all that their keys show
	counter := in.counterOf(token)
	switch {
	case e.Granted+unknown < in.Quorum:
		e.reasons = []error{ErrNotHeld}
		if broken {
			e.reasons = append(e.reasons, ErrBroken)
		}
	case e.Granted < in.Quorum:
		e.reasons = []error{ErrNoQuorum}
	case between && later >= in.Quorum:
		e.reasons = []error{ErrNotHeld, errors.New("somebody else had it in between")}
	case between && (*fence == 0 || later+unknown >= in.Quorum):
		e.reasons = []error{ErrNoQuorum, errors.New("somebody else may have had it in between")}
	case *fence > 0 && counter > 0 && (*fence < firstFence(counter) || *fence > counter):
		e.reasons = []error{ErrNotHeld, fmt.Errorf("it has another fencing token than %d", *fence)}
	case *fence == 0 && counter > 0:
		*fence = firstFence(counter)
		return nil
	default:
		return nil
	}
	return e
}

// takeUp has the grant stand on what was found.
//
// Source: ALGORITHM section 6.
func (g *grant) takeUp(in *Inspection, fence int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.target = in.counterOf(g.keys.ID); g.target == 0 {
		g.target = fence // no more than the counter of the lease: to lift others to that does no harm
	}
	g.hand.count = int(fence - firstFence(g.target))
	var ends []instant
	for i, n := range in.Nodes {
		g.keys.AssumeSent(g.pool.nodes[i]) // whatever is there has to be released
		if n.has(g.keys.ID) {
			p := &g.nodes[i]
			p.held, p.had, p.counter, p.keepsTo = true, true, n.given, n.keepsTo
			ends = append(ends, n.keepsTo)
		}
	}
	slices.Sort(ends)
	slices.Reverse(ends)
	g.setDeadlineLocked(g.start)
	if held := ends[in.Quorum-1]; held < g.deadline() { // a quorum has the key until then
		g.limits.deadline.Store(int64(held))
	}
}

// firstRound extends the lease where it was found. Only what these nodes keep counts, and
// they alone are asked at first: if it fails, no node has got the key that lacked it. One
// that loses it between the two rounds gets it back, and is left with it until it
// expires: another process with this token may count on it.
//
// Source: ALGORITHM section 6.
func (g *grant) firstRound(ctx context.Context) error {
	g.mu.Lock()
	g.start = g.pool.now()
	rd := &round{grant: g, start: g.start, answered: make([]bool, len(g.nodes)), done: make(chan struct{})}
	reqs := make([]node.Request, len(g.nodes))
	var rest []int
	for i := range g.nodes {
		if g.nodes[i].held {
			g.extendOnLocked(rd, &reqs[i], i)
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
		reasons = append(reasons, contextError(ctx))
	case <-g.pool.closing:
		reasons = append(reasons, ErrClosed)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.cause != nil: // the nodes say that it is over
		return notHeld("adopt", g.resource, g.cause)
	case rd.tally != reached:
		g.keys.Abandon()
		err := g.roundErrorLocked(rd, reasons...)
		err.Op = "adopt"
		return err
	}
	for _, i := range rest {
		g.extendOnLocked(rd, &reqs[i], i)
	}
	return nil
}
