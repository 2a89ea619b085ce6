package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/d0720281/redlock"
)

// This file gets what redlock run holds: a lock, several locks, a share of a lock, or permits.

// runLease has the methods of a lease that run needs.
type runLease interface {
	lockLease
	Unlock(context.Context) error
	parts() []redlock.Part
	mode() redlock.Mode
}

type multiLease struct {
	*redlock.MultiLease
	kind redlock.Mode
}

func (m multiLease) parts() []redlock.Part { return m.Parts() }
func (m multiLease) mode() redlock.Mode    { return m.kind }

func leaseOf(m *redlock.MultiLease, err error) (runLease, error) {
	return multiLease{m, redlock.Exclusive}, err
}

func permitsOf(m *redlock.MultiLease, err error) (runLease, error) {
	return multiLease{m, redlock.Permit}, err
}

type reader struct{ *redlock.Lease }

func (r reader) parts() []redlock.Part {
	return []redlock.Part{{Resource: r.Resource(), Token: r.Token(), Fence: r.Fence()}}
}

func (r reader) mode() redlock.Mode { return r.Mode() }

func readerOf(le *redlock.Lease, err error) (runLease, error) { return reader{le}, err }

// get takes the lock in the way that the flags ask for.
func (r *run) get(ctx context.Context, locker *redlock.Locker) (runLease, error) {
	switch {
	case r.permits > 0 && r.once():
		return permitsOf(connecting(func() (*redlock.MultiLease, error) {
			return locker.Semaphore(r.keys[0], r.permits).TryAcquire(ctx, r.take, r.votes.option(locker))
		}))
	case r.permits > 0:
		return permitsOf(locker.Semaphore(r.keys[0], r.permits).Acquire(ctx, r.take))
	case r.shared && r.once():
		return readerOf(connecting(func() (*redlock.Lease, error) { return locker.TryRLock(ctx, r.keys[0], r.votes.option(locker)) }))
	case r.shared:
		return readerOf(locker.RLock(ctx, r.keys[0]))
	case r.once():
		return leaseOf(connecting(func() (*redlock.MultiLease, error) {
			return locker.TryLockAll(ctx, r.keys, r.votes.option(locker))
		}))
	}
	return leaseOf(locker.LockAll(ctx, r.keys))
}

// holdings returns the parts of a lease: those of several keys in the order in which they were given.
func (r *run) holdings(lease runLease) []redlock.Part {
	parts := lease.parts()
	if r.permits > 0 {
		return parts
	}
	given := make([]redlock.Part, len(r.keys))
	for i, key := range r.keys {
		given[i] = parts[slices.IndexFunc(parts, func(p redlock.Part) bool { return p.Resource == key })]
	}
	return given
}

var ownVariable = regexp.MustCompile(`^REDLOCK_(MODE|(KEY|SLOT|FENCE)(_[0-9]+)?)=`)

// environment returns the environment of the command. What a redlock around this one has set is left out.
func (r *run) environment(lease runLease) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return ownVariable.MatchString(v)
	})
	all := r.holdings(lease)
	if r.permits > 0 {
		env = append(env, "REDLOCK_KEY="+r.keys[0])
	}
	for i, part := range all {
		suffix := ""
		if len(all) > 1 {
			suffix = fmt.Sprint("_", i+1)
		}
		if part.Slot > 0 {
			env = append(env, fmt.Sprintf("REDLOCK_SLOT%s=%d", suffix, part.Slot))
		} else {
			env = append(env, "REDLOCK_KEY"+suffix+"="+part.Resource)
		}
		env = append(env, fmt.Sprintf("REDLOCK_FENCE%s=%d", suffix, part.Fence))
	}
	return append(env, fmt.Sprint("REDLOCK_TTL_MS=", r.ttl.Milliseconds()), "REDLOCK_MODE="+string(lease.mode()))
}

// holds notes what the lease has.
func (r *record) holds(parts []redlock.Part) {
	if len(parts) == 1 {
		r.Slot, r.Fence = parts[0].Slot, parts[0].Fence
		return
	}
	r.Locks = nil
	for _, p := range parts {
		r.Locks = append(r.Locks, lockRecord{p.Resource, p.Slot, p.Fence})
	}
}
