// Package several locks several resources at once.
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
// keeps, it gives all back and begins again. It also does so when the masters have had no quorum for
// a second: it then waits for them without any part, so that the others stay free.
//
// # Limits
//
// While a call waits for a resource, the resources before it are taken but not used. A caller that
// wants many resources at once makes callers of single ones wait. Traces and events are those of
// the parts: there are none for the whole.
package several

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/wire"
)

// MaxNames is the largest number of resources of one call.
const MaxNames = 64

// Names are the resources of a call, in any order. A name that is listed twice counts once. A name
// must not be in both lists.
type Names struct {
	Write []string // to lock exclusively
	Read  []string // to share with other readers: see [redlock.Shared]
}

// Lock returns one lease on several resources. It waits until it has all of them. The options are
// those of the whole lease, from the moment at which it has all parts. At least half of the TTL is left
// then, however long the call has waited:
//
//   - [redlock.WithTTL], [redlock.WithGrace] and [redlock.WithOwner] hold for each part, from the start.
//   - [redlock.WithMaxHold] ends the lease. A part that was handed over has no bound of its own.
//   - [redlock.WithMinHold] keeps each part taken, also if it is unlocked by itself, and until then it
//     cannot be downgraded. A part that was given back before the call had all of them is free at once.
//   - [redlock.WithoutRenewal]: while the call waits it extends what it has.
//   - [redlock.WithReentry] is refused, and so is [redlock.Shared], which [Names] replaces.
//   - [redlock.WithQuarantineWait] is for TryLock, as for a single lock.
//
// If ctx ends first, the error is that of the resource for which the call waited. If an argument
// cannot work, the error matches [redlock.ErrConfig], and no master is asked. A name that
// [redlock.Locker.Lock] refuses, as that of a permit, is for TryLock alone. After an error no
// resource is held: Lock gives the parts that it had back without waiting for the masters.
func Lock(ctx context.Context, l *redlock.Locker, names Names, opts ...redlock.LockOption) (*Lease, error) {
	c, err := newCall(ctx, l, names, opts)
	if err != nil {
		return nil, err
	}
	for _, name := range c.names {
		if wire.QueueOf(name) != name {
			return nil, configErrorf("Lock: resource %q is one of several, for any of which package semaphore waits", name)
		}
	}
	c.part = append(c.part, redlock.WithQuarantineWait(0)) // Lock waits in any case, and without what it could get meanwhile
	for {
		lease, again, err := c.once(ctx)
		if !again {
			return lease, err
		}
	}
}

// TryLock is [Lock] with one attempt for each resource, all at the same time. As soon as one of them
// cannot be locked, TryLock gives up the others, and returns the error of that one. With
// [redlock.WithQuarantineWait] the time counts from the start of the call for all of them.
func TryLock(ctx context.Context, l *redlock.Locker, names Names, opts ...redlock.LockOption) (*Lease, error) {
	c, err := newCall(ctx, l, names, opts)
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held, errs := c.try(inner, c.names, func() { cancel(errAnother) })
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, errAnother) }); i >= 0 {
		door.GiveBack(held...)
		return nil, errs[i]
	}
	lease, err := c.Join(ctx, held...)
	if err != nil {
		door.GiveBack(held...)
	}
	return lease, err
}

// errAnother is matched by the error of an attempt that was given up.
var errAnother = errors.New("another resource could not be locked")

// Do calls fn while a lease on several resources is held, as [redlock.Locker.Do] does for one, and
// returns fn's error joined with the error of Unlock. The context of fn is that of [Lease.Within]. If fn ran
// on for more than 10 s after [redlock.Locker.Close], the error matches [redlock.ErrNotHeld] and [redlock.ErrClosed].
func Do(ctx context.Context, l *redlock.Locker, names Names, fn func(ctx context.Context, lease *Lease) error, opts ...redlock.LockOption) (err error) {
	if fn == nil {
		return configErrorf("fn is nil")
	}
	lease, err := Lock(ctx, l, names, opts...)
	if err != nil {
		return err
	}
	return lease.during(ctx, fn)
}

func configErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: several: %s", redlock.ErrConfig, fmt.Sprintf(format, args...))
}

// call is a call of Lock or TryLock under way.
type call struct {
	*terms
	names  []string // sorted, each once
	shared map[string]bool
}

