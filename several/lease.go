package several

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
)

// Lease is one lease that consists of leases on single resources, its parts. It is lost as soon as
// one part is lost. The library then renews the other parts for at most the validity that they
// have, so that work which has not noticed yet is alone, and gives them back after that, or earlier
// by Unlock.
//
// A part can be unlocked or detached by itself. The lease goes on with the other parts, and ends
// with the last one. Methods of a nil or zero Lease panic.
type Lease struct {
	*ending
	parts []*redlock.Lease // sorted by resource
}

// ending ends a Lease. It has copies of the parts, as it lives until they end: the garbage collector
// can tell that the caller has dropped the parts themselves, which the log reports.
type ending struct {
	copies []*redlock.Lease
	left   atomic.Int32 // parts that were not given back
	ctx    *heldContext
	end    context.CancelCauseFunc

	grace   time.Duration
	kept    []*redlock.Lease                 // holds on the parts until the end of WithMinHold
	clock   interface{ Now() time.Duration } // of WithMaxHold; nil if there is none
	holdEnd time.Duration                    // by that clock
}

// join makes one lease of parts. ctx is the context of the call that got them: the Context of the lease
// has its values.
func join(ctx context.Context, e *ending, parts []*redlock.Lease) *Lease {
	l := &Lease{ending: e, parts: slices.Clone(parts)}
	slices.SortFunc(l.parts, func(a, b *redlock.Lease) int { return strings.Compare(a.Resource(), b.Resource()) })
	l.left.Store(int32(len(parts)))
	for _, part := range l.parts {
		same := *part
		l.copies = append(l.copies, &same)
	}
	values, over := e.under(context.WithoutCancel(ctx))
	over()
	ctx, l.end = context.WithCancelCause(values)
	l.ctx = &heldContext{ctx, l.ending, l.end}
	for _, part := range l.parts {
		e, ctx, resource := l.ending, part.Context(), part.Resource()
		context.AfterFunc(ctx, func() { e.partEnded(resource, context.Cause(ctx)) })
	}
	return l
}

// heldContext is a context of a lease.
type heldContext struct {
	context.Context
	lease *ending
	end   context.CancelCauseFunc // ends Context
}

// Err ends the context if that is due by the clock, as that of a single lease does.
func (c *heldContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	_, over := c.lease.overdue()
	for _, part := range c.lease.copies {
		if ctx := part.Context(); over == nil && ctx.Err() != nil && !givenBack(context.Cause(ctx)) {
			over = fmt.Errorf("resource %q: %w", part.Resource(), context.Cause(ctx))
		}
	}
	if over != nil {
		c.lease.lost(over)
		c.end(over)
	}
	return c.Context.Err()
}

// partEnded ends the lease if the part was lost or was the last one.
func (e *ending) partEnded(resource string, cause error) {
	switch {
	case !givenBack(cause):
		e.lost(fmt.Errorf("resource %q: %w", resource, cause))
	case e.left.Add(-1) == 0:
		e.endLast(cause)
	}
}

// endLast ends the lease when all parts were given back, the last one with cause. If one was detached, its keys are still
// there, and the lease is detached.
func (e *ending) endLast(cause error) {
	for _, part := range e.copies {
		if errors.Is(part.Err(), redlock.ErrDetached) {
			cause = redlock.ErrDetached
		}
	}
	e.end(cause)
}

// lost ends the lease, and gives the parts back when they would have ended without renewal, for the
// holder and for its last messages.
func (e *ending) lost(cause error) {
	if e.ctx.Context.Err() != nil {
		return
	}
	e.end(cause)
	var longest time.Duration
	for _, part := range e.copies {
		longest = max(longest, part.Validity())
	}
	time.AfterFunc(longest+e.grace, func() { door.GiveBack(standing(slices.Concat(e.copies, e.kept))...) })
}

// overdue returns an error after the end of WithMaxHold, and how long it is until then.
func (e *ending) overdue() (left time.Duration, err error) {
	if e.clock == nil {
		return math.MaxInt64, nil
	}
	if left = e.holdEnd - e.clock.Now(); left <= 0 {
		err = fmt.Errorf("%w: %w", redlock.ErrLost, redlock.ErrMaxHold)
	}
	return left, err
}

