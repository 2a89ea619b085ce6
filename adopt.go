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
// leaves the keys on the nodes. The second process finds them by the Handle, and makes one more round:
// it adopts, extends or releases the lease.

// Detach ends the lease for this process, but not on the masters: their keys stay until they expire, a TTL
// after the last renewal at most. Until then no other holder gets the resource, and another process can go on
// with the lease by [Locker.Adopt]. Call Validity before Detach to know how much time that process has. The
// Handle of a reader's lease is zero.
//
// All holds of the lease end with [ErrDetached], also those of re-entry. Neither Unlock nor Close releases the
// lease then. Detach sends nothing and does not wait. For one master timeout more, a master may still carry out
// a request that is under way: if the other process unlocks the lease in that time, a master may keep the key,
// for a TTL at most.
//
// If the lease was over before, the error matches [ErrNotHeld], and [ErrLost], [ErrReleased] or ErrDetached for
// the reason. Detach then changes nothing, and the Handle is zero. Source: ALGORITHM section 6.
func (le *Lease) Detach() (Handle, error) {
	g := le.made().grant
	g.mu.Lock()
	now := g.pool.now()
	after := g.expireLocked(now)
	if le.done || le.over != nil {
		err := notHeld("detach", g.resource, le.over)
		g.mu.Unlock()
		run(after)
		return Handle{}, err
	}
	handle := le.handleLocked()
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
	return handle, nil
}

// Handle returns the Handle of the lease, by which another process can go on if this one dies. That of a reader's lease is
// zero.
func (le *Lease) Handle() Handle {
	le.made().grant.mu.Lock()
	defer le.grant.mu.Unlock()
	return le.handleLocked()
}

func (le *hold) handleLocked() Handle {
	if le.grant.shared {
		return Handle{}
	}
	return Handle{le.grant.resource, le.grant.keys.ID, le.fence}
}

// Adopt goes on with the lease of a Handle, after its holder has detached the lease or has died. Of several
// calls with one Handle, one at most succeeds.
//
// Adopt makes two rounds, each of one master timeout at most, and a third where the masters' counters differ.
// If a quorum has the key with the token of the lease, and no other holder can have been granted the resource
// since, the second round exchanges the token in the key for a new one. The validity counts from before the
// second round, with the TTL of opts. So does a minimum hold ([WithMinHold]). The fencing token is larger than
// all that the former holder had.
//
// From then on the former token is void: a former holder that forgot to detach the lease changes nothing on the
// masters that took part. Its lease ends with [ErrDetached] and [ErrLost] when it hears of the adoption, or at
// the end of its validity at the latest. Until then it believes in its lease. So detach a lease before it is
// adopted, or check fencing tokens at the store.
//
// The error matches [ErrMasterSetup], [ErrClosed], ctx.Err(), or
//
//   - [ErrNotHeld] if the masters do not have the lease, or have it with another fencing token; with
//     [ErrDetached] if another call adopted it, and with [ErrBroken] after Break of package admin;
//   - [ErrNoQuorum] if too few masters answered in a round, or if masters have lost the key and got it again,
//     so that another holder may have had the resource;
//   - [ErrConfig] if the Handle is zero, or its fencing token is further ahead of the masters' clocks than one
//     can be.
//
// After an error of the second round, the token may be void on some masters. If the others are no quorum, the
// lease is over for its former holder, and no holder gets the resource until the keys have expired: after the
// TTL of opts or the time that was left, whichever is longer. Otherwise Adopt can be called again. Source:
// ALGORITHM sections 4 and 6.
func (l *Locker) Adopt(ctx context.Context, h Handle, opts ...LockOption) (*Lease, error) {
	p, lc, err := l.byHandle(ctx, "Adopt", h, opts)
	if err != nil {
		return nil, err
	}
	defer l.calls.leave()
	began := time.Now()
	f, err := p.find(ctx, "adopt", h)
	var g *grant
	if err == nil {
		g, err = f.adopt(ctx, lc)
	}
	if err != nil {
		p.events.attemptFailed(line.Key{Resource: h.resource}, began, err, nil)
		return nil, err
	}
	return p.grantLease(ctx, g, nil, began).public(), nil
}

