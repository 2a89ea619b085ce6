package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// Lease is one acquisition of a resource: the right to be the only one that works
// on it, until the validity ends. It comes from [Locker.Lock], [Locker.TryLock],
// [Locker.Do] or [Locker.Adopt]; the zero value is of no use. A Lease is safe for concurrent use.
//
// It is no sync.Locker: taking it can fail, and it ends by itself.
type Lease struct {
	grant  *grant
	locker *Locker
	fence  int64
	turn   int             // which holder of the grant
	parent context.Context // of the call that got the lease; for its values alone
	since  time.Time

	// All guarded by grant.mu.
	done      bool  // unlocked
	untold    bool  // that the keys are gone, by the Unlock that ended it: no quorum had confirmed
	over      error // why this handle has no lease any more; nil while it has
	ctx       context.Context
	cancelCtx context.CancelCauseFunc
}

// Resource is the name that was locked.
func (le *Lease) Resource() string { return le.grant.resource }

// Token is the random value stored under the key, new for each grant. It tells who set
// the key and has no order; for that there is Fence. Leases that were handed over from
// one caller of the process to the next share it.
func (le *Lease) Token() string { return le.grant.keys.ID }

// Fence is the fencing token: a positive number, strictly larger for every later
// lease of the resource, though not by one each time. A store that keeps
// the largest number it has seen and refuses smaller ones is safe from a holder
// that was paused past the end of its lease; nothing else is. What is computed from a
// read must present the number with the read, too: otherwise the write of such a holder
// can come between the read and the write of the next one. It is 0 for a lease that
// was adopted without it, where the nodes could not tell.
//
// Source: ALGORITHM sections 4 and 7.
func (le *Lease) Fence() int64 { return le.fence }

// Validity is what is left of the lease by the local clock: nobody else can be granted
// the resource before that is over. It is not positive after Unlock or Detach, or once too many
// nodes lost the key. The lease's context ends a little before the validity, by a
// fiftieth of the TTL or 5 ms if that is more, and with it the lease for Extend and
// Unlock: what is left then is for winding down.
//
// Source: distlock, step 4; ALGORITHM section 7.
func (le *Lease) Validity() time.Duration {
	le.grant.mu.Lock()
	released := le.done || errors.Is(le.over, ErrReleased)
	le.grant.mu.Unlock()
	if released {
		return 0
	}
	return le.grant.validity()
}

// Context ends before the validity does, whatever the reason: context.Cause then
// matches [ErrLost], or [ErrReleased] after Unlock, or [ErrDetached]. It carries the values of the
// context that the lease was acquired with, but neither its cancellation nor its
// deadline: those were for the waiting.
//
// No I/O is needed for it to end. After the machine was suspended it can be up to a
// second late; Validity is not.
//
// Source: ALGORITHM section 7.
func (le *Lease) Context() context.Context {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if le.ctx == nil {
		ctx, cancel := context.WithCancelCause(&leaseContext{context.WithoutCancel(le.parent), le})
		le.ctx, le.cancelCtx = ctx, cancel
		if le.over != nil {
			cancel(le.over)
		}
	}
	return le.ctx
}

// Err returns nil while the lease stands. When the lease is over, Err returns the reason: an
// error that matches [ErrLost], [ErrReleased] or [ErrDetached]. It looks at the clock: after a
// suspend of the machine it tells of the end even before the lease's context has ended.
func (le *Lease) Err() error {
	le.grant.mu.Lock()
	over := le.over
	le.grant.mu.Unlock()
	if over == nil && le.grant.validity() <= 0 {
		return errLostExpired
	}
	return over
}

// Within returns a context for work under the lease. It ends with ctx or with the lease,
// whichever is first, and context.Cause tells the reason, as it does for ctx and for
// [Lease.Context]. It carries the values and the deadline of ctx. [Locker.Do] calls its
// function with such a context.
//
// Call cancel when the work is over: it ends the context and frees what the context needs. The
// lease goes on.
func (le *Lease) Within(ctx context.Context) (inner context.Context, cancel context.CancelFunc) {
	inner, end := context.WithCancelCause(&leaseContext{ctx, le})
	leaseCtx := le.Context()
	stop := context.AfterFunc(leaseCtx, func() { end(context.Cause(leaseCtx)) })
	return inner, func() {
		stop()
		end(nil)
	}
}

// Extend makes one renewal round now, with the TTL of the lease, counted from now.
// It is also the way to make sure of the lease before a critical step.
//
// If the lease is over the error matches [ErrNotHeld], and [ErrLost], [ErrReleased]
// or [ErrDetached]; it is never revived. If too few nodes answered the error is a
// [*QuorumError] that matches [ErrNoQuorum], and ctx.Err() if that ended the call;
// the lease then stands as it was, until its validity ends.
//
// Source: ALGORITHM section 6.
func (le *Lease) Extend(ctx context.Context) error {
	if ctx == nil {
		return configErrorf("Extend: ctx is nil")
	}
	if err := ctx.Err(); err != nil {
		return contextError(ctx)
	}
	end := le.locker.conf.trace(ctx, "Extend", le.Resource())
	err := le.grant.extend(ctx, le)
	end(le, err)
	return err
}