// watch loses the lease at the end of WithMaxHold. It looks at the clock each second: timers stand
// still while the machine is suspended.
func (e *ending) watch() {
	left, err := e.overdue()
	switch {
	case e.ctx.Err() != nil:
	case err != nil:
		e.lost(err)
	default:
		time.AfterFunc(min(left, time.Second), e.watch)
	}
}

// givenBack reports whether the holder has ended a lease by itself.
func givenBack(err error) bool {
	return !errors.Is(err, redlock.ErrLost) && (errors.Is(err, redlock.ErrReleased) || errors.Is(err, redlock.ErrDetached))
}

// standing returns the parts that were not given back.
func standing(parts []*redlock.Lease) (stand []*redlock.Lease) {
	for _, part := range parts {
		if !givenBack(part.Err()) {
			stand = append(stand, part)
		}
	}
	return stand
}

// under returns ctx with the values of the parts' contexts: a lock within it of a resource that one of
// the parts has is refused as re-entry. Close keeps the parts until over is called.
func (e *ending) under(ctx context.Context) (values context.Context, over func()) {
	stops := make([]context.CancelFunc, len(e.copies))
	for i, le := range e.copies {
		ctx, stops[i] = le.Within(ctx)
		ctx = context.WithoutCancel(ctx)
	}
	if len(e.copies) > 1 {
		ctx = context.WithValue(ctx, door.LeaseKey{}, e) // redlock.LeaseFrom must not choose a part
	}
	return context.WithValue(ctx, wholeKey{}, e), func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// wholeKey is the key of the innermost lease of the package among the values of a context.
type wholeKey struct{}

// LeaseFrom returns the innermost lease of this package that protects the work of ctx, as
// [redlock.LeaseFrom] does for a single lease. [Lease.Part] then has the fencing token of the resource
// that the caller writes. A lease of package semaphore is one.
func LeaseFrom(ctx context.Context) (*Lease, bool) {
	e, ok := ctx.Value(wholeKey{}).(*ending)
	if !ok {
		return nil, false
	}
	return &Lease{ending: e, parts: e.copies}, true
}

// Parts returns the leases on the single resources, sorted by name. Each has a fencing token of its
// own.
func (l *Lease) Parts() []*redlock.Lease { return slices.Clone(l.made().parts) }

// Part returns the lease on a resource, or nil if the lease has no such part.
func (l *Lease) Part(resource string) *redlock.Lease {
	i := slices.IndexFunc(l.made().parts, func(part *redlock.Lease) bool { return part.Resource() == resource })
	if i < 0 {
		return nil
	}
	return l.parts[i]
}

// Context returns a context that ends with the lease. Its cause matches [redlock.ErrLost] and names
// the resource that was lost, or it matches [redlock.ErrReleased] or [redlock.ErrDetached].
func (l *Lease) Context() context.Context { return l.made().ctx }

// Within returns a context for work under the lease. It ends with ctx, with the lease, or when the
// returned function is called. [redlock.Locker.Close] ends it, too, and keeps the parts until that call, for
// 10 s at most. Within panics if ctx is nil.
func (l *Lease) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel, over := l.made().within(ctx)
	return inner, func() { cancel(); over() }
}

// within is Within. Close keeps the parts until over is called.
func (l *Lease) within(ctx context.Context) (inside context.Context, end context.CancelFunc, over func()) {
	inner, cancel := context.WithCancelCause(ctx)
	leaseCtx := l.ctx
	stop := context.AfterFunc(leaseCtx, func() { cancel(context.Cause(leaseCtx)) })
	if l.ctx.Err() != nil {
		cancel(context.Cause(l.ctx))
	}
	values, over := l.under(context.WithoutCancel(ctx))
	return &valued{&heldContext{inner, l.ending, cancel}, values}, func() { stop(); cancel(nil) }, over
}

// valued is a context with the values of another one, which has those of the context, too.
type valued struct {
	context.Context
	values context.Context
}

func (v *valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key) // what package context itself looks for
}

// Validity returns the shortest validity of the parts that were not given back, or the rest of
// [redlock.WithMaxHold] if that is less. It is at most 0 if the lease is over.
func (l *Lease) Validity() time.Duration {
	left, _ := l.state()
	return left
}