// Extend extends the lease of a Handle by the TTL of opts, and leaves it with its holder, which may be a
// process that has ended: a script can hold a lease during more than one command. It returns for how long the
// lease is valid from now on. The life of a key never gets shorter. The errors are those of [Locker.Adopt],
// with [ErrLost] if the lease was lost meanwhile. After an error the lease is as it was, or extended. Source:
// ALGORITHM section 6, "By Handle".
func (l *Locker) Extend(ctx context.Context, h Handle, opts ...LockOption) (validity time.Duration, err error) {
	p, lc, err := l.byHandle(ctx, "Extend", h, opts)
	if err != nil {
		return 0, err
	}
	defer l.calls.leave()
	f, err := p.find(ctx, "extend", h)
	if err != nil {
		return 0, err
	}
	g := f.grant(ctx, lc)
	if err := g.extend(ctx, g.holds[0], 0); err != nil {
		g.keys.Abandon()
		return 0, err
	}
	return max(g.validity(), 0), nil
}

// Unlock ends the lease of a Handle, as [Lease.Unlock] does in the process of its holder. It returns nil if a
// quorum of the masters dropped the key. The errors are those of [Locker.Adopt]. After [ErrNoQuorum] the
// release is repeated in the background until the keys must have expired.
//
// The holder must have detached the lease or have ended. A holder that still renews the lease hears of the
// release as of an adoption, and until then believes in its lease, while another holder can get the resource.
// Against a holder that lives, use Break of package admin. Source: ALGORITHM section 6, "By Handle".
func (l *Locker) Unlock(ctx context.Context, h Handle) error {
	p, lc, err := l.byHandle(ctx, "Unlock", h, nil)
	if err != nil {
		return err
	}
	defer l.calls.leave()
	f, err := p.find(ctx, "unlock", h)
	if err != nil {
		return err
	}
	g := f.grant(ctx, lc)
	g.target = wire.ByHandle
	g.sendReleases(p.now(), released)
	err = g.awaitRelease()
	f.tell()
	return err
}

// byHandle checks the arguments of a call that has a Handle. After the call the caller leaves l.calls.
func (l *Locker) byHandle(ctx context.Context, name string, h Handle, opts []LockOption) (*pool, lockConfig, error) {
	if l.made(); h == (Handle{}) {
		return nil, lockConfig{}, reason.Configf("%s: the Handle is zero: it names no lease", name)
	}
	if err := l.checkCall(ctx, name, h.resource); err != nil {
		return nil, lockConfig{}, err
	}
	lc, err := l.conf.forCall(opts)
	switch {
	case err != nil:
		return nil, lc, err
	case lc.shared:
		return nil, lc, reason.Configf("%s: Shared is given, and a Handle is that of an exclusive lease", name)
	case lc.votesWait != l.conf.votesWait:
		return nil, lc, reason.Configf("%s: WithQuarantineWait is given, and a call by a Handle waits for no master", name)
	case !l.calls.enter():
		return nil, lc, ErrClosed
	}
	return l.start(), lc, nil
}

// former is a lease that a call goes on with, as the nodes have it.
type former struct {
	Handle
	pool  *pool
	op    string
	nodes []node.Held
}

