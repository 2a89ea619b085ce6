package integrations

import (
	"context"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
)

var locker *redlock.Locker

// gocron: each run of a job on one machine.
func Example_gocronLocker() {
	locks, err := redlock.NewJobLocker[gocron.Lock](locker, 5*time.Second)
	if err != nil {
		log.Panic(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locks))
	if err != nil {
		log.Panic(err)
	}
	_, err = s.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(func() {}), gocron.WithName("nightly"))
	if err != nil {
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

// robfig/cron: each run of a job on one machine.
func Example_cron() {
	once, err := redlock.JobWrapper[cron.Job](locker, "nightly", 5*time.Second)
	if err != nil {
		log.Panic(err)
	}
	c := cron.New()
	if _, err := c.AddJob("0 3 * * *", cron.NewChain(once).Then(cron.FuncJob(func() {}))); err != nil {
		log.Panic(err)
	}
}
