package redlock

import (
	"context"
	"fmt"
	"slices"

	"github.com/d0720281/redlock/internal/wire"
)

// MaxPermits is the largest number of permits of a [Semaphore].
const MaxPermits = wire.MaxPermits

// Semaphore limits how many permits are held at the same time, over all processes. [Locker.Semaphore]
// makes one. A Semaphore is safe for concurrent use, and needs no closing.
//
// Permit i of K is slot i: an exclusive lease of its own, with its own fencing token. While a permit is
// held, no other holder has its slot, so the number of a slot can serve as a small unique number. Tokens
// rise for each slot. A store that refuses late writes keeps the largest token of each slot, and checks
// the slot and the token of a write together: tokens of different slots cannot be compared.
//
// All clients should give a semaphore the same number of permits. If the numbers differ, at most as many
// permits as the largest number are held, and [Observer.PermitsDiffer] and the log tell that, once for
// each semaphore. To raise the number, deploy the new number. To lower it, do the same: it is in force when
// the last client with the old number is gone.
//
// A semaphore and a lock of the same name have nothing to do with each other.
//
// Source: [ALGORITHM section 14].
//
// [ALGORITHM section 14]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#14-permits
type Semaphore struct {
	locker  *Locker
	name    string
	permits int
}

// Semaphore returns the semaphore of a name, with a number of permits from 1 to [MaxPermits]. It asks no
// master. If an argument is wrong, the methods of the result say so.
func (l *Locker) Semaphore(name string, permits int) *Semaphore { return &Semaphore{l, name, permits} }

// Acquire returns one lease on n permits, 1 to the number of the semaphore's permits and at most
// [MaxResources]. It gets all of them or none. It waits until so many are free or ctx ends, as
// [Locker.Lock] does. Processes are served in the order in which they came: a process that wants few
// permits does not overtake a process that waits for many.
//
// The lease has one validity and one context, which end when the first permit is lost. [MultiLease.Parts]
// has the slots and the tokens. The options are those of Lock, for each permit; with [WithReentry] the
// error matches [ErrConfig]. If ctx descends from a lease on permits of the same semaphore, the error
// matches [ErrReentry]: acquire all permits at once.
//
// Errors are those of Lock. [ErrTaken] says that fewer permits are free. After an error no permit is held.
//
// Masters must let the user MGET; without that right the error matches [ErrPermission]. Without the right to
// ZRANGE there is no order among processes.
//
// Source: [ALGORITHM section 14].
//
// [ALGORITHM section 14]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#14-permits
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...LockOption) (*MultiLease, error) {
	return s.acquire(ctx, "Acquire", n, opts, (*pool).waitFor)
}

// TryAcquire is [Semaphore.Acquire] with one attempt, as [Locker.TryLock] makes it. It is refused while
// a process waits for permits of the semaphore. For a moment after an Unlock by another Locker it can be
// refused, too, if the two Lockers ask different masters to choose: while one of them has not yet reached
// all masters, for example.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...LockOption) (*MultiLease, error) {
	return s.acquire(ctx, "TryAcquire", n, opts, (*pool).tryOnce)
}

// Do is [Locker.Do] with a lease of [Semaphore.Acquire].
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context, lease *MultiLease) error, opts ...LockOption) error {
	if fn == nil {
		return configErrorf("Do: fn is nil")
	}
	lease, err := s.Acquire(ctx, n, opts...)
	if err != nil {
		return err
	}
	return lease.during(ctx, fn)
}

// check returns an error if the semaphore cannot be asked for n permits.
func (s *Semaphore) check(ctx context.Context, name string, n int) error {
	if err := s.locker.conf.checkCall(ctx, name, s.name); err != nil {
		return err
	}
	switch most := min(s.permits, MaxResources); {
	case s.permits < 1 || s.permits > MaxPermits:
		return configErrorf("%s: the semaphore has %d permits: must be from 1 to %d", name, s.permits, MaxPermits)
	case n < 1 || n > most:
		return configErrorf("%s: %d permits: must be from 1 to %d", name, n, most)
	}
	return nil
}

func (s *Semaphore) acquire(ctx context.Context, name string, n int, opts []LockOption, try tryFunc) (*MultiLease, error) {
	if err := s.check(ctx, name, n); err != nil {
		return nil, err
	}
	l := s.locker
	lc, err := l.conf.forCall(opts)
	if err != nil {
		return nil, err
	}
	if lc.reentry && !l.conf.reentry {
		return nil, configErrorf("%s: WithReentry is for single resources", name)
	}
	lc.reentry, lc.permits = false, wire.Permits{Count: uint16(n), Of: uint16(s.permits)} // which check has bounded
	end := l.conf.trace(ctx, name, s.name)
	m, err := s.admit(ctx, name, lc, try)
	l.endedAll(end, m, err)
	return m, err
}

