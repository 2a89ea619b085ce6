package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
)

const (
	stall    = 30 * time.Second // a run without progress for so long is given up
	stockTTL = time.Hour        // if the run is killed, its key expires
)

// mutex has the methods of a lock that the workload needs.
type mutex interface {
	Lock(ctx context.Context) (lease, error)
}

// lease has the methods of a lease that the workload needs; [*redlock.Lease] has them.
type lease interface {
	Context() context.Context
	Fence() int64
	Unlock(ctx context.Context) error
}

// resourceLock is the library's lock on the one resource.
type resourceLock struct{ locker *redlock.Locker }

func (r resourceLock) Lock(ctx context.Context) (lease, error) {
	le, err := r.locker.Lock(ctx, resource)
	if err != nil {
		return nil, err // not le: a nil *Lease in the interface would not be nil
	}
	return le, nil
}

// noLock is a lock that excludes no other holder.
type noLock struct{}

type noLease struct{ ctx context.Context }

func (noLock) Lock(ctx context.Context) (lease, error) { return noLease{ctx}, nil }
func (n noLease) Context() context.Context             { return n.ctx }
func (noLease) Fence() int64                           { return 0 }
func (noLease) Unlock(context.Context) error           { return nil }

// seller has what a service brings.
type seller struct {
	mutex mutex
	store *redis.Client
}

// step is an action that is due when so many attempts have finished.
type step struct {
	at int
	do func(done int) error
}

// workload sells a stock. Each attempt reads the number left and writes it back less one. This is
// right only if no other attempt writes in between. The stock checks no fencing token on purpose:
// a store that refuses a write would hide a lock that fails.
type workload struct {
	key      string
	stock    int
	workers  int // of each seller
	rounds   int // of each worker
	sellers  []seller
	steps    []step
	progress func() // called after each attempt; may be nil
}

// run makes all attempts. It returns early with the first error, or when ctx ends.
func (w *workload) run(ctx context.Context) *result {
	res := &result{journal: new(journal), stock: w.stock, attempts: len(w.sellers) * w.workers * w.rounds, left: -1}
	store := w.sellers[0].store
	if res.err = store.Set(ctx, w.key, w.stock, stockTTL).Err(); res.err != nil {
		return res
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stall, func() {
		cancel(fmt.Errorf("no attempt was finished for %v", stall))
	})
	defer stalled.Stop()

	var failed sync.Once
	fail := func(err error) {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		failed.Do(func() { res.err = err })
		cancel(err)
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for _, s := range w.sellers {
		for range w.workers {
			wg.Go(func() {
				for range w.rounds {
					err := w.attempt(ctx, s, res.journal)
					if err == nil {
						stalled.Reset(stall)
						err = w.finished(int(done.Add(1)))
					}
					if err != nil {
						fail(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	res.wall = time.Since(began)
	res.done = int(done.Load())
	if left, err := store.Get(context.WithoutCancel(ctx), w.key).Int(); err == nil {
		res.left = left
	} else if res.err == nil {
		res.err = err
	}
	return res
}

// attempt sells one item, if any is left.
func (w *workload) attempt(ctx context.Context, s seller, j *journal) error {
	began := time.Now()
	held, err := s.mutex.Lock(ctx)
	if err != nil {
		return err
	}
	j.enter(held.Fence(), time.Since(began))
	sold, err := w.sell(held.Context(), s.store)
	j.leave(sold)
	// An attempt that Ctrl-C interrupts still gives the lock back.
	unlockErr := held.Unlock(context.WithoutCancel(ctx))
	if errors.Is(unlockErr, redlock.ErrNoQuorum) {
		j.unconfirm() // the keys go late, which costs time, not safety
		unlockErr = nil
	}
	return errors.Join(err, unlockErr)
}

func (w *workload) sell(ctx context.Context, store *redis.Client) (bool, error) {
	n, err := store.Get(ctx, w.key).Int()
	if err == nil && n > 0 {
		err = store.Set(ctx, w.key, n-1, stockTTL).Err()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the lease ended, which tells more than a cancelled command
	}
	return err == nil && n > 0, err
}

// finished runs the steps that are due after so many attempts. Each number comes once.
func (w *workload) finished(done int) error {
	if w.progress != nil {
		w.progress()
	}
	for _, s := range w.steps {
		if done == max(s.at, 1) {
			if err := s.do(done); err != nil {
				return err
			}
		}
	}
	return nil
}

// cleanUp removes the stock from the store.
func (w *workload) cleanUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return w.sellers[0].store.Del(ctx, w.key).Err()
}
