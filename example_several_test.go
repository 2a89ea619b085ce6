package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/d0720281/redlock"
)

// A transfer needs both accounts. The order of the names has no meaning: another transfer may name
// the same accounts the other way round.
func ExampleLocker_LockAll() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.LockAll(ctx, []string{"account:7", "account:12"})
	if err != nil {
		log.Panic(err)
	}
	for _, part := range lease.Parts() {
		fmt.Println(part.Resource, part.Fence > 0) // the store checks the token of each account
	}
	_, err = locker.TryLock(ctx, "account:7")
	fmt.Println("taken:", errors.Is(err, redlock.ErrTaken))
	if err := lease.Unlock(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// account:12 true
	// account:7 true
	// taken: true
}

// DoAll holds several resources while a function runs.
func ExampleLocker_DoAll() {
	locker, stop := exampleLocker()
	defer stop()
	err := locker.DoAll(context.Background(), []string{"account:7", "account:12"}, func(ctx context.Context, lease *redlock.MultiLease) error {
		fmt.Println("transferring") // ctx ends when one of the resources is lost
		return ctx.Err()
	})
	if err != nil {
		log.Panic(err)
	}
	// Output: transferring
}

// A label tells people which process has the lock.
func ExampleWithOwner() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "report:2026-11", redlock.WithOwner("web-3 4711 nightly"))
	if err != nil {
		log.Panic(err)
	}
	_, err = locker.TryLock(ctx, "report:2026-11")
	var refused *redlock.QuorumError
	if errors.As(err, &refused) {
		owner, left := refused.Holder()
		fmt.Println("held by", owner, left > 0)
	}
	if err := lease.Unlock(ctx); err != nil {
		log.Panic(err)
	}
	// Output: held by web-3 4711 nightly true
}

// The last step takes longer than the TTL, and must not depend on renewals.
func ExampleLease_ExtendFor() {
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs, redlock.WithTTL(3*time.Second)) // the largest TTL of all clients is 10 s
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "report:2026-11", redlock.WithoutRenewal())
	if err != nil {
		log.Panic(err)
	}
	if err := lease.ExtendFor(ctx, redlock.DefaultTTL); err != nil {
		log.Panic(err)
	}
	fmt.Println(lease.Validity() > redlock.DefaultTTL/2)
	if err := lease.Unlock(ctx); err != nil {
		log.Panic(err)
	}
	// Output: true
}
