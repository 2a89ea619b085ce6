package redlock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/d0720281/redlock"
)

// A job that is due on two machines at once runs on one. With gocron see NewJobLocker, with
// robfig/cron JobWrapper; this is for any other scheduler.
func ExampleLocker_Job() {
	addrs, stop := exampleMasters()
	defer stop()
	ctx := context.Background()
	for machine := range 2 {
		locker, err := redlock.New(addrs)
		if err != nil {
			log.Panic(err)
		}
		defer locker.Close()
		job, err := locker.Job("nightly", 5*time.Second, func(context.Context, *redlock.Lease) error {
			fmt.Println("runs on machine", machine+1)
			return nil
		})
		if err != nil {
			log.Panic(err)
		}
		if err := job(ctx); err != nil { // by the scheduler
			log.Print(err)
		}
	}
	// Output: runs on machine 1
}

// What any scheduler calls a lock of its own.
func ExampleNewJobLocker() {
	type Lock interface { // gocron.Lock
		Unlock(context.Context) error
	}
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	locks, err := redlock.NewJobLocker[Lock](locker, 5*time.Second) // for gocron.WithDistributedLocker
	if err != nil {
		log.Panic(err)
	}
	lock, err := locks.Lock(context.Background(), "nightly")
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(lock.Unlock(context.Background())) // the lease is held for 5 s all the same
	fmt.Println(len(locker.Stats().Leases), "held")
	// Output:
	// <nil>
	// 1 held
}

// What is a value with Run to a scheduler is one that runs on one machine.
func ExampleJobWrapper() {
	type Job interface{ Run() } // cron.Job
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	once, err := redlock.JobWrapper[Job](locker, "nightly", 5*time.Second) // for cron.NewChain
	if err != nil {
		log.Panic(err)
	}
	for range 2 {
		once(report{}).Run() // the second time it is within the minimum hold
	}
	// Output: reporting
}

type report struct{}

func (report) Run() { fmt.Println("reporting") }

// Events go to a log and to metrics.
func ExampleLogObserver() {
	addrs, stop := exampleMasters()
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)) // leases come and go at level Debug
	acquired := 0
	locker, err := redlock.New(addrs,
		redlock.WithObserver(redlock.LogObserver(logger)),
		redlock.WithObserver(redlock.Observer{Acquired: func(redlock.Event) { acquired++ }}))
	if err != nil {
		log.Panic(err)
	}
	if _, err := locker.Lock(context.Background(), "stock:item-1"); err != nil {
		log.Panic(err)
	}
	if err := locker.Close(); err != nil { // returns when all events have been told
		log.Print(err)
	}
	fmt.Println("acquired:", acquired)
	// Output: acquired: 1
}

// A snapshot of what the Locker has, without asking a master.
func ExampleLocker_Stats() {
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	if _, err := locker.Lock(context.Background(), "stock:item-1"); err != nil {
		log.Panic(err)
	}
	s := locker.Stats()
	for _, lease := range s.Leases {
		fmt.Println(lease.Resource, lease.TTL, lease.Validity > 5*time.Second)
	}
	fmt.Println(s.Counts.Acquired, "acquired,", s.Counts.Lost, "lost,", len(s.Nodes), "masters")
	// Output:
	// stock:item-1 10s true
	// 1 acquired, 0 lost, 3 masters
}
