package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// MultiLease is a lease on several resources, as [Locker.LockAll] returns it, or on permits of a
// semaphore, as [Semaphore.Acquire] returns it. Its parts are renewed together and end together. A
// MultiLease is safe for concurrent use.
type MultiLease struct {
	parts   []*Lease // sorted by resource and slot
	ctx     context.Context
	end     context.CancelCauseFunc
	unwatch []func() bool // by part
}

// Part is one resource of a [MultiLease], or one permit.
type Part struct {
	Resource string // or the name of the semaphore
	Slot     int    // of a permit, from 1 to the number of permits; 0 for a resource
	Token    string // see Lease.Token
	Fence    int64  // see Lease.Fence: it is checked for each resource by itself
}

// newMultiLease makes one lease of several. parent is the context of the call.
func newMultiLease(parent context.Context, parts []*Lease) *MultiLease {
	m := &MultiLease{parts: parts}
	m.ctx, m.end = context.WithCancelCause(m.inside(context.WithoutCancel(parent)))
	m.renewTogether()
	for _, le := range parts {
		m.unwatch = append(m.unwatch, context.AfterFunc(le.Context(), func() { m.lost(le) }))
	}
	return m
}

// renewTogether makes the renewals of all parts due at the same moments, so that each master gets
// them in one batch.
func (m *MultiLease) renewTogether() {
	first, every := never, m.parts[0].grant.renewEvery()
	for _, le := range m.parts {
		g := le.grant
		g.mu.Lock()
		first = min(first, g.renewal.at)
		g.mu.Unlock()
	}
	for _, le := range m.parts {
		g := le.grant
		g.mu.Lock()
		g.renewal.every, g.renewal.at = every, first
		g.mu.Unlock()
		g.pool.renewer.update(g)
	}
}

// lost ends the lease after the end of one part. The others are not renewed any more: their keys stay
// until Unlock or until they expire, for the holder to wind down.
func (m *MultiLease) lost(part *Lease) {
	m.end(errorf("resource %q: %w", part.Resource(), context.Cause(part.Context())))
	for _, le := range m.parts {
		le.renewNoLonger()
	}
}

// inside returns a context that descends from the leases of all parts, for re-entry.
func (m *MultiLease) inside(ctx context.Context) context.Context {
	for _, le := range m.parts {
		ctx = &leaseContext{ctx, le}
	}
	return ctx
}

// Parts returns the resources or permits of the lease, sorted by name and slot.
func (m *MultiLease) Parts() []Part {
	list := make([]Part, len(m.parts))
	for i, le := range m.parts {
		resource, slot := le.grant.named()
		list[i] = Part{Resource: resource, Slot: slot, Token: le.Token(), Fence: le.Fence()}
	}
	return list
}

// Fence returns the fencing token of a resource, or 0 if the lease does not include the resource. A
// store checks the token of its own resource: see [Lease.Fence]. Each permit has a token of its own, see
// [Semaphore]; Fence returns that of the first one.
func (m *MultiLease) Fence(resource string) int64 {
	i := slices.IndexFunc(m.parts, func(le *Lease) bool { return le.Resource() == resource })
	if i < 0 {
		return 0
	}
	return m.parts[i].Fence()
}

// Owner returns the label of [WithOwner], or "" if the lease has none.
func (m *MultiLease) Owner() string { return m.parts[0].Owner() }

// Validity returns the time until the first part of the lease ends: see [Lease.Validity].
func (m *MultiLease) Validity() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, le := range m.parts {
		least = min(least, le.Validity())
	}
	return least
}

// Context returns a context that ends when the first part of the lease ends, whatever the reason.
// context.Cause then names the resource, and matches [ErrLost], or [ErrReleased] after Unlock: see
// [Lease.Context].
func (m *MultiLease) Context() context.Context { return m.ctx }

// Err returns nil while the lease stands, and otherwise why it is over: see [Lease.Err].
func (m *MultiLease) Err() error {
	if cause := context.Cause(m.ctx); cause != nil {
		return cause
	}
	for _, le := range m.parts {
		if err := le.Err(); err != nil {
			return errorf("resource %q: %w", le.Resource(), err)
		}
	}
	return nil
}

// Within returns a context for work under the lease, as [Lease.Within] does.
func (m *MultiLease) Within(ctx context.Context) (inner context.Context, cancel context.CancelFunc) {
	inner, end := context.WithCancelCause(m.inside(ctx))
	stop := context.AfterFunc(m.ctx, func() { end(context.Cause(m.ctx)) })
	return inner, func() {
		stop()
		end(nil)
	}
}

