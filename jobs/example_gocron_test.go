package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/jobs"
)

// Lock stands for gocron.Lock.
type Lock interface{ Unlock(context.Context) error }

// gocronLocker is a gocron.Locker for a job with that schedule.
type gocronLocker struct {
	locks    *jobs.Locker
	schedule jobs.Schedule
}

// Lock implements gocron.Locker.
func (l gocronLocker) Lock(ctx context.Context, job string) (Lock, error) {
	lock, err := l.locks.Lock(ctx, job, jobs.At(jobs.Due(l.schedule, time.Now())))
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// A type with one method makes a gocron.Locker of a Locker, for gocron.WithDistributedJobLocker.
func Example_gocron() {
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
	for range 2 { // what gocron does for a run, on two machines
		lock, err := gocronLocker{locks, schedule}.Lock(context.Background(), "nightly")
		if err != nil {
			fmt.Println("left out:", errors.Is(err, redlock.ErrTaken))
			continue
		}
		fmt.Println("reporting")
		if err := lock.Unlock(context.Background()); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// reporting
	// left out: true
}