// find asks all nodes for a lease. The error says that they do not have it any more, or that another holder may have been
// granted the resource since. A later grant is seen by the counters: it has lifted those of a quorum by a block.
//
// Source: ALGORITHM sections 4 and 6.
func (p *pool) find(ctx context.Context, op string, h Handle) (*former, error) {
	if ctx.Err() != nil {
		return nil, reason.Errorf("%s %q: %w", op, h.resource, reason.OfContext(ctx))
	}
	found, errs := node.Each(ctx, p.opened, p.set, func(ctx context.Context, n *node.Node) (node.Held, error) {
		return n.Look(ctx, p.conf.keyPrefix+h.resource)
	})
	if err := p.set.Misconfigured(); err != nil {
		return nil, reason.Errorf("%s %q: %w", op, h.resource, err)
	}
	f, unknown, later := &former{h, p, op, found}, 0, 0
	for i, err := range errs {
		switch found[i].Err = err; {
		case err != nil:
			unknown++
		case found[i].Counter-fenceBlock >= h.fence:
			later++
		}
	}
	e := f.failure(func(_ int, has *node.Held) error {
		switch {
		case has.Err != nil:
			return has.Err
		case has.Has(h.token):
			return nil
		case !has.Taken():
			return node.ErrGone
		case has.Token == h.token:
			return node.ErrTakenAway
		}
		return node.HeldByOther{Owner: wire.OwnerOf(has.Token), For: has.For, Left: has.TTL}
	})
	between := !f.exclusive() // the keys alone do not exclude another holder in between
	counter := node.CounterOf(found, p.need, h.token)
	switch {
	case e.Granted+unknown < p.need:
		e.Reasons = []error{ErrNotHeld}
		if e.any(node.ErrTakenAway) {
			e.Reasons = append(e.Reasons, ErrBroken)
		}
	case e.Granted < p.need:
		e.Reasons = []error{ErrNoQuorum}
	case between && later >= p.need:
		e.Reasons = []error{ErrNotHeld, errors.New("another holder had the resource in between")}
	case between && later+unknown >= p.need:
		e.Reasons = []error{ErrNoQuorum, errPerhapsOther}
	case counter > 0 && (h.fence < firstFence(counter) || h.fence > counter):
		e.Reasons = []error{ErrNotHeld, fmt.Errorf("the lease has another fencing token than %d", h.fence)}
	default:
		return f, nil
	}
	if ctx.Err() != nil {
		e.Reasons = append(e.Reasons, reason.OfContext(ctx))
	}
	return nil, e
}

var errPerhapsOther = errors.New("another holder may have had the resource in between")

// failure returns an error that lists the nodes for which wrong returns an error. The caller sets its reasons.
func (f *former) failure(wrong func(i int, has *node.Held) error) *QuorumError {
	e := f.pool.quorumError(f.op, f.resource, 0)
	for i := range f.nodes {
		if err := wrong(i, &f.nodes[i]); err != nil {
			e.Masters = append(e.Masters, &MasterError{Master: f.pool.nodes[i].Addr(), Op: "look", Err: err})
		}
	}
	e.Granted = len(f.nodes) - len(e.Masters)
	return e
}

// asGranted reports whether a node has had the key ever since the grant. An acquire that came late has a larger counter.
func (f *former) asGranted(has *node.Held) bool {
	return has.Has(f.token) && has.Given > 0 && has.Given < f.fence+fenceBlock
}

// exclusive reports whether so many nodes have had the key ever since the grant that no other holder was granted the resource.
func (f *former) exclusive() bool {
	kept := 0
	for i := range f.nodes {
		if f.asGranted(&f.nodes[i]) {
			kept++
		}
	}
	return exclusive(len(f.nodes), f.pool.need, kept)
}