// during calls fn while the lease is held, and unlocks it then.
func (m *MultiLease) during(ctx context.Context, fn func(ctx context.Context, lease *MultiLease) error) (err error) {
	defer func() { err = errors.Join(err, m.Unlock(ctx)) }()
	fnCtx, cancel := m.Within(ctx)
	defer cancel()
	return fn(fnCtx, m)
}

// Extend makes one renewal round for all parts now: see [Lease.Extend]. If one part could not be
// extended, the error is that of this part, and the others may have been extended all the same.
func (m *MultiLease) Extend(ctx context.Context) error { return m.extend(ctx, "Extend", 0) }

// ExtendFor is [MultiLease.Extend] with a TTL of its own: see [Lease.ExtendFor].
func (m *MultiLease) ExtendFor(ctx context.Context, ttl time.Duration) error {
	if err := m.parts[0].grant.checkTTL(ttl); err != nil {
		return err
	}
	return m.extend(ctx, "ExtendFor", ttl)
}

func (m *MultiLease) extend(ctx context.Context, name string, ttl time.Duration) error {
	if ctx == nil {
		return configErrorf("%s: ctx is nil", name)
	}
	if err := ctx.Err(); err != nil {
		return contextError(ctx)
	}
	if cause := context.Cause(m.ctx); cause != nil {
		return notHeld("extend", m.name(), cause)
	}
	end := m.parts[0].grant.pool.conf.trace(ctx, "Extend", m.name())
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	rounds, errs := make([]*round, len(m.parts)), make([]error, len(m.parts))
	m.together(func(i int, le *Lease) { rounds[i], errs[i] = le.grant.beginExtend(le, ttl) })
	inParallel(len(m.parts), func(i int) {
		if le := m.parts[i]; errs[i] == nil {
			errs[i] = le.grant.awaitExtend(inner, le, rounds[i])
		}
	})
	err := joinParts(errs)
	end(m.parts[0], err)
	return err
}

// Unlock ends the lease on all resources: see [Lease.Unlock]. It returns when a quorum of the masters
// has confirmed for each resource that its key is gone. If the lease was over before, because one part
// was lost, the error matches [ErrNotHeld] and has the reason; the other parts are released. After an
// error that matches [ErrNoQuorum], Unlock may be called again.
func (m *MultiLease) Unlock(ctx context.Context) error {
	if ctx == nil {
		return configErrorf("Unlock: ctx is nil")
	}
	end := m.parts[0].grant.pool.conf.trace(ctx, "Unlock", m.name())
	for _, stop := range m.unwatch {
		stop()
	}
	m.end(ErrReleased)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	begun, errs := make([]unlocking, len(m.parts)), make([]error, len(m.parts))
	m.together(func(i int, le *Lease) { begun[i] = le.beginUnlock() })
	inParallel(len(m.parts), func(i int) { errs[i] = begun[i].confirm(inner) })
	err := joinParts(errs)
	end(m.parts[0], err)
	return err
}

// Detach ends the lease for this process, but not on the masters, whose keys stay until they expire: see
// [Lease.Detach]. Other holders get the resources then. [Locker.Adopt] can take up each resource by itself,
// and no permit. If the lease was over before, the error matches [ErrNotHeld], and has the reason. Detach then
// changes nothing, and Unlock releases what is left.
func (m *MultiLease) Detach() error {
	if cause := context.Cause(m.ctx); cause != nil {
		return notHeld("detach", m.name(), cause)
	}
	for _, stop := range m.unwatch {
		stop()
	}
	m.end(ErrDetached)
	errs := make([]error, len(m.parts))
	for i, le := range m.parts {
		errs[i] = le.Detach()
	}
	return joinParts(errs)
}

// together calls send for all parts, whose requests then go to each master together.
func (m *MultiLease) together(send func(i int, le *Lease)) {
	held := make(map[*pool]bool)
	for _, le := range m.parts {
		if p := le.grant.pool; !held[p] {
			held[p] = true
			defer p.set.Hold()()
		}
	}
	for i, le := range m.parts {
		send(i, le)
	}
}

// joinParts joins the errors of parts.
func joinParts(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) <= 1 {
		return errors.Join(errs...)
	}
	return partsError(errs)
}

// name returns the names of all resources, for traces and errors.
func (m *MultiLease) name() string {
	names := make([]string, len(m.parts))
	for i, le := range m.parts {
		names[i] = le.Resource()
	}
	return strings.Join(slices.Compact(names), ",") // all permits of a semaphore have its name
}

// partsError has the errors of several parts of a lease.
type partsError []error

func (e partsError) Error() string {
	return fmt.Sprintf("%v (and %d more resources)", e[0], len(e)-1)
}

func (e partsError) Unwrap() []error { return e }
