package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
)

// Do takes the lease, and gives it back when the function returns or panics.
func ExampleLocker_Do() {
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = locker.Do(ctx, "report:2026-11", func(ctx context.Context, lease *redlock.Lease) error {
		// ctx ends with the caller's context or with the lease, whichever is first.
		fmt.Println("writing", lease.Resource())
		return ctx.Err()
	}, redlock.WithTTL(5*time.Second))
	switch {
	case errors.Is(err, redlock.ErrNotAcquired):
		fmt.Println("not written:", err)
	case errors.Is(err, redlock.ErrLost):
		fmt.Println("written, but perhaps not by us alone:", err)
	case err != nil:
		fmt.Println(err)
	}
	// Output: writing report:2026-11
}

// One attempt, and how to handle its failure.
func ExampleLocker_TryLock() {
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	ctx := context.Background()
	for range 2 {
		_, err := locker.TryLock(ctx, "cron:nightly") // released by Close
		var verdict *redlock.QuorumError
		switch {
		case err == nil:
			fmt.Println("ours")
		case errors.Is(err, redlock.ErrTaken):
			fmt.Println("another process does it already")
		case errors.Is(err, redlock.ErrNoQuorum):
			fmt.Println("alarm: masters in trouble")
			if errors.As(err, &verdict) {
				for _, n := range verdict.Masters {
					fmt.Println(n.Master, n.Err)
				}
			}
		default: // ctx has ended, the Locker is closed, or an argument is wrong
			fmt.Println(err)
		}
	}
	// Output:
	// ours
	// another process does it already
}

// A store that checks fencing tokens is safe from a holder that was paused past the end of its
// lease. The write is computed from a read, so the read presents the token, too: from then on the
// store refuses the first holder, before anything new is written.
func ExampleLease_Fence() {
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	ctx := context.Background()
	store := fencedStore{stock: 10}

	slow, err := locker.Lock(ctx, "stock", redlock.WithTTL(100*time.Millisecond), redlock.WithoutRenewal())
	if err != nil {
		log.Panic(err)
	}
	before, err := store.read(slow.Fence())
	if err != nil {
		log.Panic(err)
	}
	// Here the first holder is paused; its lease ends, and another gets the resource.
	next, err := locker.Lock(ctx, "stock")
	if err != nil {
		log.Panic(err)
	}
	stock, err := store.read(next.Fence())
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("first holder:", store.write(before-1, slow.Fence()))
	fmt.Println("second holder:", store.write(stock-1, next.Fence()))
	fmt.Println("stock:", store.stock)
	// Output:
	// first holder: a later holder has read or written
	// second holder: <nil>
	// stock: 9
}

// fencedStore remembers the largest token that it has seen. A table of a database does the same
// with one more column:
//
//	UPDATE stock SET fence = $1 WHERE item = $2 AND fence <= $1 RETURNING amount
//	UPDATE stock SET fence = $1, amount = $3 WHERE item = $2 AND fence <= $1
type fencedStore struct {
	mu      sync.Mutex
	stock   int
	largest int64
}

func (s *fencedStore) read(fence int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock, s.checkLocked(fence)
}

func (s *fencedStore) write(stock int, fence int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.checkLocked(fence)
	if err == nil {
		s.stock = stock
	}
	return err
}

func (s *fencedStore) checkLocked(fence int64) error {
	if fence < s.largest { // equal: the same holder again
		return errors.New("a later holder has read or written")
	}
	s.largest = fence
	return nil
}

// Events go to callbacks, here to a structured log.
func ExampleWithObserver() {
	addrs, stop := exampleMasters()
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // the output of an example must not change
			}
			return a
		},
	}))
	locker, err := redlock.New(addrs, redlock.WithObserver(func(e redlock.Event) {
		switch e.Kind {
		case redlock.EventAcquired, redlock.EventReleased:
			logger.Info(e.Kind.String(), "resource", e.Resource)
		case redlock.EventLost:
			logger.Error("lost", "resource", e.Resource, "err", e.Err)
		case redlock.EventMasterDown:
			logger.Warn("master down", "master", e.Master, "err", e.Err)
		}
	}))
	if err != nil {
		log.Panic(err)
	}
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "stock:item-1")
	if err != nil {
		log.Panic(err)
	}
	if err := lease.Unlock(ctx); err != nil {
		log.Print(err)
	}
	if err := locker.Close(); err != nil { // returns when all events have been delivered
		log.Print(err)
	}
	// Output:
	// level=INFO msg=acquired resource=stock:item-1
	// level=INFO msg=released resource=stock:item-1
}

// A lease that one process took is released by another.
func ExampleLocker_Adopt() {
	addrs, stop := exampleMasters()
	defer stop()
	ctx := context.Background()

	// The first process gets the lease, passes on its data, and ends.
	first, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	lease, err := first.Lock(ctx, "upgrade", redlock.WithTTL(10*time.Second))
	if err != nil {
		log.Panic(err)
	}
	token, fence := lease.Token(), lease.Fence()
	if err := lease.Detach(); err != nil {
		log.Panic(err) // the lease was lost before
	}
	first.Close() // releases all leases except detached ones

	// The second process has this time to take the lease over.
	second, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer second.Close()
	_, err = second.TryLock(ctx, "upgrade")
	fmt.Println("still taken:", errors.Is(err, redlock.ErrTaken))
	lease, err = second.Adopt(ctx, "upgrade", token, fence)
	switch {
	case errors.Is(err, redlock.ErrNotHeld):
		log.Panic("too late: ", err)
	case err != nil:
		log.Panic(err) // too few masters answered: the program may try again
	}
	fmt.Println("the same lease:", lease.Token() == token, lease.Fence() == fence)
	fmt.Println("released:", lease.Unlock(ctx))
	// Output:
	// still taken: true
	// the same lease: true true
	// released: <nil>
}

// The data that a process leaves to another one, which takes its lease over.
func ExampleLease_Detach() {
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	lease, err := locker.Lock(context.Background(), "upgrade", redlock.WithTTL(10*time.Second))
	if err != nil {
		log.Panic(err)
	}
	left := lease.Validity() // the other process has this time
	if err := lease.Detach(); err != nil {
		log.Panic(err)
	}
	fmt.Println(left > 5*time.Second, context.Cause(lease.Context()))
	// Output: true redlock: lease detached
}

var (
	exampleMasters = locktest.ExampleMasters // three masters inside this process, which have their votes
	newMasters     = locktest.NewMasters     // the same without votes
)
