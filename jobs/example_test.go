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

// A job that is due on two machines at once runs on one of them. This is for every scheduler
// that calls a function.
func ExampleLocker_Run() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	due := time.Now().Truncate(time.Second) // the scheduler knows it, or jobs.Due finds it
	for machine := range 2 {
		locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second))
		if err != nil {
			log.Panic(err)
		}
		defer locker.Close()
		locks, err := jobs.New(locker)
		if err != nil {
			log.Panic(err)
		}
		task := func(ctx context.Context) error {
			return locks.Run(ctx, "nightly", func(ctx context.Context, lease *redlock.Lease) error {
				fmt.Println("runs on machine", machine+1)
				return nil
			}, jobs.At(due))
		}
		if err := task(context.Background()); err != nil { // the scheduler calls it
			log.Print(err)
		}
	}
	// Output: runs on machine 1
}
