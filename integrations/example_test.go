package integrations

import (
	"context"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/jobs"
)

var locker *redlock.Locker

// gocron: each run of a job on one machine. The adapter gocronLocker is in adapters_test.go.
func Example_gocronLocker() {
	locks, err := jobs.New(locker)
	if err != nil {
		log.Panic(err)
	}
	schedule, err := cron.ParseStandard("0 3 * * *")
	if err != nil {
		log.Panic(err)
	}
	s, err := gocron.NewScheduler()
	if err != nil {
		log.Panic(err)
	}
	_, err = s.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(func() {}), gocron.WithName("nightly"),
		gocron.WithDistributedJobLocker(gocronLocker{locks, schedule}))
	if err != nil {
		log.Panic(err)
	}
}

// gocron: each run of a job on one machine, and the job is told when its lease is lost.
func Example_gocronTask() {
	locks, err := jobs.New(locker)
	if err != nil {
		log.Panic(err)
	}
	schedule, err := cron.ParseStandard("0 3 * * *")
	if err != nil {
		log.Panic(err)
	}
	s, err := gocron.NewScheduler()
	if err != nil {
		log.Panic(err)
	}
	task := func(ctx context.Context) error {
		return locks.Run(ctx, "nightly", func(ctx context.Context, lease *redlock.Lease) error {
			return ctx.Err() // work until ctx ends
		}, jobs.At(jobs.Due(schedule, time.Now())))
	}
	if _, err = s.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(task)); err != nil {
		log.Panic(err)
	}
}

// gocron: all jobs on the machine that leads.
func Example_gocronElector() {
	elector, err := election.New(locker, "scheduler")
	if err != nil {
		log.Panic(err)
	}
	go func() {
		log.Print(elector.Run(context.Background(), func(ctx context.Context, _ *redlock.Lease) error {
			<-ctx.Done()
			return nil
		}))
	}()
	if _, err := gocron.NewScheduler(gocron.WithDistributedElector(elector)); err != nil {
		log.Panic(err)
	}
}

// robfig/cron: each run of a job on one machine. The adapter once is in adapters_test.go.
func Example_cron() {
	locks, err := jobs.New(locker)
	if err != nil {
		log.Panic(err)
	}
	schedule, err := cron.ParseStandard("0 3 * * *")
	if err != nil {
		log.Panic(err)
	}
	c := cron.New()
	c.Schedule(schedule, cron.NewChain(once(locks, "nightly", schedule)).Then(cron.FuncJob(func() {})))
}
