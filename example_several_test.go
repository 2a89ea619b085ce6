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

// At most three uploads run at the same time, over all processes.
func ExampleLocker_Semaphore() {
	locker, stop := exampleLocker()
	defer stop()
	uploads := locker.Semaphore("uploads", 3)
	err := uploads.Do(context.Background(), 1, func(ctx context.Context, lease *redlock.MultiLease) error {
		permit := lease.Parts()[0] // the store checks the token of the slot
		fmt.Println("uploading", permit.Slot >= 1 && permit.Slot <= 3, permit.Fence > 0)
		return ctx.Err() // which ends when the permit is lost
	})
	if err != nil {
		log.Panic(err)
	}
	// Output: uploading true true
}

// Several permits are acquired at once: all or none.
func ExampleSemaphore_TryAcquire() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	memory := locker.Semaphore("memory", 10)
	lease, err := memory.TryAcquire(ctx, 8)
	if err != nil {
		log.Panic(err)
	}
	_, err = memory.TryAcquire(ctx, 3)
	fmt.Println("taken:", errors.Is(err, redlock.ErrTaken))
	if err := lease.Unlock(ctx); err != nil {
		log.Panic(err)
	}
	// Output: taken: true
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

// Reports read the price list together. Only one process at a time changes it.
func ExampleLocker_RLock() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	one, err := locker.RLock(ctx, "prices")
	if err != nil {
		log.Panic(err)
	}
	two, err := locker.RLock(ctx, "prices")
	if err != nil {
		log.Panic(err)
	}
	_, err = locker.TryLock(ctx, "prices")
	fmt.Println("a writer beside readers:", errors.Is(err, redlock.ErrTaken))
	for _, lease := range []*redlock.Lease{one, two} {
		if err := lease.Unlock(ctx); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// a writer beside readers: true
}

// A process changes the price list, and then reads it together with others. No other process changes it
// in between.
func ExampleLease_Downgrade() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "prices")
	if err != nil {
		log.Panic(err)
	}
	if err := lease.Downgrade(ctx); err != nil { // the lease may not write any more, even if this fails
		log.Print(err)
	}
	other, err := locker.TryRLock(ctx, "prices")
	fmt.Println(lease.Mode(), "with another reader:", err == nil)
	for _, lease := range []*redlock.Lease{lease, other} {
		if err := lease.Unlock(ctx); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// shared with another reader: true
}
