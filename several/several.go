// Package several locks several resources at once, on the exported API of package redlock alone.
// Each resource has a lease of its own, exclusive or shared, so exclusion and fencing tokens are
// those of [redlock.Locker.Lock]. A part can be adopted, inspected, extended and broken like any
// other lease.
//
// # Promise
//
// A call returns a lease on all its resources or on none. The lease ends when its first part is
// lost. If all resources are free, the call takes one round trip.
//
// Calls do not wait for each other in a circle, whatever the order in which callers name the
// resources: while a call waits for a resource, it holds only resources whose names sort before
// that one. No call starves: it waits in the queue of one resource at a time, and at most once for
// each.
//
// # How
//
// The names are sorted by their bytes. TryLock asks for all of them at the same time. Lock then
// keeps the parts before the first one that is missing, gives the others back, waits for the
// missing one by [redlock.Locker.Lock], and tries the rest again. If Lock loses a part that it
// keeps, it gives all back and begins again.
//
// # Limits
//
// While a call waits for a resource, the resources before it are taken but not used. A caller that
// wants many resources at once makes callers of single ones wait. The time of [redlock.WithMinHold]
// counts from the moment at which the single resource was locked, and keeps it taken also if the
// call could not get the others. With [redlock.WithoutRenewal] the TTL counts from the moment at
// which the part was last extended, which leaves at least half of it. With
// [redlock.WithQuarantineWait] each TryLock waits by itself. Traces and events are those of the
// parts: there are none for the whole.
//
// chaos/model/several in the repository searches the rule against circles.
package several

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/d0720281/redlock"
)

// Locker has the methods of a [redlock.Locker] that the package needs. A Locker of package sharded
// has them, too.
type Locker interface {
	Lock(ctx context.Context, resource string, opts ...redlock.LockOption) (*redlock.Lease, error)
	TryLock(ctx context.Context, resource string, opts ...redlock.LockOption) (*redlock.Lease, error)
	CheckResource(resource string) error
	WhyWaiting(resource string) error
	Settings(opts ...redlock.LockOption) (redlock.Settings, error)
}

// MaxNames is the largest number of resources of one call.
const MaxNames = 64

// Names are the resources of a call, in any order. A name that is listed twice counts once. A name
// must not be in both lists.
type Names struct {
	Write []string // to lock exclusively
	Read  []string // to share with other readers: see [redlock.Shared]
}

// Lock returns one lease on several resources. It waits until it has all of them. The options hold
// for each resource, except for [redlock.WithMaxHold], which holds for the whole lease.
// [redlock.WithReentry] is refused, and so is [redlock.Shared], which [Names] replaces.
//
// If ctx ends first, the error is that of the resource for which the call waited. If an argument
// cannot work, the error matches [redlock.ErrConfig], and no master is asked. After an error no
// resource is held: Lock gives the parts that it had back without waiting for the masters.
func Lock(ctx context.Context, l Locker, names Names, opts ...redlock.LockOption) (*Lease, error) {
	c, err := newCall(ctx, l, names, opts)
	if err != nil {
		return nil, err
	}
	for {
		lease, err := c.once(ctx)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errAgain) {
			return lease, err
		}
	}
}

// TryLock is [Lock] with one attempt for each resource. If one of them cannot be locked, TryLock
// gives the others back, and returns the error of the first one that is missing.
func TryLock(ctx context.Context, l Locker, names Names, opts ...redlock.LockOption) (*Lease, error) {
	c, err := newCall(ctx, l, names, opts)
	if err != nil {
		return nil, err
	}
	held, err := c.try(ctx, c.names)
	if err != nil {
		giveBack(held...)
		return nil, err
	}
	return c.join(ctx, held), nil
}

// Do calls fn while a lease on several resources is held, as [redlock.Locker.Do] does for one, and
// returns fn's error joined with the error of Unlock. The context of fn ends with ctx or with the
// lease.
func Do(ctx context.Context, l Locker, names Names, fn func(ctx context.Context, lease *Lease) error, opts ...redlock.LockOption) (err error) {
	if fn == nil {
		return configErrorf("fn is nil")
	}
	lease, err := Lock(ctx, l, names, opts...)
	if err != nil {
		return err
	}
	return lease.During(ctx, fn)
}

func configErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: several: %s", redlock.ErrConfig, fmt.Sprintf(format, args...))
}

// call is a call of Lock or TryLock under way.
type call struct {
	l        Locker
	opts     []redlock.LockOption
	settings redlock.Settings
	names    []string // sorted, each once
	shared   map[string]bool
}

