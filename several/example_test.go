package several_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/several"
)

// A transfer locks both accounts, in whatever order, and no process changes the rates meanwhile.
func ExampleDo() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second))
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	names := several.Names{Write: []string{"account:7", "account:3"}, Read: []string{"rates"}}
	err = several.Do(context.Background(), locker, names, func(ctx context.Context, lease *several.Lease) error {
		for _, part := range lease.Parts() {
			fmt.Println(part.Resource(), part.Mode())
		}
		inner, _ := several.LeaseFrom(ctx) // in code that is handed ctx alone
		fmt.Println("rates have a token:", inner.Part("rates").Fence() > 0)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// account:3 exclusive
	// account:7 exclusive
	// rates shared
	// rates have a token: true
	// <nil>
}
