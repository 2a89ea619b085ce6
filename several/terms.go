package several

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
)

// terms are the options of a lease that consists of parts. Package semaphore, which locks the parts in
// another order, uses them by door.Terms. It locks each part with the options of Part, calls Keep for
// the parts that it has while it waits for the others, and makes the lease by Join.
type terms struct {
	Settings door.Settings

	locker *redlock.Locker
	part   []redlock.LockOption
}

func init() {
	door.Terms = func(l, opts any) (any, error) { return newTerms(l.(*redlock.Locker), opts.([]redlock.LockOption)...) }
}

// newTerms returns the terms of some options. It asks no master. If an option cannot work, the error
// matches redlock.ErrConfig. WithReentry cannot: it is for single resources.
func newTerms(l *redlock.Locker, opts ...redlock.LockOption) (*terms, error) {
	if !door.Made(l) {
		return nil, configErrorf("the Locker is nil, or was not made by New")
	}
	settings, err := inside.Of(l).Settings(opts...)
	switch {
	case err != nil:
		return nil, err
	case settings.Reentry:
		return nil, configErrorf("WithReentry is for single resources")
	}
	t := &terms{Settings: settings, locker: l, part: slices.Clone(opts)}
	if settings.MaxHold > 0 {
		t.part = append(t.part, redlock.WithMaxHold(math.MaxInt64))
	}
	if settings.MinHold > 0 {
		t.part = append(t.part, redlock.WithMinHold(0))
	}
	return t, nil
}

// Part returns the options for one part.
func (t *terms) Part() []redlock.LockOption { return slices.Clone(t.part) }

// Keep returns a context for the wait for other parts. It ends with ctx, with the lease, or when the
// returned function is called. Until then the lease is extended if the library does not renew it.
func (t *terms) Keep(ctx context.Context, lease *redlock.Lease) (context.Context, context.CancelFunc) {
	inner, cancel := lease.Within(ctx)
	if !t.Settings.Renewed {
		go func() {
			defer cancel() // ctx has ended, and Close must not wait for work under the lease
			tick := time.NewTicker(t.Settings.TTL / 4)
			defer tick.Stop()
			for inner.Err() == nil {
				select {
				case <-tick.C:
					_ = lease.Extend(inner) // after an error the lease stands for the rest of its validity
				case <-inner.Done():
				}
			}
		}()
	}
	return inner, cancel
}

// Join makes one lease of parts that were locked with the options of Part. ctx is the context of the
// call that got them: the Context of the lease has its values. Join extends parts of which less than
// half of the TTL is left.
//
// An error matches redlock.ErrNotAcquired. It also matches ErrLost if a part was lost
// meanwhile, and ErrNoQuorum if the masters did not extend it in time. The parts are then
// as they were: the caller gives them back.
func (t *terms) Join(ctx context.Context, parts ...*redlock.Lease) (*Lease, error) {
	err := errors.Join(each(parts, func(part *redlock.Lease) error {
		if part.Validity() >= t.Settings.TTL/2 {
			return nil
		}
		return part.Extend(ctx)
	})...)
	for _, part := range parts {
		if left := part.Validity(); err == nil && left < t.Settings.TTL/2 {
			err = fmt.Errorf("resource %q: %w, only %v of the validity was left", part.Resource(), redlock.ErrNoQuorum, left)
		}
	}
	var kept []*redlock.Lease
	if err == nil && t.Settings.MinHold > 0 {
		kept, err = t.hold(parts)
	}
	if err != nil {
		door.GiveBack(kept...)
		return nil, fmt.Errorf("several: %w: %w", redlock.ErrNotAcquired, err)
	}
	e := &ending{grace: t.Settings.Grace, kept: kept}
	if len(kept) > 0 {
		time.AfterFunc(t.Settings.MinHold, func() { door.GiveBack(kept...) })
	}
	lease := join(ctx, e, parts)
	if t.Settings.MaxHold > 0 {
		e.clock, e.holdEnd = t.Settings.Clock, t.Settings.Clock.Now()+t.Settings.MaxHold
		e.watch()
	}
	return lease, nil
}

// Whole makes one lease of parts to which no options of a whole apply. It panics if ctx or a part is nil.
func (t *terms) Whole(ctx context.Context, parts ...*redlock.Lease) *Lease {
	return join(ctx, new(ending), parts)
}

// During calls fn as Do does.
func (t *terms) During(ctx context.Context, l *Lease, fn func(ctx context.Context, lease *Lease) error) error {
	return l.during(ctx, fn)
}

// hold returns a hold on each part, which keeps it taken when its holder has unlocked it.
func (t *terms) hold(parts []*redlock.Lease) (kept []*redlock.Lease, err error) {
	for _, part := range parts {
		opts := []redlock.LockOption{redlock.WithReentry()}
		if part.Shared() {
			opts = append(opts, redlock.Shared())
		}
		same, err := t.locker.TryLock(part.Context(), part.Resource(), opts...)
		if err != nil {
			return kept, err
		}
		kept = append(kept, same)
	}
	return kept, nil
}
