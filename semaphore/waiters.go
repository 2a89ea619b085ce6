package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/d0720281/redlock"
)

// A process waits for as many permits as it has callers in line, and for at most atOnce: each
// permit costs messages, and each one too many is kept from other processes for a moment. The
// holders of these permits may keep them for long while others become free, so a first caller that
// has got none for a while waits for one more, then for three more, and so on, until the process
// waits for all. Of a semaphore with few permits it waits for all from the start, which keeps the
// order of arrival.
const (
	atOnce = 32
	few    = 8
	widen  = 250 * time.Millisecond
)

// waiters wait for permits, two goroutines for each, while callers are in line. So the process
// keeps its place in the queue of each permit, and its callers get permits of this process by
// hand-over.
type waiters struct {
	granted chan grant
	ctx     context.Context
	end     context.CancelFunc
	opts    []redlock.LockOption
	permits []int // in the order in which to wait for them: first those that this process uses
	running int   // permits that are waited for
	more    int   // than there are callers
}

// grant is what a waiter has got.
type grant struct {
	lease *redlock.Lease
	err   error
}

// join puts a caller in line. It leaves by calling the result; the last one ends the waiters.
func (s *Semaphore) join() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting--; s.waiting == 0 {
			s.stopLocked()
		}
	}
}

// wait waits in line, and then for n permits.
func (s *Semaphore) wait(ctx context.Context, n int) ([]*redlock.Lease, error) {
	defer s.join()()
	select {
	case s.line <- struct{}{}:
		defer func() { <-s.line }()
	case <-ctx.Done():
		return nil, s.gaveUp(ctx)
	}
	for {
		got, err := s.first(ctx, n)
		if err == nil || ctx.Err() != nil || !errors.Is(err, redlock.ErrLost) {
			return got, err
		}
	}
}

// gaveUp returns the error of a caller whose context has ended.
func (s *Semaphore) gaveUp(ctx context.Context) error {
	s.mu.Lock()
	var waited []int
	if s.waiters != nil {
		waited = slices.Clone(s.waiters.permits[:s.waiters.running])
	}
	s.mu.Unlock()
	for _, permit := range waited {
		if why := s.locker.WhyWaiting(s.resource(permit + 1)); why != nil {
			return s.refused(contextError(ctx), why)
		}
	}
	return s.refused(contextError(ctx))
}

// contextError returns ctx.Err(), with the cause if that is another error.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// first gets n permits for the first caller in line. The error matches ErrLost if the turn, or a
// permit that it had already, was lost.
func (s *Semaphore) first(ctx context.Context, n int) (got []*redlock.Lease, err error) {
	inner := ctx
	if n > 1 {
		s.stop() // a caller that waits for the turn must not have a permit
		turn, err := s.locker.Lock(ctx, s.turn(), s.base...)
		if err != nil {
			return nil, err
		}
		defer giveBack(turn)
		var cancel context.CancelFunc
		inner, cancel = turn.Within(ctx)
		defer cancel()
	}
	defer func() {
		if err != nil {
			giveBack(got...)
			got = nil
			return
		}
		for _, le := range got {
			s.take(s.permit(le))
		}
	}()
	for len(got) < n {
		w, err := s.start(n)
		if err != nil {
			return got, err
		}
		select {
		case g := <-w.granted:
			if g.err != nil {
				return got, g.err
			}
			got = append(got, g.lease)
			if n > 1 {
				var cancel context.CancelFunc
				inner, cancel = g.lease.Within(inner)
				defer cancel()
			}
		case <-w.ctx.Done(): // by Resize
		case <-time.After(widen):
			s.widen(w)
		case <-inner.Done():
			if ctx.Err() != nil {
				return got, s.gaveUp(ctx)
			}
			return got, s.refused(context.Cause(inner))
		}
	}
	return got, nil
}

// start returns the waiters for a caller that wants n permits, and starts those that lack.
func (s *Semaphore) start(n int) (*waiters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.permits {
		return nil, fmt.Errorf("%w: semaphore %q: %d permits wanted, and there are only %d now", redlock.ErrConfig, s.name, n, s.permits)
	}
	w := s.waiters
	if w == nil {
		w = &waiters{granted: make(chan grant), opts: s.opts}
		w.ctx, w.end = context.WithCancel(context.Background())
		for _, p := range rand.Perm(s.permits) {
			if s.uses[p] > 0 {
				w.permits = slices.Insert(w.permits, 0, p)
			} else {
				w.permits = append(w.permits, p)
			}
		}
		s.waiters = w
	}
	used := s.permits - len(s.unused)
	want := used + max(n, min(s.waiting, atOnce)) + w.more
	if s.permits <= few {
		want = s.permits
	}
	for ; w.running < min(want, s.permits); w.running++ {
		for range 2 { // the second one is in line while the first one gives away what it got
			go s.await(w, w.permits[w.running])
		}
	}
	return w, nil
}

// widen has the waiters wait for more permits.
func (s *Semaphore) widen(w *waiters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.more = min(2*w.more+1, s.permits)
}

func (s *Semaphore) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked()
}

func (s *Semaphore) stopLocked() {
	if s.waiters != nil {
		s.waiters.end()
		s.waiters = nil
	}
}

// await waits for one permit again and again, and gives it to the first caller each time.
func (s *Semaphore) await(w *waiters, permit int) {
	for w.ctx.Err() == nil {
		var g grant
		g.lease, g.err = s.locker.Lock(w.ctx, s.resource(permit+1), w.opts...)
		select {
		case w.granted <- g:
		case <-w.ctx.Done():
			if g.lease != nil {
				giveBack(g.lease)
			}
		}
	}
}
