package semaphore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
)

// wait waits for n permits. It begins anew if the number of permits changes, or if something that it
// has already is lost.
func (s *Semaphore) wait(ctx context.Context, n int) ([]*redlock.Lease, error) {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}()
	for {
		if err := s.check(ctx, n); err != nil {
			return nil, err
		}
		var got []*redlock.Lease
		var err error
		if n == 1 {
			got, err = s.any(ctx, n)
		} else {
			got, err = s.together(ctx, n)
		}
		if err == nil || ctx.Err() != nil || !errors.Is(err, redlock.ErrLost) && !errors.Is(err, errResized) {
			return got, err
		}
	}
}

// together waits for n permits as the only caller that may keep some while it waits for the others.
func (s *Semaphore) together(ctx context.Context, n int) ([]*redlock.Lease, error) {
	terms := s.presentTerms()
	turn, err := s.locker.Lock(ctx, s.turn(), terms.Part()...)
	if err != nil {
		return nil, err
	}
	defer door.GiveBack(turn)
	inner, cancel := terms.Keep(ctx, turn)
	defer cancel()
	got, err := s.any(inner, n)
	if err != nil && ctx.Err() == nil && inner.Err() != nil {
		err = s.refused(context.Cause(inner))
	}
	return got, err
}

// errResized ends a wait: the number of permits has changed.
var errResized = errors.New("the number of permits has changed")

// any waits for n permits at the same time. It fails if one of those that it has already is lost.
func (s *Semaphore) any(ctx context.Context, n int) ([]*redlock.Lease, error) {
	s.mu.Lock()
	permits, opts, terms, resized := s.permits, s.opts, s.terms, s.resized
	s.mu.Unlock()
	if n > 1 {
		opts = terms.Part()
	}
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(resized, func() { end(errResized) })()
	got, errs := make([]*redlock.Lease, n), make([]error, n)
	var waits sync.WaitGroup
	one := func(i int) {
		if got[i], errs[i] = inside.Of(s.locker).LockAny(inner, s.name, permits, opts...); errs[i] != nil {
			end(errs[i])
			return
		}
		s.take(s.permit(got[i]))
		if n > 1 {
			kept, cancel := terms.Keep(inner, got[i])
			context.AfterFunc(kept, func() {
				end(context.Cause(kept))
				cancel()
			})
		}
	}
	for i := range n - 1 {
		waits.Go(func() { one(i) })
	}
	one(n - 1)
	waits.Wait()
	err := context.Cause(inner) // what ended the wait
	if err == nil {
		return got, nil
	}
	for _, le := range got {
		if le != nil {
			s.put(true, s.permit(le))
			door.GiveBack(le)
		}
	}
	if errors.Is(err, errResized) {
		return nil, errResized
	}
	for _, why := range errs {
		if ctx.Err() != nil && why != nil {
			err = why // has the reason for which a permit was not granted
		}
	}
	s.compare(err)
	return nil, fmt.Errorf("semaphore %q: %w", s.name, err)
}