func newCall(ctx context.Context, l *redlock.Locker, names Names, opts []redlock.LockOption) (*call, error) {
	if ctx == nil {
		return nil, configErrorf("ctx is nil")
	}
	t, err := newTerms(l, opts...)
	if err != nil {
		return nil, err
	}
	c := &call{terms: t, shared: make(map[string]bool)}
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
	case c.Settings.Shared:
		return nil, configErrorf("Shared: list the resources in Names.Read")
	}
	for _, name := range c.names {
		if err := inside.Of(l).CheckResource("several", name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// options returns the options for one resource.
func (c *call) options(name string) []redlock.LockOption {
	if c.shared[name] {
		return append(c.Part(), redlock.Shared())
	}
	return c.part
}

// cutOff reports whether calls of this process wait for a resource whose masters have no quorum.
func (c *call) cutOff(name string) bool {
	return errors.Is(inside.Of(c.locker).WhyWaiting(name), redlock.ErrNoQuorum)
}

// errCutOff ends the wait for a resource whose masters have no quorum.
var errCutOff = errors.New("no quorum for a second")

// wait waits for a resource. If the call keeps others, and would keep them in vain, it returns errCutOff.
func (c *call) wait(ctx context.Context, name string, keeps bool) (*redlock.Lease, error) {
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	if keeps {
		go c.watch(inner, name, end)
	}
	lease, err := c.locker.Lock(inner, name, c.options(name)...)
	if err != nil && context.Cause(inner) == errCutOff {
		return nil, errCutOff
	}
	return lease, err
}

// watch ends the wait for a resource when its masters have had no quorum for a second.
func (c *call) watch(ctx context.Context, name string, end context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second / 4)
	defer tick.Stop()
	for looks := 0; looks < 4; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if looks++; !c.cutOff(name) {
			looks = 0
		}
	}
	end(errCutOff)
}

// outwait waits until a resource can be locked, and keeps nothing.
func (c *call) outwait(ctx context.Context, name string) error {
	lease, err := c.locker.Lock(ctx, name, c.options(name)...)
	if err == nil {
		_ = lease.Unlock(ctx) // the key expires by itself
	}
	return err
}

// once locks all names. If a part was lost before the call had all of them, or the masters of one had no
// quorum, again is true.
func (c *call) once(ctx context.Context) (lease *Lease, again bool, err error) {
	if i := slices.IndexFunc(c.names, c.cutOff); i >= 0 && len(c.names) > 1 {
		err := c.outwait(ctx, c.names[i])
		return nil, err == nil, err
	}
	var held []*redlock.Lease // on the first of the names
	defer func() {
		if lease == nil {
			door.GiveBack(held...)
		}
	}()
	inner, kept := ctx, 0
	for {
		// An attempt for a resource that this process has or waits for would be in vain.
		rest := c.names[len(held):]
		if i := slices.IndexFunc(rest, func(r string) bool { return inside.Of(c.locker).WhyWaiting(r) != nil }); i >= 0 {
			rest = rest[:i]
		}
		if len(rest) > 1 || len(rest) == len(c.names) {
			more, _ := c.try(inner, rest, func() {}) // what fails for good fails in Lock, too
			held = append(held, more...)
		}
		if len(held) == len(c.names) {
			lease, err = c.Join(ctx, held...)
			return lease, err != nil && ctx.Err() == nil, err
		}
		for ; kept < len(held); kept++ {
			var stop context.CancelFunc
			inner, stop = c.Keep(inner, held[kept])
			defer stop()
		}
		name := c.names[len(held)]
		var next *redlock.Lease
		if err = errCutOff; len(held) == 0 || !c.cutOff(name) {
			next, err = c.wait(inner, name, len(held) > 0)
		}
		switch {
		case err == errCutOff:
			door.GiveBack(held...)
			held = nil
			err = c.outwait(ctx, name)
			return nil, err == nil, err
		case err != nil:
			return nil, ctx.Err() == nil && inner.Err() != nil, err
		}
		held = append(held, next)
	}
}

// try makes an attempt for each of some names, at the same time, and calls failed after each that
// fails. It returns the leases on the names before the first that is missing, and gives the others
// back.
func (c *call) try(ctx context.Context, names []string, failed func()) ([]*redlock.Lease, []error) {
	leases, errs := make([]*redlock.Lease, len(names)), make([]error, len(names))
	all, done := context.WithCancel(ctx)
	inParallel(len(names), func(i int) {
		if leases[i], errs[i] = c.locker.TryLock(ctx, names[i], c.options(names[i])...); errs[i] != nil {
			failed()
		} else if !c.Settings.Renewed { // others may wait for a quarantine
			c.Keep(all, leases[i])
		}
	})
	done()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		door.GiveBack(leases[i:]...)
		leases = leases[:i]
	}
	return leases, errs
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