// Err returns nil while the lease stands, and then the reason for its end. It looks at the clock, as
// [redlock.Lease.Err] does.
func (l *Lease) Err() error {
	_, err := l.state()
	return err
}

// made returns the Lease, and panics if no call has returned it.
func (l *Lease) made() *Lease {
	if l == nil || l.ending == nil {
		panic("several: no call has returned this Lease: look at the error of the call before the Lease")
	}
	return l
}

func (l *Lease) state() (left time.Duration, err error) {
	if l.made().ctx.Err() != nil {
		return 0, context.Cause(l.ctx)
	}
	if left, err = l.overdue(); err != nil {
		return 0, err
	}
	stand := 0
	for _, part := range l.parts {
		valid, err := part.Validity(), part.Err() // in this order: it may be unlocked meanwhile
		switch {
		case givenBack(err):
			continue
		case err != nil:
			return 0, fmt.Errorf("resource %q: %w", part.Resource(), err)
		}
		left = min(left, valid)
		stand++
	}
	if stand == 0 { // the context is about to end
		l.endLast(redlock.ErrReleased)
		return 0, context.Cause(l.ctx)
	}
	return left, nil
}

// Extend extends the parts that were not given back, all at the same time. If the lease is over,
// the error is that of [Lease.Err]. Any other error joins those of the parts, see
// [redlock.Lease.Extend]: the other parts are extended, and the lease stands until one part ends.
func (l *Lease) Extend(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	return errors.Join(each(standing(l.parts), func(part *redlock.Lease) error { return part.Extend(ctx) })...)
}

// Unlock ends the lease, and unlocks its parts at the same time, as [redlock.Lease.Unlock] does.
// Parts that were given back before are left alone; if all were, the error matches
// [redlock.ErrReleased] or [redlock.ErrDetached]. If the lease was lost, the error is that of the lost
// parts, and matches [redlock.ErrNotHeld] and [redlock.ErrLost]. After an error it may be called again. A nil ctx
// is refused, with [redlock.ErrConfig], and ends nothing.
func (l *Lease) Unlock(ctx context.Context) error {
	l.made()
	if ctx == nil {
		return configErrorf("Unlock: ctx is nil")
	}
	over := l.Err()
	lost := errors.Is(over, redlock.ErrLost)
	if lost {
		l.end(over)
		door.GiveBack(l.kept...)
	}
	l.end(redlock.ErrReleased) // before a part can be handed over to the next holder
	errs := each(l.parts, func(part *redlock.Lease) error { return part.Unlock(ctx) })
	others := slices.DeleteFunc(slices.Clone(errs), givenBack) // nil for each part that was unlocked
	switch {
	case lost: // that the release of another part was not confirmed must not hide the loss, from Reason as well
		errs = slices.DeleteFunc(errs, func(err error) bool { return !errors.Is(err, redlock.ErrLost) })
		if len(errs) == 0 { // no part was lost, as at the end of WithMaxHold
			errs = append(errs, fmt.Errorf("%w: %w", redlock.ErrNotHeld, over))
		}
	case len(others) > 0:
		errs = others
	}
	return errors.Join(errs...)
}

// during calls fn while the lease is held, and unlocks the lease when fn returns or panics. It
// returns fn's error joined with that of Unlock, unless fn has given the lease back.
func (l *Lease) during(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (err error) {
	inner, cancel, over := l.within(ctx)
	defer over() // when the parts were given back
	defer func() {
		unlockErr := l.Unlock(ctx)
		if unlockErr != nil && (!givenBack(unlockErr) || errors.Is(unlockErr, redlock.ErrClosed)) {
			err = errors.Join(err, unlockErr)
		}
	}()
	defer cancel()
	return fn(inner, l)
}

// each calls do for leases at the same time, and returns the error of each.
func each(parts []*redlock.Lease, do func(part *redlock.Lease) error) []error {
	errs := make([]error, len(parts))
	inParallel(len(parts), func(i int) {
		if err := do(parts[i]); err != nil {
			errs[i] = fmt.Errorf("resource %q: %w", parts[i].Resource(), err)
		}
	})
	return errs
}
