package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
)

// One process of several does the work. Another one takes over when it stops or dies.
func ExampleElector() {
	addrs, stopMasters := locktest.ExampleMasters()
	defer stopMasters()
	locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second))
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	elector, err := election.New(locker, "invoices")
	if err != nil {
		log.Panic(err)
	}

	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext in a service
	err = elector.Run(ctx, func(ctx context.Context, lease *redlock.Lease) error {
		fmt.Println("leading:", elector.Leading())
		stop()
		<-ctx.Done() // or work until then
		return nil
	})
	fmt.Println("stopped:", errors.Is(err, context.Canceled))
	fmt.Println("leading:", elector.Leading())
	// Output:
	// leading: true
	// stopped: true
	// leading: false
}
