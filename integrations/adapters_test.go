package integrations

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/jobs"
)

// The adapters between package jobs and the schedulers. They are short enough to be copied. The
// page docs/jobs.md has the same text.

// gocronLocker implements gocron.Locker for a job with that schedule.
type gocronLocker struct {
	*jobs.Locker
	schedule jobs.Schedule
}

// Lock implements gocron.Locker.
func (l gocronLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.LockAt(ctx, job, jobs.Due(l.schedule, time.Now()))
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// once returns a wrapper for a job of that name and schedule.
func once(locks *jobs.Locker, name string, schedule jobs.Schedule) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			due := jobs.Due(schedule, time.Now())
			_ = locks.RunAt(context.Background(), name, due, func(context.Context, *redlock.Lease) error { // errors are logged
				job.Run()
				return nil
			})
		})
	}
}
