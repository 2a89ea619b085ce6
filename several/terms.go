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
)

// Terms are the options of a lease that consists of parts, as of [Lock], [TryLock] and [Do]. A
// package that locks the parts in another order uses them, too. It locks each part with the options
// of [Terms.Part], calls [Terms.Keep] for the parts that it has while it waits for the others, and
// makes the lease by [Terms.Join]. From then on, and not before, the options count, for the whole:
//
//   - [redlock.WithTTL], [redlock.WithGrace] and [redlock.WithOwner] hold for each part, from the start.
//   - [redlock.WithMaxHold] ends the lease. A part that was handed over has no bound of its own.
//   - [redlock.WithMinHold] keeps each part taken, also if it is unlocked by itself, and until then it
//     cannot be downgraded. A part that was given back before the call had all of them is free at once.
//   - [redlock.WithoutRenewal]: while the call waits it extends what it has.
//
// However long the call has waited, at least half of the TTL is left then.
type Terms struct {
	Settings redlock.Settings

	locker Locker
	part   []redlock.LockOption
}

// NewTerms returns the terms of some options. It asks no master. If an option cannot work, the error
// matches [redlock.ErrConfig]. [redlock.WithReentry] cannot: it is for single resources.
func NewTerms(l Locker, opts ...redlock.LockOption) (*Terms, error) {
	if !door.Made(l) {
		return nil, configErrorf("the Locker is nil, or was not made by New")
	}
	settings, err := l.Settings(opts...)
	switch {
	case err != nil:
		return nil, err
	case settings.Reentry:
		return nil, configErrorf("WithReentry is for single resources")
	}
	t := &Terms{Settings: settings, locker: l, part: slices.Clone(opts)}
	if settings.MaxHold > 0 {
		t.part = append(t.part, redlock.WithMaxHold(math.MaxInt64))
	}
	if settings.MinHold > 0 {
		t.part = append(t.part, redlock.WithMinHold(0))
	}
	return t, nil
}

// Part returns the options for one part.
func (t *Terms) Part() []redlock.LockOption { return slices.Clone(t.part) }

// Keep returns a context for the wait for other parts. It ends with ctx, with the lease, or when the
// returned function is called. Until then the lease is extended if the library does not renew it.
func (t *Terms) Keep(ctx context.Context, lease *redlock.Lease) (context.Context, context.CancelFunc) {
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
// An error matches [redlock.ErrNotAcquired]. It also matches [redlock.ErrLost] if a part was lost
// meanwhile, and [redlock.ErrNoQuorum] if the masters did not extend it in time. The parts are then
// as they were: the caller gives them back.
func (t *Terms) Join(ctx context.Context, parts ...*redlock.Lease) (*Lease, error) {
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

// hold returns a handle of each part, which keeps it taken when its holder has unlocked it.
func (t *Terms) hold(parts []*redlock.Lease) (kept []*redlock.Lease, err error) {
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
