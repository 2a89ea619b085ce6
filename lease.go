package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/term"
	"github.com/d0720281/redlock/internal/wire"
)

// Lease is one acquisition of a resource: the right to work on the resource until the validity ends. The right
// is exclusive, or shared with other readers. A Lease is safe for concurrent use. It is no [sync.Locker]: it
// can be refused, and it ends by itself. Methods of a nil Lease, as Lock returns it with an error, or of a zero
// one panic.
type Lease struct {
	*hold
}

// hold is the part of a Lease that the library keeps. After the first renewal it does not refer to the
// Lease, so that the garbage collector can tell that the caller has dropped the Lease.
type hold struct {
	grant  *grant
	fence  int64           // guarded by grant.mu
	turn   int             // number of hand-overs of the grant before this holder
	parent context.Context // of the call that got the lease; used for its values alone
	since  time.Time

	lease   atomic.Pointer[Lease] // until the first renewal
	dropped atomic.Bool           // the Lease was collected

	// All guarded by grant.mu.
	reported  bool  // there was an EventAbandoned
	done      bool  // unlocked
	works     int   // under way: calls of Within and Do
	unsettled bool  // the Unlock that ended the lease failed, as no quorum had confirmed that the keys are gone
	over      error // why this hold has no lease any more; nil while it has one
	ctx       context.Context
	cancelCtx context.CancelCauseFunc
}

// made returns the hold, and panics if no call has returned the Lease.
func (le *Lease) made() *hold {
	if le == nil || le.hold == nil {
		panic("redlock: no call has returned this Lease: look at the error of the call before the Lease")
	}
	return le.hold
}

func (le *Lease) checkCall(ctx context.Context, name string) error {
	le.made()
	if ctx == nil {
		return reason.Configf("%s: ctx is nil", name)
	}
	return nil
}

// public returns the Lease of a new hold, for the caller.
func (le *hold) public() *Lease {
	lease := &Lease{le}
	le.lease.Store(lease)
	return lease
}

// reportDroppedLocked is called at each renewal. It reports each hold whose Lease was dropped
// without Unlock, once: such a lease is renewed for ever. The cleanup is added at the first renewal,
// before which most leases end.
func (g *grant) reportDroppedLocked() {
	for _, h := range g.holds {
		if le := h.lease.Swap(nil); le != nil {
			runtime.AddCleanup(le, func(dropped *atomic.Bool) { dropped.Store(true) }, &h.dropped)
		}
		if h.dropped.Load() && !h.reported && g.term.Phase() != term.Kept {
			h.reported = true
			g.pool.events.left(EventAbandoned, h, nil)
		}
	}
}

// context returns the context of the hold, and makes it for the first call.
func (le *hold) context() context.Context {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	if le.ctx == nil {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(le.parent))
		le.ctx, le.cancelCtx = &leaseContext{ctx, le, cancel}, cancel
		switch {
		case le.over != nil:
			cancel(le.over)
		case le.grant.idle != nil:
			cancel(errClosedHeld)
		}
	}
	return le.ctx
}

// Resource returns the name of the resource.
func (le *Lease) Resource() string { return le.made().grant.resource }

// Token returns the random value that the masters store under the key, new for each grant. It has no order, as
// [Lease.Fence] does. It has 22 characters: letters, digits, "." and "_". A semicolon and the label of
// [WithOwner] follow, unless that is "". Leases that callers of one process hand over to each other have the
// same token.
func (le *Lease) Token() string { return le.made().grant.keys.ID }

// Owner returns the label of [WithOwner], or "" if the lease has none. An adopted lease has that of the process
// that adopted it.
func (le *Lease) Owner() string { return wire.OwnerOf(le.made().grant.keys.ID) }

