package sharded_test

import (
	"context"
	"fmt"
	"log"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/sharded"
)

// Two groups of three masters grant twice as many locks as one.
func ExampleNew() {
	first, stopFirst := locktest.NewMasters()
	defer stopFirst()
	second, stopSecond := locktest.NewMasters()
	defer stopSecond()

	locker, err := sharded.New([][]string{first, second})
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	ctx := context.Background()
	for _, group := range locker.Groups() { // once, by the tool that sets the masters up
		if err := admin.Bootstrap(ctx, group); err != nil {
			log.Panic(err)
		}
	}
	err = locker.Do(ctx, "stock:7", func(ctx context.Context, lease *redlock.Lease) error {
		fmt.Println("holding", lease.Resource())
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// holding stock:7
	// <nil>
}
