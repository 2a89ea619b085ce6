package redlock

import (
	"context"

	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// This file has the leases of readers. On the nodes, a reader's key is one among several
// (internal/wire/lua/shared.lua); everything else of a reader's lease is as for any lease.
//
// Source: ALGORITHM section 12.

// Mode is the kind of a lease: exclusive, or shared with other readers.
type Mode string

// The modes.
const (
	ModeExclusive Mode = "exclusive" // with no other holder
	ModeShared    Mode = "shared"    // with other readers
)

// Shared makes the lease that of a reader. Readers share a resource with each other, but not with a writer, the
// holder of an exclusive lease. Readers and writers are served in the order in which their processes came:
// readers do not starve writers, and [Locker.TryLock] is refused while a writer waits. Callers of one process
// that wait to read together, with the same options, share one lease, which is released when each of them has
// unlocked it. Observer and [Locker.Stats] count it as one.
//
// If the context of the call descends from a lease of the resource, exclusive or shared, the error is
// [ErrReentry]. With [WithReentry] the call returns another hold on that lease. A call for an exclusive lease
// inside a reader's lease fails with ErrReentry in any case. Masters that refuse ZSCORE or ZREMRANGEBYSCORE
// give [ErrMasterSetup]; without ZRANGE readers may overtake a waiting writer. Source: ALGORITHM section 12.
func Shared() LockOption { return lockOption(func(c *lockConfig) { c.shared = true }) }

func (g *grant) modeLocked() Mode { return modeOf(g.shared) }

func modeOf(shared bool) Mode {
	if shared {
		return ModeShared
	}
	return ModeExclusive
}

// Mode returns [ModeShared] for the lease of a reader, and [ModeExclusive] for any other lease.
func (le *Lease) Mode() Mode {
	le.made().grant.mu.Lock()
	defer le.grant.mu.Unlock()
	return le.grant.modeLocked()
}

// Shared reports whether the lease is that of a reader.
func (le *Lease) Shared() bool { return le.Mode() == ModeShared }

// Downgrade makes an exclusive lease that of a reader: other readers can come, and no writer can come in
// between. The right to write ends when Downgrade is called, and Fence returns the token of a reader from then
// on. Downgrade then makes a round over the masters, as [Lease.Extend] does. There is no upgrade: unlock the
// lease, and lock the resource again.
//
// Downgrade changes nothing if ctx had ended before, if the lease is over ([ErrNotHeld]), if it has another
// hold by [WithReentry] ([ErrReentry]), or if it is that of a reader, which is no error. After any other error,
// which is that of the round, the lease is that of a reader, with the validity that it had. A master that the
// round did not reach grants the resource to readers after the next renewal. Source: ALGORITHM section 12,
// "Downgrade".
func (le *Lease) Downgrade(ctx context.Context) error {
	if err := le.checkCall(ctx, "Downgrade"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return reason.OfContext(ctx)
	}
	end := le.grant.pool.conf.trace(ctx, "Downgrade", le.Resource())
	err := le.downgrade(ctx)
	end(le, err)
	return err
}

func (le *hold) downgrade(ctx context.Context) error {
	changed, err := le.share()
	if err != nil || !changed {
		return err
	}
	return le.grant.extend(ctx, le, 0)
}

// share makes the lease that of a reader, before any node is told. It reports whether it was not
// that before.
//
// Source: ALGORITHM section 13, I15.
func (le *hold) share() (changed bool, err error) {
	g := le.grant
	g.mu.Lock()
	after := g.expireLocked(g.pool.now())
	switch {
	case le.over != nil:
		err = notHeld("downgrade", g.resource, le.over)
	case g.shared:
	case len(g.holds) > 1:
		err = ErrReentry
	default:
		key := g.key()
		after = append(after, func() { g.pool.lines.Freed(key, g) }) // passOn gives a reader's lease to no writer meanwhile
		g.shared, changed = true, true
		g.name = wire.NoProcess
		le.fence = g.presentFenceLocked()
		g.pool.events.downgraded(le)
	}
	g.mu.Unlock()
	run(after)
	return changed, err
}
