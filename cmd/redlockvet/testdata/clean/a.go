// Package clean has code as in programs that use schedulers, web servers and workers. Nothing is wrong in it.
package clean

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/jobs"
)

// A scheduler of jobs, as gocron is one.

type Lock interface {
	Unlock(ctx context.Context) error
}

type Locker interface {
	Lock(ctx context.Context, key string) (Lock, error)
}

type locker struct{ locks *jobs.Locker }

func (l locker) Lock(ctx context.Context, key string) (Lock, error) {
	lock, err := l.locks.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

type plain struct{ locker *redlock.Locker }

func (p plain) Lock(ctx context.Context, key string) (Lock, error) {
	lease, err := p.locker.TryLock(ctx, key, redlock.WithTTL(time.Minute))
	if errors.Is(err, redlock.ErrTaken) {
		return nil, errors.New("another machine runs the job")
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

type scheduler struct {
	locker Locker
	leader *election.Elector
	ctx    context.Context
	wg     sync.WaitGroup
}

func (s *scheduler) run(job string, do func(ctx context.Context) error) error {
	if s.leader.IsLeader(s.ctx) != nil {
		return nil
	}
	lock, err := s.locker.Lock(s.ctx, job)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock(s.ctx) }()
	return do(s.ctx)
}

func (s *scheduler) lead(ctx context.Context) {
	s.wg.Go(func() {
		err := s.leader.Run(ctx, func(ctx context.Context, lease *redlock.Lease) error {
			slog.InfoContext(ctx, "leads", "fence", lease.Fence())
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-tick.C:
					s.wg.Go(func() { _ = s.run("job", func(ctx context.Context) error { return ctx.Err() }) })
				}
			}
		})
		slog.Info("leads no longer", "error", err)
	})
}

// A web server.

type server struct{ locker *redlock.Locker }

func (s *server) sell(w http.ResponseWriter, r *http.Request) {
	wait, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	lease, err := s.locker.Lock(wait, "stock:"+r.PathValue("item"))
	switch {
	case errors.Is(err, redlock.ErrTaken):
		http.Error(w, "busy", http.StatusConflict)
		return
	case err != nil:
		http.Error(w, "no lock", http.StatusServiceUnavailable)
		return
	}
	defer func() {
		if err := lease.Unlock(context.WithoutCancel(r.Context())); err != nil {
			slog.Error("sold twice?", "error", err)
		}
	}()
	ctx, stop := lease.Within(r.Context())
	defer stop()
	w.Header().Set("X-Left", time.Until(deadline(ctx)).String())
}

func deadline(ctx context.Context) time.Time { t, _ := ctx.Deadline(); return t }

// A worker that keeps its lease from one task to the next.

type worker struct {
	locker *redlock.Locker
	mu     sync.Mutex
	leases map[string]*redlock.Lease
}

func (w *worker) own(ctx context.Context, shard string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lease := w.leases[shard]; lease != nil && lease.Err() == nil {
		return lease.Extend(ctx)
	}
	lease, err := w.locker.TryLock(ctx, shard)
	if err != nil {
		return err
	}
	w.leases[shard] = lease
	return nil
}

func (w *worker) close(ctx context.Context) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for shard, lease := range w.leases {
		err = errors.Join(err, lease.Unlock(ctx))
		delete(w.leases, shard)
	}
	return err
}

func (w *worker) tryAll(ctx context.Context, names ...string) (got []*redlock.Lease) {
	for _, name := range names {
		if lease, err := w.locker.TryLock(ctx, name); err == nil {
			got = append(got, lease)
		}
	}
	return got
}

// A lease that Extend found to be over needs no Unlock.
func renewed(ctx context.Context, locker *redlock.Locker, work func() bool) error {
	lease, err := locker.Lock(ctx, "renewed")
	if err != nil {
		return err
	}
	for work() {
		if errors.Is(lease.Extend(ctx), redlock.ErrNotHeld) {
			return redlock.ErrLost
		}
	}
	return lease.Unlock(ctx)
}
