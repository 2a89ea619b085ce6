package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock"
)

const (
	stall    = 30 * time.Second // a run without progress for so long is given up
	stockKey = "stock"          // in a store that nothing else uses
)

// locking takes a lock on the one resource.
type locking func(ctx context.Context) (lease, error)

// lease has the methods of a lease that the workload needs; [*redlock.Lease] has them.
type lease interface {
	Context() context.Context
	Fence() int64
	Unlock(ctx context.Context) error
}

// byLibrary takes the library's lock.
func byLibrary(l *redlock.Locker) locking {
	return func(ctx context.Context) (lease, error) { return l.Lock(ctx, demoItem) }
}

// withoutLock excludes no other holder.
func withoutLock(ctx context.Context) (lease, error) { return noLease{ctx}, nil }

type noLease struct{ ctx context.Context }

func (n noLease) Context() context.Context   { return n.ctx }
func (noLease) Fence() int64                 { return 0 }
func (noLease) Unlock(context.Context) error { return nil }

// workload sells a stock. Each attempt reads the number left and writes it back less one. This is
// right only if no other attempt writes in between. The stock checks no fencing token on purpose:
// a store that refuses a write would hide a lock that fails.
type workload struct {
	stock    int
	workers  int // of each service
	rounds   int // of each worker
	services []service
	steps    map[int]func(done int) error // by the number of attempts that have finished
	due      sync.Mutex                   // held while a step runs, so that steps run one after the other
}

// result is the result of a run. It records the critical sections of all services.
type result struct {
	stock, attempts int

	mu          sync.Mutex // a holder takes it when it enters, so that the entries have an order
	done        int
	inside      int
	overlaps    int // entries while another holder was inside
	lastFence   int64
	fallen      int // fencing tokens not larger than the token of the entry before
	sold        int
	unconfirmed int             // releases that no quorum confirmed in time
	waits       []time.Duration // of all entries

	left int // in the store at the end; -1 if it could not be read
	wall time.Duration
	err  error // the error that ended the run early
}

func (r *result) enter(fence int64, waited time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside++
	if r.inside > 1 {
		r.overlaps++
	}
	if fence <= r.lastFence {
		r.fallen++
	}
	r.lastFence = fence
	r.waits = append(r.waits, waited)
}

func (r *result) leave(sold bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside--
	if sold {
		r.sold++
	}
}

// run makes all attempts. It returns early with the first error, or when ctx ends.
func (w *workload) run(ctx context.Context) *result {
	res := &result{stock: w.stock, attempts: len(w.services) * w.workers * w.rounds, left: -1}
	store := w.services[0].store
	if res.err = store.Set(ctx, stockKey, w.stock, 0).Err(); res.err != nil {
		return res
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stall, func() {
		cancel(fmt.Errorf("no attempt was finished for %v", stall))
	})
	defer stalled.Stop()

	workers, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for _, s := range w.services {
		for range w.workers {
			workers.Go(func() error {
				for range w.rounds {
					if err := w.attempt(ctx, s, res); err != nil {
						return err
					}
					stalled.Reset(stall)
					if err := w.finished(res); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	res.err = workers.Wait()
	res.wall = time.Since(began)
	if left, err := store.Get(context.WithoutCancel(ctx), stockKey).Int(); err == nil {
		res.left = left
	} else if res.err == nil {
		res.err = err
	}
	return res
}

// attempt sells one item, if any is left.
func (w *workload) attempt(ctx context.Context, s service, r *result) error {
	began := time.Now()
	held, err := s.lock(ctx)
	if err != nil {
		return err
	}
	r.enter(held.Fence(), time.Since(began))
	sold, err := w.sell(held.Context(), s.store)
	r.leave(sold)
	// An attempt that Ctrl-C interrupts still gives the lock back.
	unlockErr := held.Unlock(context.WithoutCancel(ctx))
	if errors.Is(unlockErr, redlock.ErrNoQuorum) { // the keys go late, which costs time, not safety
		r.mu.Lock()
		r.unconfirmed++
		r.mu.Unlock()
		unlockErr = nil
	}
	return errors.Join(err, unlockErr)
}

func (w *workload) sell(ctx context.Context, store *redis.Client) (bool, error) {
	n, err := store.Get(ctx, stockKey).Int()
	if err == nil && n > 0 {
		err = store.Set(ctx, stockKey, n-1, 0).Err()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the lease ended, which tells more than a cancelled command
	}
	return err == nil && n > 0, err
}

// finished counts an attempt, and runs the step that is due.
func (w *workload) finished(r *result) error {
	r.mu.Lock()
	r.done++
	done := r.done
	r.mu.Unlock()
	if step := w.steps[done]; step != nil {
		w.due.Lock()
		defer w.due.Unlock()
		return step(done)
	}
	return nil
}

func (r *result) oversold() int { return max(0, r.sold-r.stock) }

// check is one line of the judgement.
type check struct {
	name, got string
	wrong     bool
}

func (r *result) findings() []check {
	want := min(r.stock, r.attempts)
	fences := "yes"
	if r.fallen > 0 {
		fences = fmt.Sprintf("no: %d of %d not larger than the one before it", r.fallen, len(r.waits))
	}
	left := fmt.Sprint(r.left)
	if r.left < 0 {
		left = "not known"
	}
	return []check{
		{"attempts done", fmt.Sprintf("%d of %d", r.done, r.attempts), r.done != r.attempts},
		{"sold", fmt.Sprintf("%d (must be %d)", r.sold, want), r.sold != want},
		{"oversold", fmt.Sprint(r.oversold()), r.oversold() > 0},
		{"left in the store", fmt.Sprintf("%s (must be %d)", left, r.stock-want), r.left != r.stock-want},
		{"overlapping holders", fmt.Sprint(r.overlaps), r.overlaps > 0},
		{"fencing tokens strictly rising", fences, r.fallen > 0},
	}
}

// verdict returns an error that names all faults, or nil.
func (r *result) verdict() error {
	var wrong []string
	for _, f := range r.findings() {
		if f.wrong {
			wrong = append(wrong, f.name+": "+f.got)
		}
	}
	err := r.err
	if len(wrong) > 0 {
		err = errors.Join(errors.New(strings.Join(wrong, "; ")), err)
	}
	if err != nil {
		return fmt.Errorf("FAILED: %w", err)
	}
	return nil
}

// quantiles returns how long the attempts waited for the lock.
func (r *result) quantiles() string {
	if len(r.waits) == 0 {
		return "not measured"
	}
	sorted := slices.Sorted(slices.Values(r.waits))
	of := func(p int) string { return short(sorted[(len(sorted)*p+99)/100-1]) }
	return of(50) + " / " + of(99)
}
