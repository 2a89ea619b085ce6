package integrations

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/jobs"
)

// The adapters for schedulers, migrations and certificates. They are short enough to be copied. The
// pages docs/jobs.md and docs/recipes.md have the same text.

// gocronLocker implements gocron.Locker for a job with that schedule.
type gocronLocker struct {
	locks    *jobs.Locker
	schedule jobs.Schedule
}

// Lock implements gocron.Locker.
func (l gocronLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.locks.Lock(ctx, job, jobs.At(jobs.Due(l.schedule, time.Now())))
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
			_ = locks.Run(context.Background(), name, func(context.Context, *redlock.Lease) error { // errors are logged
				job.Run()
				return nil
			}, jobs.At(due))
		})
	}
}

// gooseLocker implements lock.Locker of goose, for one Provider: migrations run on one machine at a time.
type gooseLocker struct {
	locker *redlock.Locker
	name   string
	lease  *redlock.Lease
}

func (l *gooseLocker) Lock(ctx context.Context, _ *sql.DB) (err error) {
	l.lease, err = l.locker.Lock(ctx, l.name)
	return err
}

func (l *gooseLocker) Unlock(ctx context.Context, _ *sql.DB) error { return l.lease.Unlock(ctx) }

// certStorage is a storage of certmagic with the locks of the fleet: one machine renews a certificate.
type certStorage struct {
	certmagic.Storage
	locker *redlock.Locker
	leases sync.Map // by name
}

func (s *certStorage) Lock(ctx context.Context, name string) error {
	lease, err := s.locker.Lock(ctx, name)
	if err == nil {
		s.leases.Store(name, lease)
	}
	return err
}

func (s *certStorage) Unlock(ctx context.Context, name string) error {
	lease, ok := s.leases.LoadAndDelete(name)
	if !ok {
		return fmt.Errorf("%s is not locked", name)
	}
	return lease.(*redlock.Lease).Unlock(ctx)
}