// Fence returns the fencing token: a positive number that is larger for every later lease of the resource,
// though not by one each time. Only a store that keeps the largest number it has seen, and refuses smaller
// ones, is safe from a holder that was paused past the end of its lease. If a write is computed from a read,
// present the number with the read, too. Otherwise the write of a paused holder can come between the read and
// the write of the next holder.
//
// A reader's token is at least that of every writer before it, and less than that of every later writer.
// Readers' tokens never fall, but several readers have the same. A store refuses a read whose token is less
// than the largest token of a writer. It must not keep the token of a reader, nor take it for a write. Source:
// ALGORITHM sections 4, 7 and 12.
func (le *Lease) Fence() int64 {
	le.made().grant.mu.Lock()
	defer le.grant.mu.Unlock()
	return le.fence
}

// Validity returns the time until the lease ends, by the local clock. Until then no other holder can be granted
// the resource. The result is not positive after Unlock or Detach, or once too many masters have lost the key.
//
// The lease's context ends before the validity: by a fiftieth of the TTL, or by 5 ms if that is more. From then
// on Extend and Unlock regard the lease as over, and the rest of the validity is for winding down. Unlock still
// releases the keys then, so that the next holder can come: call Unlock when the work has stopped. Source:
// distlock, step 4; ALGORITHM section 7.
func (le *Lease) Validity() time.Duration {
	le.made().grant.mu.Lock()
	released := le.done || errors.Is(le.over, ErrReleased)
	le.grant.mu.Unlock()
	if released {
		return 0
	}
	return le.grant.validity()
}

// Context returns a context that ends before the validity ends. Its [context.Cause] then matches [ErrLost],
// [ErrReleased] after Unlock, or [ErrDetached]. The context carries the values of the context that the lease
// was acquired with, but neither its cancellation nor its deadline, which applied to the wait.
//
// The context ends without any I/O. Its Err looks at the clock, and returns nil at no moment after the end.
// Done is closed when a goroutine of the library runs next, or by Err: after a suspend of the machine up to a
// second late. A context derived from it ends when Done is closed. Source: ALGORITHM section 7.
func (le *Lease) Context() context.Context { return le.made().context() }

// Err returns nil while the lease stands, and then the reason for its end: an error that matches [ErrLost],
// [ErrReleased] or [ErrDetached]. Err looks at the clock: after a suspend of the machine it reports the end
// before the lease's context has ended.
func (le *Lease) Err() error {
	le.made().grant.mu.Lock()
	defer le.grant.mu.Unlock()
	if le.over == nil && le.grant.validity() <= 0 {
		return le.grant.withLastLocked(term.ErrExpired)
	}
	return le.over
}

// Within returns a context for work under the lease. It ends with ctx or with the lease, whichever is first,
// and its [context.Cause] is that of ctx or of [Lease.Context]. It carries the values and the deadline of ctx.
// Call cancel when the work is over: the lease goes on. [Locker.Close] ends the context, and keeps the lease
// until cancel is called, for 10 s at most. Within panics if ctx is nil.
func (le *Lease) Within(ctx context.Context) (inner context.Context, cancel context.CancelFunc) {
	le.made()
	if ctx == nil {
		panic("redlock: Within: ctx is nil")
	}
	inner, end := le.within(ctx)
	over := le.work()
	return inner, func() { end(); over() }
}

// work notes that work begins under the lease. The result notes that it is over.
func (le *hold) work() (over func()) {
	count := func(n int) {
		le.grant.mu.Lock()
		defer le.grant.mu.Unlock()
		le.works += n
		le.grant.workedLocked()
	}
	count(1)
	return sync.OnceFunc(func() { count(-1) })
}

// worksLocked reports whether work is done under the lease, or an Unlock is under way: without Close waiting for
// that, the nodes would be left before the release is sent.
func (g *grant) worksLocked() bool {
	return g.unlocks > 0 || g.term.Stands() && slices.ContainsFunc(g.holds, func(h *hold) bool { return h.works > 0 })
}

