package redlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file locks several resources at once. Each of them is an ordinary lease, so exclusion and
// fencing tokens are those of a lease. The rules here are about deadlocks: every caller takes its
// resources in the same order, and keeps only those before the first that is missing.
//
// Source: ALGORITHM section 12.

// MaxResources is the largest number of resources of one [Locker.LockAll], and of permits of one
// [Semaphore.Acquire].
const MaxResources = 64

// LockAll returns one lease on several resources, 1 to [MaxResources]. It waits until it has all of
// them or ctx ends. If all are free that takes as long as for one. A resource that is named twice is
// locked once. The order of the names has no meaning: callers that want the same resources in
// different orders do not wait for each other for ever, nor for callers of [Locker.Lock]. Only a
// LockAll or Lock inside the lease of another one can still wait for ever, as with any locks.
//
// While LockAll waits for a resource, it holds those that it wants and whose names sort before that
// one, and renews them. It waits in the queues of the resources one after the other, so it does not
// starve. A caller that must hold nothing while it waits calls [Locker.TryLockAll] again and again.
// If one of the resources that it holds is lost, LockAll gives all back and begins again.
//
// The lease has one validity and one context, which end when the first part of it ends. The options
// hold for each part; [WithMaxHold] counts from when LockAll returns. [WithReentry] is for single
// resources: if it is given to LockAll, the error matches [ErrConfig]. If ctx descends from a lease of
// one of the resources, the error matches [ErrReentry], or [ErrUpgrade] if that lease is shared.
//
// Errors are those of [Locker.Lock]. A [*QuorumError] names the resource that LockAll could not get.
// After an error no resource is held.
//
// Source: [ALGORITHM section 12].
//
// [ALGORITHM section 12]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#12-several-resources-at-once
func (l *Locker) LockAll(ctx context.Context, resources []string, opts ...LockOption) (*MultiLease, error) {
	return l.acquireAll(ctx, "LockAll", resources, opts, (*several).wait)
}

// TryLockAll is [Locker.LockAll] with one attempt for each resource, all at the same time, as
// [Locker.TryLock] makes it. If it lacks one of them, it gives all back.
func (l *Locker) TryLockAll(ctx context.Context, resources []string, opts ...LockOption) (*MultiLease, error) {
	return l.acquireAll(ctx, "TryLockAll", resources, opts, (*several).once)
}

// DoAll is [Locker.Do] with a lease of [Locker.LockAll].
func (l *Locker) DoAll(ctx context.Context, resources []string, fn func(ctx context.Context, lease *MultiLease) error, opts ...LockOption) error {
	if fn == nil {
		return configErrorf("DoAll: fn is nil")
	}
	lease, err := l.LockAll(ctx, resources, opts...)
	if err != nil {
		return err
	}
	return lease.during(ctx, fn)
}

// acquireAll is the common part of LockAll and TryLockAll: it checks everything that can be checked
// without asking a node, and then calls get.
func (l *Locker) acquireAll(ctx context.Context, name string, resources []string, opts []LockOption, get func(*several, context.Context) error) (*MultiLease, error) {
	names, err := l.conf.checkAll(ctx, name, resources)
	if err != nil {
		return nil, err
	}
	lc, err := l.conf.forCall(opts)
	if err != nil {
		return nil, err
	}
	if lc.reentry && !l.conf.reentry {
		return nil, configErrorf("%s: WithReentry is for single resources", name)
	}
	end := l.conf.trace(ctx, name, strings.Join(names, ","))
	m, err := l.admitAll(ctx, name, names, lc, get)
	l.endedAll(end, m, err)
	return m, err
}

// endedAll ends the trace of a call, as ended does.
func (l *Locker) endedAll(end func(*Lease, error), m *MultiLease, err error) {
	var first *Lease
	if m != nil {
		first = m.parts[0]
	}
	returned := false
	defer func() {
		if !returned && m != nil { // end has panicked or exited the goroutine: no caller gets the lease
			_ = m.Unlock(context.Background())
		}
	}()
	end(first, err)
	returned = true
}

