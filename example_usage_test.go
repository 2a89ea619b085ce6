package redlock_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
)

// Masters with TLS, and a user whose password changes.
func ExampleNewFromOptions() {
	var masters []*redis.Options
	for _, addr := range []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"} {
		masters = append(masters, &redis.Options{
			Addr:      addr,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13},
			CredentialsProviderContext: func(context.Context) (user, password string, err error) {
				return "redlock", "secret", nil // called for each connection
			},
		})
	}
	locker, err := redlock.NewFromOptions(masters)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
}

// Lock waits as long as its context does. Its error says why there was no lease.
func ExampleLocker_Lock() {
	locker, stop := exampleLocker()
	defer stop()
	holder, err := locker.Lock(context.Background(), "stock:item-1")
	if err != nil {
		log.Panic(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = locker.Lock(ctx, "stock:item-1")
	fmt.Println("not acquired:", errors.Is(err, redlock.ErrNotAcquired))
	fmt.Println("another holder has it:", errors.Is(err, redlock.ErrTaken))
	fmt.Println("the time was over:", errors.Is(err, context.DeadlineExceeded))

	if err := holder.Unlock(context.Background()); err != nil {
		log.Panic(err)
	}
	_, err = locker.Lock(context.Background(), "stock:item-1") // released by Close
	fmt.Println("after Unlock:", err)
	// Output:
	// not acquired: true
	// another holder has it: true
	// the time was over: true
	// after Unlock: <nil>
}

// The context of a lease ends before the lease, and its cause is the reason.
func ExampleLease_Context() {
	locker, stop := exampleLocker()
	defer stop()
	lease, err := locker.Lock(context.Background(), "report", redlock.WithTTL(100*time.Millisecond), redlock.WithoutRenewal())
	if err != nil {
		log.Panic(err)
	}
	<-lease.Context().Done()
	why := context.Cause(lease.Context())
	fmt.Println("lost:", errors.Is(why, redlock.ErrLost))
	fmt.Println("because its time was over:", errors.Is(why, redlock.ErrExpired))
	// Output:
	// lost: true
	// because its time was over: true
}

// Extend lengthens the lease before a step that must not be interrupted.
func ExampleLease_Extend() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "migration")
	if err != nil {
		log.Panic(err)
	}
	if err := lease.Extend(ctx); err != nil {
		log.Panic(err) // do not begin
	}
	fmt.Println("time enough:", lease.Validity() > 5*time.Second)
	fmt.Println(lease.Unlock(ctx))
	fmt.Println("afterwards:", errors.Is(lease.Extend(ctx), redlock.ErrNotHeld))
	// Output:
	// time enough: true
	// <nil>
	// afterwards: true
}

// A function that locks is called by a holder of the lock.
func ExampleWithReentry() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "account:7")
	if err != nil {
		log.Panic(err)
	}
	_, err = locker.Lock(lease.Context(), "account:7") // it would wait for itself
	fmt.Println("refused:", errors.Is(err, redlock.ErrReentry))

	again, err := locker.Lock(lease.Context(), "account:7", redlock.WithReentry())
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("the same lease:", again.Token() == lease.Token())
	fmt.Println(again.Unlock(ctx), lease.Unlock(ctx)) // the second Unlock releases
	// Output:
	// refused: true
	// the same lease: true
	// <nil> <nil>
}

// Work that hangs does not hold the resource for ever.
func ExampleWithMaxHold() {
	locker, stop := exampleLocker()
	defer stop()
	err := locker.Do(context.Background(), "report", func(ctx context.Context, _ *redlock.Lease) error {
		<-ctx.Done() // hangs
		return nil
	}, redlock.WithTTL(time.Second), redlock.WithMaxHold(time.Second))
	fmt.Println(errors.Is(err, redlock.ErrLost), errors.Is(err, redlock.ErrMaxHold))
	// Output: true true
}

// Applications that share masters have different prefixes, and do not exclude each other.
func ExampleWithKeyPrefix() {
	addrs, stop := newMasters()
	defer stop()
	for _, prefix := range []string{"shop:", "mail:"} {
		locker, err := redlock.New(addrs, redlock.WithKeyPrefix(prefix))
		if err != nil {
			log.Panic(err)
		}
		defer locker.Close()
		if err := locker.Bootstrap(context.Background()); err != nil {
			log.Panic(err)
		}
		_, err = locker.TryLock(context.Background(), "nightly") // released by Close
		fmt.Println(prefix, err)
	}
	// Output:
	// shop: <nil>
	// mail: <nil>
}

// Messages for operators go to a log that the program chooses.
func ExampleWithLogger() {
	var warnings bytes.Buffer
	addrs, stop := newMasters() // no client has used them yet
	defer stop()
	locker, err := redlock.New(addrs, redlock.WithLogger(slog.New(slog.NewTextHandler(&warnings, nil))))
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = locker.Lock(ctx, "stock:item-1")
	fmt.Println("masters in quarantine:", errors.Is(err, redlock.ErrQuarantine))
	if err := locker.Close(); err != nil { // returns when everything has been logged
		log.Panic(err)
	}
	fmt.Println("and the log says so:", bytes.Contains(warnings.Bytes(), []byte("masters in quarantine")))
	// Output:
	// masters in quarantine: true
	// and the log says so: true
}

// Inspect is for operators and for monitoring.
func ExampleLocker_Inspect() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "stock:item-1")
	if err != nil {
		log.Panic(err)
	}
	for _, resource := range []string{"stock:item-1", "stock:item-2"} {
		seen, err := locker.Inspect(ctx, resource)
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(resource, seen.Verdict, seen.Token == lease.Token())
	}
	// Output:
	// stock:item-1 HELD true
	// stock:item-2 FREE false
}

// QuorumError has the answer of each master.
func ExampleQuorumError() {
	locker, err := redlock.New([]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}) // no server runs there
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	_, err = locker.TryLock(context.Background(), "stock:item-1")
	var verdict *redlock.QuorumError
	if errors.As(err, &verdict) {
		fmt.Printf("%s of %s: %d of the %d needed\n", verdict.Op, verdict.Resource, verdict.Granted, verdict.Need)
		for _, m := range verdict.Masters {
			fmt.Println(m.Master, m.Err != nil)
		}
	}
	// Output:
	// lock of stock:item-1: 0 of the 2 needed
	// 127.0.0.1:1 true
	// 127.0.0.1:2 true
	// 127.0.0.1:3 true
}

// A word for a label, or for a field of a log.
func ExampleReason() {
	locker, stop := exampleLocker()
	defer stop()
	for range 2 {
		_, err := locker.TryLock(context.Background(), "stock:item-1") // released by Close
		fmt.Printf("%q\n", redlock.Reason(err))
	}
	// Output:
	// ""
	// "taken"
}

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
	if err := locker.Close(); err != nil { // returns when all events have been delivered
		log.Print(err)
	}
	fmt.Println("acquired:", acquired)
	// Output: acquired: 1
}

// A snapshot of the Locker's state, without asking a master.
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
	fmt.Println(s.Counts.Acquired, "acquired,", s.Counts.Lost, "lost,", len(s.Masters), "masters")
	// Output:
	// stock:item-1 10s true
	// 1 acquired, 0 lost, 3 masters
}

// exampleLocker returns a Locker for three masters that have their votes. stop closes it.
func exampleLocker() (locker *redlock.Locker, stop func()) {
	addrs, stopMasters := exampleMasters()
	locker, err := redlock.New(addrs)
	if err != nil {
		log.Panic(err)
	}
	return locker, func() {
		_ = locker.Close()
		stopMasters()
	}
}
