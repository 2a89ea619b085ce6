package integrations

import (
	"context"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/jobs"
)

// The adapters between package jobs and the schedulers. They are short enough to be copied. The
// page docs/jobs.md has the same text.

// gocronLocker implements gocron.Locker.
type gocronLocker struct{ *jobs.Locker }

// Lock implements gocron.Locker.
func (l gocronLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.Locker.Lock(ctx, job)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// once returns a wrapper for a job of that name.
func once(locks *jobs.Locker, name string) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			_ = locks.Run(context.Background(), name, func(context.Context, *redlock.Lease) error { // errors are logged
				job.Run()
				return nil
			})
		})
	}
}
