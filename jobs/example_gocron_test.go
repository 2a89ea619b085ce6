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

// Lock stands for gocron.Lock.
type Lock interface{ Unlock(context.Context) error }

// gocronLocker is a gocron.Locker.
type gocronLocker struct{ *jobs.Locker }

// Lock implements gocron.Locker.
func (l gocronLocker) Lock(ctx context.Context, job string) (Lock, error) {
	lock, err := l.Locker.Lock(ctx, job)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// A type with one method makes a gocron.Locker of a Locker, for gocron.WithDistributedLocker.
func Example_gocron() {
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

	// What gocron does for each run:
	lock, err := gocronLocker{locks}.Lock(context.Background(), "nightly")
	if err != nil {
		log.Panic(err) // gocron leaves the run out
	}
	fmt.Println(lock.Unlock(context.Background())) // the lease is held for 5 s all the same
	fmt.Println(len(locker.Stats().Leases), "held")
	// Output:
	// <nil>
	// 1 held
}
