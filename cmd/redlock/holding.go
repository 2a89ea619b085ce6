package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
	"github.com/d0720281/redlock/sharded"
)

// This file gets what redlock run holds: a lock, several locks, a share of a lock, or permits.

// runLease is what run holds. It has the methods of a lease that run needs.
type runLease struct {
	lockLease
	unlock func(context.Context) error
	parts  []*redlock.Lease
}

func one(le *redlock.Lease, err error) (*runLease, error) {
	if err != nil {
		return nil, err
	}
	return &runLease{le, le.Unlock, []*redlock.Lease{le}}, nil
}

func many(le *several.Lease, err error) (*runLease, error) {
	if err != nil {
		return nil, err
	}
	return &runLease{le, le.Unlock, le.Parts()}, nil
}

// get takes the lock in the way that the flags ask for.
func (r *run) get(ctx context.Context, locker *sharded.Locker) (*runLease, error) {
	if r.once() {
		return connecting(func() (*runLease, error) { return r.try(ctx, locker) })
	}
	switch {
	case r.permits > 0:
		s, err := semaphore.New(locker, r.keys[0], r.permits)
		if err != nil {
			return nil, err
		}
		return permitsOf(s.Acquire(ctx, r.take))
	case len(r.keys) > 1:
		return many(several.Lock(ctx, locker, several.Names{Write: r.keys}))
	case r.shared:
		return one(locker.Lock(ctx, r.keys[0], redlock.Shared()))
	}
	return one(locker.Lock(ctx, r.keys[0]))
}

// try makes one attempt.
func (r *run) try(ctx context.Context, locker *sharded.Locker) (*runLease, error) {
	votes := r.votes.option(locker)
	switch {
	case r.permits > 0:
		s, err := semaphore.New(locker, r.keys[0], r.permits, votes)
		if err != nil {
			return nil, err
		}
		return permitsOf(s.TryAcquire(ctx, r.take))
	case len(r.keys) > 1:
		return many(several.TryLock(ctx, locker, several.Names{Write: r.keys}, votes))
	case r.shared:
		return one(locker.TryLock(ctx, r.keys[0], redlock.Shared(), votes))
	}
	return one(locker.TryLock(ctx, r.keys[0], votes))
}

func permitsOf(le *semaphore.Lease, err error) (*runLease, error) {
	if err != nil {
		return nil, err
	}
	return many(le.Lease, nil)
}

// part is a lock or a permit that run holds.
type part struct {
	key   string
	slot  int // of a permit; 0 for a lock
	fence int64
}

// holdings returns what a lease stands for: several keys in the order in which they were given, and permits
// by their numbers.
func (r *run) holdings(lease *runLease) (parts []part) {
	for _, le := range lease.parts {
		p := part{key: le.Resource(), fence: le.Fence()}
		if r.permits > 0 {
			p.slot, _ = strconv.Atoi(strings.TrimPrefix(p.key, r.keys[0]+"/"))
			p.key = r.keys[0]
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b part) int {
		return a.slot - b.slot + slices.Index(r.keys, a.key) - slices.Index(r.keys, b.key)
	})
	return parts
}

var ownVariable = regexp.MustCompile(`^REDLOCK_(MODE|(KEY|SLOT|FENCE)(_[0-9]+)?)=`)

// environment returns the environment of the command. What a redlock around this one has set is left out.
func (r *run) environment(lease *runLease) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return ownVariable.MatchString(v)
	})
	all := r.holdings(lease)
	mode := string(lease.parts[0].Mode())
	if r.permits > 0 {
		env = append(env, "REDLOCK_KEY="+r.keys[0])
		mode = "permit"
	}
	for i, part := range all {
		suffix := ""
		if len(all) > 1 {
			suffix = fmt.Sprint("_", i+1)
		}
		if part.slot > 0 {
			env = append(env, fmt.Sprintf("REDLOCK_SLOT%s=%d", suffix, part.slot))
		} else {
			env = append(env, "REDLOCK_KEY"+suffix+"="+part.key)
		}
		env = append(env, fmt.Sprintf("REDLOCK_FENCE%s=%d", suffix, part.fence))
	}
	return append(env, fmt.Sprint("REDLOCK_TTL_MS=", r.ttl.Milliseconds()), "REDLOCK_MODE="+mode)
}

// holds notes what the lease has.
func (r *record) holds(parts []part) {
	if len(parts) == 1 {
		r.Slot, r.Fence = parts[0].slot, parts[0].fence
		return
	}
	r.Locks = nil
	for _, p := range parts {
		r.Locks = append(r.Locks, lockRecord{p.key, p.slot, p.fence})
	}
}
