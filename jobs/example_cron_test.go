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

// once returns a cron.JobWrapper for a job of that name.
func once(locks *jobs.Locker, name string) func(Job) Job {
	return func(job Job) Job {
		return FuncJob(func() {
			_ = locks.Run(context.Background(), name, func(context.Context, *redlock.Lease) error { // errors are logged
				job.Run()
				return nil
			})
		})
	}
}

// A function makes a cron.JobWrapper of a Locker, for cron.NewChain.
func Example_cron() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	locks, err := jobs.New(locker, 5*time.Second)
	if err != nil {
		log.Panic(err)
	}
	report := FuncJob(func() { fmt.Println("reporting") })
	for range 2 {
		once(locks, "nightly")(report).Run() // the second time it is within the minimum hold
	}
	// Output: reporting
}