// workedLocked is called when work may be over.
func (g *grant) workedLocked() {
	if g.idle != nil && !g.worksLocked() && !closed(g.idle) {
		close(g.idle)
	}
}

// windDown is called by Close. If work is done under the lease, it ends the contexts of that, and returns
// a channel that is closed when the work is over. Otherwise it returns nil.
func (g *grant) windDown() (idle <-chan struct{}) {
	g.mu.Lock()
	var after []func()
	if g.worksLocked() {
		g.idle = make(chan struct{})
		for _, h := range g.holds {
			if h.cancelCtx != nil {
				after = append(after, func() { h.cancelCtx(errClosedHeld) })
			}
		}
	}
	idle = g.idle
	g.mu.Unlock()
	run(after)
	return idle
}

func (le *hold) within(ctx context.Context) (inner context.Context, cancel context.CancelFunc) {
	inner, end := context.WithCancelCause(ctx)
	leaseCtx := le.context()
	stop := context.AfterFunc(leaseCtx, func() { end(context.Cause(leaseCtx)) })
	if leaseCtx.Err() != nil {
		end(context.Cause(leaseCtx)) // before within returns
	}
	return &leaseContext{inner, le, end}, func() {
		stop()
		end(nil)
	}
}

// Extend makes one renewal round now: the TTL of the lease then counts from now. Call it also to make sure of
// the lease before a critical step.
//
// Extend takes one master timeout at most. If the lease is over, the error matches [ErrNotHeld], and [ErrLost],
// [ErrReleased] or [ErrDetached] for the reason: Extend never revives a lease. If ctx had ended before, Extend
// asks no master, and the error matches ctx.Err() alone. If too few masters extended the key in time, the error
// is a [*QuorumError] that matches [ErrNoQuorum], and ctx.Err() if ctx ended meanwhile. The lease then stands
// as it was, until its validity ends. Source: ALGORITHM section 6.
func (le *Lease) Extend(ctx context.Context) error { return le.extend(ctx, "Extend", 0) }

// ExtendFor is [Lease.Extend] with a TTL of its own: from [MinTTL] to the value of [WithMaxTTL], and at most
// that of [WithMaxHold]. From now on the masters keep the key for this TTL, even if this process dies.
// ExtendFor never shortens a lease, and later renewals have the TTL of the lease again. If the lease could not
// have been acquired with that TTL, the error matches [ErrConfig].
func (le *Lease) ExtendFor(ctx context.Context, ttl time.Duration) error {
	if err := le.made().grant.checkTTL(ttl); err != nil {
		return reason.Configf("ExtendFor(%v): %s", ttl, strings.TrimPrefix(err.Error(), ErrConfig.Error()+": "))
	}
	return le.extend(ctx, "ExtendFor", ttl)
}

// checkTTL returns an error if a lease with the options of this one cannot have a TTL.
func (g *grant) checkTTL(ttl time.Duration) error {
	g.mu.Lock()
	lc := g.lockConfig
	g.mu.Unlock()
	lc.TTL = ttl
	return lc.validate(g.pool.conf)
}

func (le *Lease) extend(ctx context.Context, name string, ttl time.Duration) error {
	if err := le.checkCall(ctx, name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return reason.OfContext(ctx)
	}
	end := le.grant.pool.conf.trace(ctx, "Extend", le.Resource())
	err := le.grant.extend(ctx, le.hold, ttl)
	end(le, err)
	return err
}

