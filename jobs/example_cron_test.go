package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/jobs"
)

// Job stands for cron.Job, and FuncJob for cron.FuncJob.
type (
	Job     interface{ Run() }
	FuncJob func()
)

// Run implements Job.
func (f FuncJob) Run() { f() }

// once returns a cron.JobWrapper for a job of that name and schedule.
func once(locks *jobs.Locker, name string, schedule jobs.Schedule) func(Job) Job {
	return func(job Job) Job {
		return FuncJob(func() {
			due := jobs.Due(schedule, time.Now())
			_ = locks.Run(context.Background(), name, func(context.Context, *redlock.Lease) error { // errors are logged
				job.Run()
				return nil
			}, jobs.At(due))
		})
	}
}

// A function makes a cron.JobWrapper of a Locker, for cron.NewChain.
func Example_cron() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second))
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	locks, err := jobs.New(locker)
	if err != nil {
		log.Panic(err)
	}
	schedule := daily{time.Now()}
	report := FuncJob(func() { fmt.Println("reporting") })
	for range 2 {
		once(locks, "nightly", schedule)(report).Run() // the second time the run has been made
	}
	// Output: reporting
}

// daily is due at a moment, and a day later. It stands for what cron.ParseStandard returns.
type daily struct{ first time.Time }

func (d daily) Next(after time.Time) time.Time {
	if after.Before(d.first) {
		return d.first
	}
	return d.first.Add(24 * time.Hour)
}
