// Package cron has scheduled jobs with the mistakes that their kind makes.
package cron

import (
	"context"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/jobs"
)

func report(ctx context.Context) error { return ctx.Err() }

func nightly(ctx context.Context, locks *jobs.Locker) {
	err := locks.Run(ctx, "nightly", func(context.Context, *redlock.Lease) error {
		return report(ctx) // want `ctx is from outside`
	}, jobs.At(jobs.Due(jobs.Every(time.Hour), time.Now())))
	if err == jobs.ErrLate { // want `jobs.ErrLate is wrapped`
		log.Print("late")
	}
}

func hourly(ctx context.Context, locker *redlock.Locker) {
	locker.Do(ctx, "hourly", func(ctx context.Context, _ *redlock.Lease) error { return report(ctx) }) // want `the error of Do is dropped`
}

func daily(ctx context.Context, locker *redlock.Locker) error {
	lease, err := locker.TryLock(ctx, "daily")
	if err != nil {
		return err
	}
	err = report(ctx) // want `ctx does not end with lease`
	if err := lease.Unlock(ctx); err != nil {
		log.Print(err)
	}
	return err
}

func weekly(ctx context.Context, locker *redlock.Locker) error {
	lease, err := locker.TryLock(ctx, "weekly") // want `can be reached with the lease neither unlocked`
	if err != nil {
		return err
	}
	if err := report(lease.Context()); err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// Missed: that each machine makes this run, one after the other, is no matter of one function.
func every(ctx context.Context, locker *redlock.Locker) error {
	return locker.Do(ctx, "every", func(ctx context.Context, _ *redlock.Lease) error { return report(ctx) })
}
