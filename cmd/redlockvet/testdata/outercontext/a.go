package outercontext

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

func work(ctx context.Context, n int) error { return ctx.Err() }

func traceFromContext(ctx context.Context) string { return "" }

type store struct{}

func (store) save(ctx context.Context, fence int64) error { return ctx.Err() }

func with(ctx context.Context, l *redlock.Locker, e *election.Elector, j *jobs.Locker, s *semaphore.Semaphore) error {
	return errors.Join(
		l.Do(ctx, "a", func(c context.Context, lease *redlock.Lease) error {
			return work(ctx, 1) // want `ctx is from outside of the function under the lease: the call goes on after the lease is lost; take the context of the function`
		}),
		l.Do(ctx, "a", func(_ context.Context, lease *redlock.Lease) error {
			return store{}.save(ctx, lease.Fence()) // want `ctx is from outside`
		}, redlock.WithTTL(time.Second)),
		e.Run(ctx, func(leading context.Context, _ *redlock.Lease) error {
			for range 3 {
				if err := work(ctx, 1); err != nil { // want `ctx is from outside`
					return err
				}
			}
			return work(leading, 2)
		}),
		j.Run(ctx, "a", func(c context.Context, _ *redlock.Lease) error {
			short, cancel := context.WithTimeout(ctx, time.Second) // want `ctx is from outside`
			defer cancel()
			return work(short, 1)
		}),
		j.Run(ctx, "a", func(context.Context, *redlock.Lease) error {
			return work(ctx, 1) // want `ctx is from outside`
		}, jobs.Permits(2)),
		s.Do(ctx, 1, func(c context.Context, _ *semaphore.Lease) error {
			g, _ := errgroup.WithContext(c)
			g.Go(func() error { return work(ctx, 1) }) // want `ctx is from outside`
			return g.Wait()
		}),
		several.Do(ctx, l, several.Names{Write: []string{"a", "b"}}, func(c context.Context, _ *several.Lease) error {
			return l.Do(ctx, "c", func(inner context.Context, _ *redlock.Lease) error { // want `ctx is from outside`
				return work(c, 1) // want `c is from outside`
			})
		}),
	)
}

// A context that ends sooner than the call of Do waits is a mistake of the same kind.
func withTimeout(ctx context.Context, l *redlock.Locker) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return l.Do(short, "a", func(context.Context, *redlock.Lease) error {
		return work(ctx, 1) // want `ctx is from outside`
	})
}

func without(ctx context.Context, l *redlock.Locker, e *election.Elector) error {
	cleanup := context.WithoutCancel(ctx)
	var kept context.Context
	logger := slog.Default()
	return errors.Join(
		l.Do(ctx, "a", func(ctx context.Context, lease *redlock.Lease) error {
			return work(ctx, 1)
		}),
		l.Do(ctx, "a", func(c context.Context, lease *redlock.Lease) error {
			inner, cancel := context.WithCancel(c)
			defer cancel()
			kept = inner
			return errors.Join(work(inner, 1), work(lease.Context(), 1), work(kept, 1))
		}),
		l.Do(ctx, "a", func(c context.Context, lease *redlock.Lease) error {
			defer func() { _ = work(context.WithoutCancel(ctx), 1) }() // after the work
			defer func() { _ = work(cleanup, 1) }()
			stop := context.AfterFunc(ctx, func() {})
			defer stop()
			logger.InfoContext(ctx, "begins", "trace", traceFromContext(ctx))
			if err := work(c, 1); err != nil {
				return errors.Join(err, context.Cause(ctx))
			}
			select {
			case <-ctx.Done():
			case <-c.Done():
			}
			return errors.Join(lease.Unlock(ctx), ctx.Err())
		}),
		e.Run(ctx, func(c context.Context, _ *redlock.Lease) error {
			go func() { _ = work(ctx, 1) }() // not under the lease
			return work(c, 1)
		}),
		retry(ctx, func(context.Context, *redlock.Lease) error { return work(ctx, 1) }), // of this program
		l.Do(ctx, "a", named),
	)
}

func named(ctx context.Context, _ *redlock.Lease) error { return work(ctx, 1) }

func retry(ctx context.Context, f func(context.Context, *redlock.Lease) error) error {
	return f(ctx, nil)
}