// Unlock ends the lease: for the holder at once, then on the masters. It returns when a quorum of the masters
// has confirmed that the key is gone, or after one master timeout. In the background the library repeats the
// release until the other masters confirm or the key has expired there. If another caller of this process waits
// for the resource, Unlock may hand the key over to that caller, and returns at once. The Unlock of a hold that
// is not the last one of a re-entered lease only ends that hold.
//
// Unlock does its work even if ctx has ended: a request that was cancelled must still give back what it locked.
// Only a nil ctx is refused, with [ErrConfig], and ends nothing. After any other error the lease is over. If it
// was over before, the error matches [ErrNotHeld], and [ErrLost], [ErrReleased] or [ErrDetached] for the
// reason. If the masters had lost the key before the library noticed, the error matches ErrNotHeld alone, and
// another holder may have had the resource. If no quorum confirmed, the error is a [*QuorumError] that matches
// [ErrNoQuorum], and the key may stay for up to a TTL.
//
// After ErrNoQuorum, Unlock may be called again. It then sends nothing itself, and returns nil once a quorum is
// free of the key: a master has confirmed it, or the key must have expired there. If ctx ends first, or the
// Locker is closed, the error matches ErrNoQuorum, and ctx.Err() or [ErrClosed]. After a call that returned
// nil, Unlock returns ErrNotHeld. Source: ALGORITHM sections 5 and 10.
func (le *Lease) Unlock(ctx context.Context) error {
	if err := le.checkCall(ctx, "Unlock"); err != nil {
		return err
	}
	end := le.grant.pool.conf.trace(ctx, "Unlock", le.Resource())
	err := le.unlock(ctx)
	end(le, err)
	return err
}

// unlock ends the hold, and waits until a quorum has confirmed the releases if it was the last
// one. If an earlier Unlock has ended the hold, and its releases lack a quorum, unlock waits for
// these.
func (le *hold) unlock(ctx context.Context) (err error) {
	g := le.grant
	g.mu.Lock()
	again, held := le.unsettled, g.minHold > 0
	g.unlocks++
	g.mu.Unlock()
	switch {
	case again:
		err = g.awaitRepeated(ctx)
	case held && le.linger(): // linger reads the clock, which most leases need not pay for
	default:
		var last bool
		if last, err = g.pool.unlock(le); last && err == nil {
			err = g.awaitRelease()
		}
	}
	g.mu.Lock()
	if again || err != nil && !errors.Is(err, ErrNotHeld) {
		le.unsettled = err != nil
	}
	g.unlocks--
	g.workedLocked()
	g.mu.Unlock()
	return err
}

// linger ends the hold before the end of its minimum hold, and keeps the lease until then: the
// renewer unlocks it. It reports false, and has done nothing, if the minimum hold is over, the
// lease has ended or has other holds.
func (le *hold) linger() bool {
	g := le.grant
	g.mu.Lock()
	now := g.pool.now()
	after := g.expireLocked(now)
	left := g.minHold - time.Since(le.since)
	lingers := left > 0 && g.term.Stands() && !le.done && len(g.holds) == 1
	if lingers {
		g.holds[0] = &hold{grant: g, fence: le.fence, turn: le.turn, parent: context.Background(), since: le.since}
		g.term.KeepFor(left, now, g.pool.stood())
		le.done = true
		if end := le.overLocked(ErrReleased); end != nil {
			after = append(after, end)
		}
		after = append(after, func() { g.pool.renewer.update(g) })
	}
	g.mu.Unlock()
	run(after)
	return lingers
}

// end takes the hold off its lease at now, for good. last reports that the lease has no
// other hold, so that its keys have to be released. err is not nil if the lease was over
// before.
func (le *hold) end(cause error, now instant) (last bool, err error) {
	g := le.grant
	g.mu.Lock()
	if le.done {
		defer g.mu.Unlock()
		return false, notHeld("unlock", g.resource, le.over)
	}
	after := g.expireLocked(now)
	le.done = true
	g.holds = slices.DeleteFunc(g.holds, func(h *hold) bool { return h == le })
	last = len(g.holds) == 0
	if !g.term.Stands() {
		err = notHeld("unlock", g.resource, g.term.Cause())
	} else if last {
		after = append(after, g.endLocked(cause, now)...)
		g.pool.events.left(EventReleased, le, nil)
	}
	if end := le.overLocked(cause); end != nil {
		after = append(after, end)
	}
	g.mu.Unlock()
	run(after)
	return last, err
}