// Unlock ends the lease: for the holder at once, then on the nodes. It returns when
// a quorum confirmed that the key is gone; the others are told in the background,
// until they confirm or the key has expired there. If another caller of this process
// waits for the resource the key may be handed over to that one instead, and Unlock
// returns at once.
//
// Whether ctx has ended, or ends, makes no difference: a request that was cancelled
// must still give back what it locked. Unlock returns within one node timeout in any
// case. If the lease was over before, the error matches [ErrNotHeld], and [ErrLost],
// [ErrReleased] or [ErrDetached] for the reason. If no quorum confirmed, it is a [*QuorumError] that
// matches [ErrNoQuorum]: then the key may stay for up to a TTL. After an error, too,
// the lease is over. A nil ctx alone is refused with [ErrConfig] and ends nothing.
//
// Unlock may be called again after it failed with ErrNoQuorum. It sends nothing of its own, as
// the nodes are told in the background all the time. It waits, and returns nil once a quorum is
// free of the key: by their word, or as the key has expired there for certain. If ctx ends
// first, or the Locker is closed, the error is a QuorumError that matches ErrNoQuorum, and
// ctx.Err() or [ErrClosed]. A call after one that returned nil gives ErrNotHeld.
//
// Of a lease that was re-entered, the last Unlock releases; the others only end
// their own handle.
//
// Source: ALGORITHM sections 5 and 10.
func (le *Lease) Unlock(ctx context.Context) error {
	if ctx == nil {
		return configErrorf("Unlock: ctx is nil")
	}
	end := le.locker.conf.trace(ctx, "Unlock", le.Resource())
	err := le.unlock(ctx)
	end(le, err)
	return err
}

func (le *Lease) unlock(ctx context.Context) error {
	g := le.grant
	g.mu.Lock()
	again := le.untold
	g.mu.Unlock()
	var err error
	if again {
		err = g.awaitRepeated(ctx)
	} else {
		var last bool
		if last, err = le.locker.unlock(le); last && err == nil {
			err = g.awaitRelease()
		}
	}
	if again || err != nil && !errors.Is(err, ErrNotHeld) {
		g.mu.Lock()
		le.untold = err != nil
		g.mu.Unlock()
	}
	return err
}

// end takes the handle off its lease at now, for good. last reports that the lease has no
// other handle, so that its keys have to be released; err that it was over before.
func (le *Lease) end(cause error, now instant) (last bool, err error) {
	g := le.grant
	g.mu.Lock()
	if le.done {
		defer g.mu.Unlock()
		return false, notHeld("unlock", g.resource, le.over)
	}
	after := g.expireLocked(now)
	le.done = true
	g.handles = slices.DeleteFunc(g.handles, func(h *Lease) bool { return h == le })
	last = len(g.handles) == 0
	if g.cause != nil {
		err = notHeld("unlock", g.resource, g.cause)
	} else if last {
		after = append(after, g.endLocked(cause, now)...)
		g.pool.events.released(le)
	}
	if end := le.overLocked(cause); end != nil {
		after = append(after, end)
	}
	g.mu.Unlock()
	run(after)
	return last, err
}

// overLocked ends the handle's context with cause, if it has not ended. What it
// returns is to be called when the mutex is free.
func (le *Lease) overLocked(cause error) func() {
	if le.over == nil {
		le.over = cause
	}
	if le.cancelCtx == nil {
		return nil
	}
	return func() { le.cancelCtx(cause) } // has no effect on a context that has ended
}

// run calls what had to wait for a mutex.
func run(after []func()) {
	lockorder.MustBeFree()
	for _, f := range after {
		f()
	}
}

// leaseContext is what Lease.Context is derived from: the caller's values, and the
// lease itself, for re-entry. It is found under its Locker.
type leaseContext struct {
	context.Context
	lease *Lease
}

func (c *leaseContext) Value(key any) any {
	if key == any(c.lease.locker) {
		return c
	}
	return c.Context.Value(key)
}

// heldIn is the lease of resource that ctx descends from; nil if it does from none.
func (l *Locker) heldIn(ctx context.Context, resource string) *Lease {
	c, ok := ctx.Value(l).(*leaseContext)
	for ; ok; c, ok = c.Context.Value(l).(*leaseContext) {
		if c.lease.grant.resource == resource {
			return c.lease
		}
	}
	return nil
}

// reenter is for a caller inside the lease: held reports that it is still held, and
// then inner is another handle of it, if one is wanted.
func (le *Lease) reenter(ctx context.Context, wanted bool) (inner *Lease, held bool) {
	g := le.grant
	g.mu.Lock()
	after := g.expireLocked(g.pool.now())
	if held = g.cause == nil && le.turn == g.hand.count; held && wanted {
		inner = &Lease{grant: g, locker: le.locker, fence: le.fence, turn: le.turn, parent: ctx, since: time.Now()}
		g.handles = append(g.handles, inner)
	}
	g.mu.Unlock()
	run(after)
	return inner, held
}
