package semaphore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/semaphore"
)

// At most three uploads run at the same time, over all processes.
func ExampleSemaphore_Do() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second))
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	uploads, err := semaphore.New(locker, "uploads", 3)
	if err != nil {
		log.Panic(err)
	}
	err = uploads.Do(context.Background(), 1, func(ctx context.Context, lease *semaphore.Lease) error {
		fmt.Println("uploading with", len(lease.Parts()), "permit")
		return ctx.Err() // ends with the caller's context or with the lease
	})
	fmt.Println(err)
	// Output:
	// uploading with 1 permit
	// <nil>
}