// overLocked marks the hold as over for cause, if it is not over yet. The caller calls the
// result after it has unlocked the mutex; that ends the hold's context. The result is nil if
// there is no context.
func (le *hold) overLocked(cause error) func() {
	if le.over == nil {
		le.over = cause
	}
	if le.cancelCtx == nil {
		return nil
	}
	return func() { le.cancelCtx(cause) } // has no effect on a context that has ended
}

// run calls the functions that had to wait until a mutex was unlocked.
func run(after []func()) {
	lockorder.MustBeFree()
	for _, f := range after {
		f()
	}
}

// leaseContext is a context of a lease. It has the caller's values, and the lease itself for re-entry: its Value for the
// key pool is the leaseContext.
type leaseContext struct {
	context.Context
	lease *hold
	end   context.CancelCauseFunc // ends Context
}

// Err ends the context if that is due by the clock: the goroutine that does so otherwise may not have run yet.
//
// Source: ALGORITHM section 7.
func (c *leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if over := c.lease.expire(); over != nil {
		c.end(over)
	}
	return c.Context.Err()
}

// expire ends the lease if the time of its holder is over. It returns why the hold is over, or nil.
func (le *hold) expire() error {
	g := le.grant
	now := g.pool.now()
	if !g.term.MayEnd(now) {
		return nil // without the mutex: a holder looks often
	}
	g.mu.Lock()
	var after []func()
	if le.over == nil { // otherwise the library may keep the lease
		after = g.expireLocked(now.Add(g.term.Lead()))
	}
	over := le.over
	g.mu.Unlock()
	run(after)
	return over
}

func (c *leaseContext) Value(key any) any {
	if key == any(c.lease.grant.pool) || key == (door.LeaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// LeaseFrom returns the lease that protects the work of ctx, for code that is handed ctx alone: ctx descends
// from the context of [Locker.Do], [Lease.Within] or [Lease.Context], or from one of package jobs, election or
// semaphore. Of nested leases LeaseFrom returns the innermost one, which may be over: see [Lease.Err].
// LeaseFrom reports false outside a lease, and where the innermost lease has several parts: LeaseFrom of
// package several returns that one.
func LeaseFrom(ctx context.Context) (*Lease, bool) {
	c, ok := ctx.Value(door.LeaseKey{}).(*leaseContext)
	if !ok {
		return nil, false
	}
	return &Lease{c.lease}, true
}

// heldIn returns the lease of resource that ctx descends from, or nil.
func (p *pool) heldIn(ctx context.Context, resource string) *hold {
	c, ok := ctx.Value(p).(*leaseContext)
	for ; ok; c, ok = c.Context.Value(p).(*leaseContext) {
		if c.lease.grant.resource == resource {
			return c.lease
		}
	}
	return nil
}

// reenter is called for a caller whose context descends from the lease, and which wants to read if
// shared is true. If the lease is still held, the result is another hold where the caller may
// have one, or else the error of the call.
func (le *hold) reenter(ctx context.Context, shared, allowed bool) (inner *hold, err error) {
	g := le.grant
	g.mu.Lock()
	after := g.expireLocked(g.pool.now())
	switch held := g.term.Phase() == term.Standing && le.turn == g.hand.count; {
	case !held:
	case g.shared && !shared:
		err = reason.Upgrade
	case !allowed:
		err = ErrReentry
	default:
		inner = g.newHoldLocked(ctx)
	}
	g.mu.Unlock()
	run(after)
	return inner, err
}

// newHoldLocked adds a hold to a lease, for the context of a call.
func (g *grant) newHoldLocked(ctx context.Context) *hold {
	le := &hold{grant: g, fence: g.presentFenceLocked(), turn: g.hand.count, parent: ctx, since: time.Now(), over: g.term.Cause()}
	g.holds = append(g.holds, le)
	return le
}