// adopt makes an attempt that takes the keys of the lease over.
//
// Source: ALGORITHM section 6, "Adopt".
func (f *former) adopt(ctx context.Context, lc lockConfig) (*grant, error) {
	p := f.pool
	now := p.now()
	median, most := p.set.Median(now), p.set.MaxAhead() // the median is 0 if it is not known
	if median > 0 && f.fence > median+most.Microseconds() {
		return nil, reason.Configf("Adopt: the fencing token %d of the Handle is ahead of the masters' clocks, %d, by more than %v", f.fence, median, most)
	}
	voteless := f.failure(func(i int, has *node.Held) error {
		standing := p.nodes[i].Standing()
		switch left := standing.VotesIn(now); {
		case has.Err != nil:
			return has.Err
		case !has.Has(f.token):
			return node.ErrGone
		case left > 0:
			return node.Quarantine(left)
		case median == 0:
			return node.ErrUnseeded
		}
		return standing.Void(now, true)
	})
	if voteless.Granted < p.need { // to no purpose, and the former holder may need the keys
		voteless.Reasons = voteless.why()
		return nil, voteless
	}
	a := newAcquisition(p, f.resource, lc)
	late := f.exclusive() // the nodes whose acquire came late must not count
	for i := range f.nodes {
		has := &f.nodes[i]
		value := has.Value
		if !has.Has(f.token) || late && !f.asGranted(has) {
			value = f.token + "|" // which no node has
		}
		a.former = append(a.former, value)
	}
	a.attempt.Least = f.fence + fenceBlock
	failed := p.run(ctx, a, line.Strategy{}, func(*failure) {
		a.keys.Abandon() // no release: a former holder that is not adopted counts on these keys
	})
	switch {
	case failed == nil && f.overtaken(a):
		a.keys.Abandon()
		f.tell() // the former lease is over
		return nil, p.quorumError(f.op, f.resource, a.attempt.Granted(), ErrNoQuorum, errPerhapsOther)
	case failed == nil:
		f.tell()
		return &a.grant, nil
	case failed.verdict == nil:
		return nil, failed.err
	}
	return nil, f.refused(failed.verdict)
}

// overtaken reports whether another holder may have been granted the resource between the grant of the former lease and
// the votes of an adoption that was successful. The look has asked the same, but not at one moment.
//
// Source: ALGORITHM section 6, "Adopt".
func (f *former) overtaken(a *acquisition) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, moved := 0, 0
	for i := range f.nodes {
		has, n := &f.nodes[i], &a.attempt.Nodes[i]
		if n.Vote == attempt.Yes && f.asGranted(has) {
			kept++
		}
		if n.Vote != attempt.Yes || has.Counter > 0 && n.Counter >= f.fence+2*fenceBlock {
			moved++
		}
	}
	return !exclusive(len(f.nodes), f.pool.need, kept) && moved >= f.pool.need
}

// refused makes the verdict on an attempt that of an adoption.
func (f *former) refused(e *QuorumError) *QuorumError {
	e.Op = f.op
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
	return e
}

// tell tells the former holder that its lease was adopted, or released by its Handle. It does not wait: a former holder
// that is not reached hears at its next renewal.
func (f *former) tell() {
	p := f.pool
	for _, n := range p.nodes {
		p.listeners.Go(func() error {
			ctx, cancel := context.WithTimeout(p.opened, time.Second)
			defer cancel()
			_ = n.TellBroken(ctx, p.conf.keyPrefix+f.resource) // the next renewal tells, too
			return nil
		})
	}
}

// grant makes a grant with the keys, counters and deadline that the nodes have, to extend or to release it once.
//
// Source: ALGORITHM section 6, "By Handle".
func (f *former) grant(ctx context.Context, lc lockConfig) *grant {
	g, p := new(grant), f.pool
	g.init(p, f.resource, lc)
	g.keys.ID, g.queueNode, g.start = f.token, p.queueNodeOf(f.resource), p.now()
	g.foreign = true
	g.term.Begin(g.start)
	g.target = node.CounterOf(f.nodes, p.need, f.token)
	var ends []instant
	for i := range f.nodes {
		g.keys.AssumeSent(p.nodes[i]) // each node has to be told of the release
		if has := &f.nodes[i]; has.Has(f.token) {
			key, end := &g.nodes[i], never
			key.state, key.counter = keyHeld, has.Given // without keepsTo: the holder may release the key meanwhile
			if has.TTL >= 0 {
				end = g.keyLife(has.Asked, has.TTL)
				g.keys.Live(has.TTL)
			}
			ends = append(ends, end)
		}
	}
	slices.Sort(ends)
	slices.Reverse(ends)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setDeadlineLocked(g.start, g.TTL)
	g.term.Shorten(ends[p.need-1]) // a quorum has the key until then
	g.newHoldLocked(ctx)
	return g
}
