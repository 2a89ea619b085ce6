package redlock

import (
	"context"

	"github.com/d0720281/redlock/internal/wire"
)

// This file has the leases of readers. On the nodes, a reader's key is one among several
// (internal/wire/lua/shared.lua); everything else of a reader's lease is as for any lease.
//
// Source: ALGORITHM section 13.

// Mode says with whom the holder of a lease shares the resource.
type Mode string

// The modes.
const (
	Exclusive Mode = "exclusive" // with no other holder
	Shared    Mode = "shared"    // with other readers
	Permit    Mode = "permit"    // with the holders of the other permits of a semaphore
)

func (g *grant) modeLocked() Mode { return g.line().mode() }

func (k lineKey) mode() Mode {
	switch {
	case k.permits.Of > 0:
		return Permit
	case k.shared:
		return Shared
	}
	return Exclusive
}

// RLock returns a lease for reading: other readers can have the resource at the same time, the holder
// of a [Locker.Lock] cannot. It waits, and fails, as [Locker.Lock] does. Readers and writers are called
// in the order in which their processes came: a reader does not overtake a writer that waits, so readers
// that come one after the other do not starve a writer. Callers of one process that wait to read
// together, with the same options, share one lease, which is released when each of them has unlocked
// it. They count as one lease for [Observer] and [Locker.Stats].
//
// The lease of a reader that dies ends with its own TTL, and blocks a writer for no longer. A reader
// learns that its lease is lost as any holder does. [Lease.Fence] says what a reader's token is good
// for.
//
// If ctx descends from a lease of the resource, exclusive or shared, the error is [ErrReentry]. With
// [WithReentry] RLock returns another handle of that lease. A Lock inside a reader's lease fails with
// [ErrUpgrade].
//
// Masters must let the user ZSCORE and ZREMRANGEBYSCORE; without these rights the error matches
// [ErrPermission]. Without the right to ZRANGE readers may overtake a writer that waits. Clients of an older version take readers for another holder.
//
// Source: [ALGORITHM section 13].
//
// [ALGORITHM section 13]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#13-readers-and-writers
func (l *Locker) RLock(ctx context.Context, resource string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, "RLock", resource, Shared, opts, (*pool).waitFor)
}

// TryRLock is [Locker.RLock] with one attempt, as [Locker.TryLock] is to [Locker.Lock]. It is refused
// while a writer waits for the resource.
func (l *Locker) TryRLock(ctx context.Context, resource string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, "TryRLock", resource, Shared, opts, (*pool).tryOnce)
}

// RDo is [Locker.Do] with a lease of [Locker.RLock].
func (l *Locker) RDo(ctx context.Context, resource string, fn func(ctx context.Context, lease *Lease) error, opts ...LockOption) error {
	if fn == nil {
		return configErrorf("RDo: fn is nil")
	}
	lease, err := l.RLock(ctx, resource, opts...)
	if err != nil {
		return err
	}
	return lease.during(ctx, fn)
}

// Mode returns [Shared] for the lease of a reader, and [Exclusive] for any other lease. A lease of permits
// is a [MultiLease].
func (le *Lease) Mode() Mode {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	return le.grant.modeLocked()
}

// Downgrade makes an exclusive lease that of a reader: other readers are let in, and no writer had the
// resource in between. The right to write ends when Downgrade is called. Then Downgrade makes a round
// over the masters, as [Lease.Extend] does. Fence returns the token of a reader from then on. Nothing
// leads back: unlock the lease, and lock the resource again.
//
// If the lease is over, the error matches [ErrNotHeld]. If it has another handle by [WithReentry], the
// error is [ErrReentry]; a lease from [Locker.Adopt] may be another process's, too, and the error
// matches [ErrConfig]. Nothing is changed then. After any other error, which is that of the round, the
// lease is that of a reader as well, with the validity that it had. Masters that were not reached let
// readers in after the next renewal. For a lease of a reader, Downgrade does nothing.
//
// Source: [ALGORITHM section 13], "Downgrade".
//
// [ALGORITHM section 13]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#13-readers-and-writers
func (le *Lease) Downgrade(ctx context.Context) error {
	if ctx == nil {
		return configErrorf("Downgrade: ctx is nil")
	}
	if err := ctx.Err(); err != nil {
		return contextError(ctx)
	}
	end := le.grant.pool.conf.trace(ctx, "Downgrade", le.Resource())
	err := le.downgrade(ctx)
	end(le, err)
	return err
}

func (le *Lease) downgrade(ctx context.Context) error {
	changed, err := le.share()
	if err != nil || !changed {
		return err
	}
	return le.grant.extend(ctx, le, 0)
}

// share makes the lease that of a reader, before any node is told. It reports whether it was not that
// before.
//
// Source: ALGORITHM section 15, I18.
func (le *Lease) share() (changed bool, err error) {
	g := le.grant
	unlock := g.lockOptions()
	after := g.expireLocked(g.pool.now())
	switch {
	case le.over != nil:
		err = notHeld("downgrade", g.resource, le.over)
	case g.shared:
	case len(g.handles) > 1:
		err = ErrReentry
	case g.adopted:
		err = configErrorf("Downgrade: the lease was adopted: another process may have it, too")
	default:
		g.pool.waitlines.freedLocked(g)
		g.shared, changed = true, true
		g.name = wire.NoProcess
		le.fence = g.presentFenceLocked()
		g.pool.events.downgraded(le)
	}
	unlock()
	run(after)
	return changed, err
}
