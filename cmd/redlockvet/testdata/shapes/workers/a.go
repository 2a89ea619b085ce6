// Package workers is a pool of workers with the mistakes that its kind makes.
package workers

import (
	"context"

	"github.com/d0720281/redlock"
)

type task struct{ id string }

func handle(ctx context.Context, t task) error { return ctx.Err() }

func drain(ctx context.Context, locker *redlock.Locker, tasks []task) error {
	for _, t := range tasks {
		lease, err := locker.Lock(ctx, t.id)
		if err != nil {
			return err
		}
		defer func() { _ = lease.Unlock(ctx) }() // want `held until the function returns`
		if err := handle(ctx, t); err != nil {   // want `ctx does not end with lease`
			return err
		}
	}
	return nil
}

func worker(ctx context.Context, locker *redlock.Locker, tasks <-chan task) {
	for t := range tasks {
		lease, err := locker.TryLock(ctx, t.id) // want `can be reached with the lease neither unlocked`
		if err != nil {
			continue
		}
		if handle(lease.Context(), t) != nil {
			continue
		}
		_ = lease.Unlock(ctx)
	}
}

func again(ctx context.Context, locker *redlock.Locker, t task) error {
	_, err := locker.TryLock(ctx, t.id) // want `the lease is dropped`
	if err == redlock.ErrTaken {        // want `redlock.ErrTaken is wrapped`
		return nil
	}
	return err
}

// Missed: the goroutine may be meant to outlive the lease.
func spawn(ctx context.Context, locker *redlock.Locker, t task) error {
	return locker.Do(ctx, t.id, func(context.Context, *redlock.Lease) error {
		go func() { _ = handle(ctx, t) }()
		return nil
	})
}

// All locks are taken first, and held together: no mistake.
func together(ctx context.Context, locker *redlock.Locker, tasks []task) error {
	var held []*redlock.Lease
	for _, t := range tasks {
		lease, err := locker.Lock(ctx, t.id)
		if err != nil {
			return err
		}
		held = append(held, lease)
		defer func() { _ = lease.Unlock(ctx) }()
	}
	return held[0].Err()
}
