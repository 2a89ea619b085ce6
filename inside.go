package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// inside is a Locker for packages on top: package internal/inside says what its methods do.
type inside struct{ *Locker }

// CheckResource implements inside.Locker.
func (l inside) CheckResource(name, resource string) error {
	return l.conf.checkResource(name, resource)
}

// WhyWaiting implements inside.Locker.
func (l inside) WhyWaiting(resource string) error {
	held, why := l.pool.lines.WhyNot(resource)
	if held || errors.Is(why, ErrTaken) && l.pool.holds(resource) { // the second of a reader's lease
		return fmt.Errorf("%w in this process", ErrTaken)
	}
	return why
}

// Waiting implements inside.Locker.
func (l inside) Waiting() (all []door.Wait) {
	l.pool.lines.Each(func(key line.Key, first call, calls int, held bool, why error) {
		all = append(all, door.Wait{Resource: key.Resource, Mode: string(modeOf(key.Shared)), Calls: calls, Since: first.began, Own: held, Why: why})
	})
	for i := range all {
		w := &all[i]
		w.Own = w.Own || errors.Is(w.Why, ErrTaken) && l.pool.holds(w.Resource)
	}
	return all
}

// Logger implements inside.Locker.
func (l inside) Logger() *slog.Logger { return l.conf.logger() }

// Done implements inside.Locker.
func (l inside) Done() <-chan struct{} { return l.pool.closing }

// LockAny implements inside.Locker. It waits as Lock does, in one queue for all n: processes are served in the order
// of their calls, for up to 128 calls of a process. The first message joins the queue. So a resource that is free
// takes two round trips, and a TryLock of a resource that is likely to be free takes one. A caller that has one of
// the resources and waits for another one can wait for ever. All clients should give a name the same n. "wrong_type" ends
// the call only if all of the resources are like that.
//
// Source: ALGORITHM section 10, "Any of several".
func (l inside) LockAny(ctx context.Context, name string, n int, opts ...LockOption) (*Lease, error) {
	if n < 1 || n > wire.MaxOneOf {
		return nil, reason.Configf("LockAny: %d resources: must be from 1 to %d", n, wire.MaxOneOf)
	}
	last := name + wire.OneOf + strconv.Itoa(n)
	if most := MaxResourceLength - (len(last) - len(name)); len(name) > most {
		return nil, reason.Configf("LockAny: the name has %d bytes: at most %d are allowed with n = %d", len(name), most, n)
	}
	if err := l.conf.checkResource("LockAny", last); err != nil {
		return nil, err
	}
	oneOf := lockOption(func(c *lockConfig) { c.several = n })
	return l.acquire(ctx, "LockAny", name, append(slices.Clone(opts), oneOf), (*pool).waitFor)
}

// Settings implements inside.Locker.
func (l inside) Settings(opts ...LockOption) (door.Settings, error) {
	lc, err := l.conf.forCall(opts)
	if err != nil {
		return door.Settings{}, err
	}
	return door.Settings{
		TTL:           lc.TTL,
		MaxTTL:        l.conf.maxTTL,
		MasterTimeout: lc.Timeout(),
		Grace:         lc.Grace,
		MaxHold:       lc.MaxHold,
		MinHold:       lc.minHold,
		Quarantine:    node.QuarantineFor(l.conf.maxTTL, l.conf.drift),
		Clock:         l.conf.clock.Source,
		Renewed:       !lc.Manual,
		Reentry:       lc.reentry,
		Shared:        lc.shared,
		Owner:         lc.owner,

		QuarantineWait: lc.votesWait,
	}, nil
}