// admit rejects calls on a closed Locker, with an ended context, or that could deadlock on re-entry.
// Otherwise it calls try, and makes the lease.
func (s *Semaphore) admit(ctx context.Context, name string, lc lockConfig, try tryFunc) (*MultiLease, error) {
	l := s.locker
	if !l.calls.enter() {
		return nil, ErrClosed
	}
	defer l.calls.leave()
	if closed(ctx.Done()) {
		return nil, endedBy(ctx)
	}
	base := wire.Base(s.name)
	p := l.ready(ctx, base)
	if p.holdsIn(ctx, base) {
		return nil, errorf("%s %q: %w", name, s.name, ErrReentry)
	}
	inner, cancel := context.WithCancel(ctx) // so that no method of ctx runs in another goroutine
	defer cancel()
	var parts []*Lease
	done := false
	defer func() {
		for _, le := range parts { // also if a method of ctx panics
			if !done {
				_, _ = p.unlock(le)
			}
		}
	}()
	first, err := try(p, inner, base, lc)
	if err != nil {
		return nil, err
	}
	parts = append(parts, first)
	for _, g := range first.grant.choice.takeOthers() {
		parts = append(parts, p.grantLease(ctx, g, nil, first.since))
	}
	slices.SortFunc(parts, func(a, b *Lease) int { return a.slot() - b.slot() })
	m := newMultiLease(ctx, parts)
	cancel()
	done = true
	return m, nil
}

// SemaphoreInspection is the result of [Semaphore.Inspect].
type SemaphoreInspection struct {
	Name    string
	Permits int          // of the semaphore
	Slots   []Inspection // of slots 1 to Permits, and behind them those that a client with more permits has
	Free    int          // of slots 1 to Permits: those whose verdict is FREE
}

// slotsBehind is how many slots behind the last one Inspect looks at together.
const slotsBehind = 8

// Inspect asks all masters which holders have the permits, as [Locker.Inspect] does for a resource. If the
// verdict of a slot is [VerdictUnknown], the error is that of Inspect.
//
// Source: [ALGORITHM section 14].
//
// [ALGORITHM section 14]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#14-permits
func (s *Semaphore) Inspect(ctx context.Context) (SemaphoreInspection, error) {
	all := SemaphoreInspection{Name: s.name, Permits: s.permits}
	if err := s.check(ctx, "Inspect", 1); err != nil {
		return all, err
	}
	l := s.locker
	if !l.calls.enter() {
		return all, ErrClosed
	}
	defer l.calls.leave()
	var unknown error
	for looked, more := 0, true; more && looked < MaxPermits; {
		some := min(slotsBehind, MaxPermits-looked)
		if left := s.permits - looked; left > 0 {
			some = min(inspectedAtOnce, left)
		}
		found, errs := make([]Inspection, some), make([]error, some)
		inParallel(some, func(i int) {
			found[i], errs[i] = l.look(ctx, wire.Slot(wire.Base(s.name), looked+i+1))
		})
		looked += some
		more = looked <= s.permits
		for i, in := range found {
			if in.Slot > s.permits && !in.exists() {
				continue
			}
			more = more || in.Slot > s.permits
			if in.Slot <= s.permits && in.Verdict == VerdictFree {
				all.Free++
			}
			if unknown == nil {
				unknown = errs[i]
			}
			all.Slots = append(all.Slots, in)
		}
	}
	return all, unknown
}

// Break takes one permit away from its holder, as [Locker.Break] does. The lease that the permit belongs
// to is over then, with all its permits. A slot is from 1 to [MaxPermits].
func (s *Semaphore) Break(ctx context.Context, slot int) (Inspection, error) {
	in := Inspection{Resource: s.name, Slot: slot}
	if err := s.check(ctx, "Break", 1); err != nil {
		return in, err
	}
	if slot < 1 || slot > MaxPermits {
		return in, configErrorf("Break: slot %d: must be from 1 to %d", slot, MaxPermits)
	}
	if !s.locker.calls.enter() {
		return in, ErrClosed
	}
	defer s.locker.calls.leave()
	return s.locker.take(ctx, wire.Slot(wire.Base(s.name), slot))
}

// slot returns the slot of a permit, and 0 for a lease of a resource.
func (le *Lease) slot() int {
	_, slot := le.grant.named()
	return slot
}

// holdsIn reports whether ctx descends from a lease on a permit that still stands.
func (p *pool) holdsIn(ctx context.Context, base string) bool {
	c, ok := ctx.Value(p).(*leaseContext)
	for ; ok; c, ok = c.Context.Value(p).(*leaseContext) {
		if g := c.lease.grant; g.choice != nil && g.choice.base == base && c.lease.Err() == nil {
			return true
		}
	}
	return false
}

// String describes the semaphore.
func (s *Semaphore) String() string {
	return fmt.Sprintf("semaphore %q of %d permits", s.name, s.permits)
}