func newCall(ctx context.Context, l Locker, names Names, opts []redlock.LockOption) (*call, error) {
	switch {
	case l == nil:
		return nil, configErrorf("the Locker is nil")
	case ctx == nil:
		return nil, configErrorf("ctx is nil")
	}
	settings, err := l.Settings(opts...)
	if err != nil {
		return nil, err
	}
	c := &call{l: l, settings: settings, shared: make(map[string]bool)}
	c.opts = slices.Clone(opts)
	if settings.MaxHold > 0 { // the lease counts it, from when it has all parts
		c.opts = append(c.opts, redlock.WithMaxHold(math.MaxInt64))
	}
	for _, name := range names.Read {
		c.shared[name] = true
	}
	for _, name := range names.Write {
		if c.shared[name] {
			return nil, configErrorf("%q is to be read and to be written: lock it to be written", name)
		}
	}
	c.names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names.Write, names.Read))))
	switch {
	case len(c.names) == 0 || len(c.names) > MaxNames:
		return nil, configErrorf("%d resources: must be from 1 to %d", len(c.names), MaxNames)
	case settings.Reentry:
		return nil, configErrorf("WithReentry is for single resources")
	case settings.Shared:
		return nil, configErrorf("Shared: list the resources in Names.Read")
	}
	for _, name := range c.names {
		if err := l.CheckResource(name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// options returns the options for one resource.
func (c *call) options(name string) []redlock.LockOption {
	if c.shared[name] {
		return append(slices.Clip(c.opts), redlock.Shared())
	}
	return c.opts
}

// errAgain is matched by the error of a round in which a kept part was lost.
var errAgain = errors.New("a part was lost while the call waited")

// once locks all names.
func (c *call) once(ctx context.Context) (lease *Lease, err error) {
	var held []*redlock.Lease // on the first of the names
	defer func() {
		if lease == nil {
			giveBack(held...)
		}
	}()
	for {
		// An attempt for a resource that this process has or waits for would be in vain.
		rest := c.names[len(held):]
		if i := slices.IndexFunc(rest, func(r string) bool { return c.l.WhyWaiting(r) != nil }); i >= 0 {
			rest = rest[:i]
		}
		if len(rest) > 1 || len(rest) == len(c.names) {
			more, _ := c.try(ctx, rest) // what fails for good fails in Lock, too
			held = append(held, more...)
		}
		if len(held) == len(c.names) {
			if err := c.refresh(ctx, held); err != nil {
				return nil, err
			}
			return c.join(ctx, held), nil
		}
		next, err := c.wait(ctx, held)
		if err != nil {
			return nil, err
		}
		held = append(held, next)
	}
}

// wait waits for the first resource that is missing, as long as no lease that the call has is lost.
func (c *call) wait(ctx context.Context, held []*redlock.Lease) (*redlock.Lease, error) {
	inner, cancel := within(ctx, held)
	defer cancel()
	name := c.names[len(held)]
	next, err := c.l.Lock(inner, name, c.options(name)...)
	if err != nil && ctx.Err() == nil && inner.Err() != nil {
		err = fmt.Errorf("%w: %w: %w", redlock.ErrNotAcquired, errAgain, context.Cause(inner))
	}
	return next, err
}

// try makes an attempt for each of some names, at the same time. It returns the leases on those
// before the first that is missing, with the error of that one, and gives the others back.
func (c *call) try(ctx context.Context, names []string) ([]*redlock.Lease, error) {
	leases, errs := make([]*redlock.Lease, len(names)), make([]error, len(names))
	inParallel(len(names), func(i int) { leases[i], errs[i] = c.l.TryLock(ctx, names[i], c.options(names[i])...) })
	for i, err := range errs {
		if err != nil {
			giveBack(leases[i:]...)
			return leases[:i], err
		}
	}
	return leases, nil
}

// refresh extends the leases of which half is over, as nothing may have renewed them while the call
// waited.
func (c *call) refresh(ctx context.Context, held []*redlock.Lease) error {
	errs := make([]error, len(held))
	inParallel(len(held), func(i int) {
		if held[i].Validity() < c.settings.TTL/2 {
			errs[i] = held[i].Extend(ctx)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w: %w", redlock.ErrNotAcquired, errAgain, err)
	}
	return nil
}

func (c *call) join(ctx context.Context, held []*redlock.Lease) *Lease {
	lease := Join(ctx, held...)
	if c.settings.MaxHold > 0 {
		lease.endAfter(c.settings.MaxHold)
	}
	return lease
}

// giveBack unlocks leases, and does not wait for the masters' answers. It skips nil.
func giveBack(leases ...*redlock.Lease) {
	for _, le := range leases {
		if le != nil {
			go func() { _ = le.Unlock(context.Background()) }()
		}
	}
}

// inParallel calls f with 0 to n-1 at the same time, and returns when all calls have.
func inParallel(n int, f func(i int)) {
	var calls sync.WaitGroup
	for i := range n - 1 {
		calls.Go(func() { f(i) })
	}
	if n > 0 {
		f(n - 1)
	}
	calls.Wait()
}