// checkAll returns the names in order, each once, or an error if they cannot be locked together.
func (c *config) checkAll(ctx context.Context, name string, resources []string) ([]string, error) {
	if ctx == nil {
		return nil, configErrorf("%s: ctx is nil", name)
	}
	names := slices.Clone(resources)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 || len(names) > MaxResources {
		return nil, configErrorf("%s: %d resources: must be from 1 to %d", name, len(names), MaxResources)
	}
	for _, r := range names {
		if err := c.checkResource(name, r); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// admitAll rejects calls on a closed Locker, with an ended context, or that would deadlock on
// re-entry. Otherwise it calls get, and makes the lease.
func (l *Locker) admitAll(ctx context.Context, name string, names []string, lc lockConfig, get func(*several, context.Context) error) (*MultiLease, error) {
	if !l.calls.enter() {
		return nil, ErrClosed
	}
	defer l.calls.leave()
	if closed(ctx.Done()) {
		return nil, endedBy(ctx)
	}
	for _, r := range names {
		if outer := l.groupOf(r).heldIn(ctx, r); outer != nil {
			if _, err := outer.reenter(ctx, false, false); err != nil {
				return nil, errorf("%s %q: %w", name, r, err)
			}
		}
	}
	s := &several{locker: l, names: names, config: lc, began: time.Now()}
	s.config.manual, s.config.maxHold, s.config.minHold = false, 0, 0 // until all are held, see settle
	inner, cancel := context.WithCancel(ctx)                          // so that no method of ctx runs in another goroutine
	defer cancel()
	done := false
	defer func() {
		if !done { // also if a method of ctx panics
			s.giveBack()
		}
	}()
	if err := get(s, inner); err != nil {
		return nil, err
	}
	m := newMultiLease(ctx, s.kept)
	cancel() // which may call a method of ctx
	done = true
	for _, le := range s.kept {
		le.grant.settle(&lc)
	}
	return m, nil
}

// several is a call of LockAll or TryLockAll under way.
type several struct {
	locker *Locker
	names  []string   // sorted
	config lockConfig // of the parts, until all are held
	began  time.Time
	kept   []*Lease // on the first of the names, in order
}

// once makes one attempt for each resource. As in tryOnce, it waits for masters in quarantine.
func (s *several) once(ctx context.Context) error {
	for doubts := 0; ; {
		f := s.try(ctx, s.names)
		if f == nil {
			return s.refresh(ctx)
		}
		missing := s.names[len(s.kept)]
		s.giveBack()
		if err := s.locker.groupOf(missing).outwait(ctx, f, s.config.votesWait-time.Since(s.began), &doubts); err != nil {
			s.locker.events.gaveUp(lineKey{resource: missing}, s.began, err)
			return err
		}
	}
}

// wait waits until all resources are held.
//
// Source: ALGORITHM section 12.
func (s *several) wait(ctx context.Context) error {
	for {
		rest := s.names[len(s.kept):]
		if len(rest) == 0 {
			err := s.refresh(ctx)
			if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
				return err
			}
			s.giveBack() // and begin again
			continue
		}
		if free := s.untilOccupied(rest); len(free) > 1 {
			if s.try(ctx, free) == nil {
				continue
			}
			rest = s.names[len(s.kept):]
		}
		if err := s.waitForOne(ctx, rest[0]); err != nil {
			return err
		}
	}
}

// untilOccupied returns the names before the first name that this process has or waits for. An attempt
// for that name would be in vain.
func (s *several) untilOccupied(names []string) []string {
	for i, r := range names {
		if s.locker.groupOf(r).waitlines.occupied(lineKey{resource: r}) {
			return names[:i]
		}
	}
	return names
}

// try makes an attempt for each of some resources, at the same time. It keeps those before the first
// failure, which it returns, and gives the others back.
func (s *several) try(ctx context.Context, names []string) (first *failure) {
	byGroup := make(map[*pool][]string)
	for _, r := range names {
		p := s.locker.groupOf(r)
		byGroup[p] = append(byGroup[p], r)
	}
	pools := slices.Collect(maps.Keys(byGroup))
	grants, failures := make([]*grant, len(names)), make([]*failure, len(names))
	inParallel(len(pools), func(k int) {
		its := byGroup[pools[k]]
		g, f := s.locker.ready(ctx, its[0]).attemptAll(ctx, its, s.config)
		for i, r := range its {
			at, _ := slices.BinarySearch(names, r)
			grants[at], failures[at] = g[i], f[i]
		}
	})
	for i, g := range grants {
		switch {
		case first == nil && failures[i] != nil:
			first = failures[i]
		case g == nil:
		case first == nil:
			s.kept = append(s.kept, g.pool.grantLease(ctx, g, nil, s.began))
		default:
			g.sendReleases(g.pool.now(), false)
		}
	}
	return first
}

// waitForOne waits for a resource as Lock does. If meanwhile a lease ends that is kept, it gives
// all back, and the call begins again.
func (s *several) waitForOne(ctx context.Context, name string) error {
	whileKept, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, le := range s.kept {
		defer context.AfterFunc(le.Context(), func() { cancel(errKeptLost) })()
	}
	le, err := s.locker.ready(whileKept, name).waitInLine(whileKept, name, s.config, time.Now())
	switch {
	case err == nil:
		s.kept = append(s.kept, le)
		return nil
	case ctx.Err() == nil && context.Cause(whileKept) == errKeptLost && !errors.Is(err, ErrClosed):
		s.giveBack()
		return nil
	}
	s.locker.events.gaveUp(lineKey{resource: name}, s.began, err)
	return err
}

var errKeptLost = errors.New("a resource that was held already is lost")

// refresh makes sure that what is held has enough validity left, and extends it if it has not: the
// first resources may have waited for the last one.
func (s *several) refresh(ctx context.Context) error {
	errs := make([]error, len(s.kept))
	inParallel(len(s.kept), func(i int) {
		if le := s.kept[i]; le.Validity() < le.grant.minValidity() {
			errs[i] = le.grant.extend(ctx, le, 0)
		}
	})
	for i, err := range errs {
		if err == nil {
			err = s.kept[i].Err()
		}
		if err != nil {
			return errorf("lock %q: %w: %w", s.names[i], ErrNotAcquired, err)
		}
	}
	return nil
}

// giveBack unlocks what is held. It does not wait for the masters' answers.
func (s *several) giveBack() {
	for _, le := range s.kept {
		_, _ = le.grant.pool.unlock(le)
	}
	s.kept = nil
}

// settle gives a part of a lease on several resources the options that count from when all are held.
func (g *grant) settle(lc *lockConfig) {
	unlock := g.lockOptions()
	g.manual, g.maxHold, g.minHold = lc.manual, lc.maxHold, lc.minHold
	for _, h := range g.handles {
		h.since = time.Now()
	}
	if g.maxHold > 0 {
		g.hand.since = g.pool.now()
		g.limits.deadline.Store(int64(min(g.limits.uncapped, g.holdEnd())))
	}
	unlock()
	g.pool.renewer.update(g)
}

// inParallel calls f with 0 to n-1, at the same time, and returns when all calls have.
func inParallel(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { f(i) })
	}
	calls.Wait()
}
