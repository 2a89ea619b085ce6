package redlock_test

import (
	"context"
	"log"

	"github.com/d0720281/redlock"
)

func Example() {
	ctx := context.Background()
	locker, err := redlock.New([]string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"})
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	lease, err := locker.Lock(ctx, "stock:item-1") // waits until the lock is granted or ctx ends
	if err != nil {
		log.Panic(err)
	}
	sell(lease.Context(), lease.Fence())
	if err := lease.Unlock(ctx); err != nil {
		log.Print(err) // with ErrLost, another holder may have sold at the same time
	}
}

// sell must stop when ctx ends, which is before the validity ends, and send the token with each write:
// UPDATE stock SET amount = amount - 1, fence = $1 WHERE item = 'item-1' AND fence <= $1
func sell(ctx context.Context, fence int64) { log.Print("selling with fencing token ", fence) }
