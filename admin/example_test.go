package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
)

// New masters could be masters that lost their data, and have no vote for a while. The tool that
// sets up a deployment vouches for them, once. A service never does: at its start masters that
// restarted empty would look the same.
func ExampleBootstrap() {
	addrs, stop := newMasters()
	defer stop()
	locker, err := redlock.New(addrs, patient)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	ctx := context.Background()
	_, err = locker.TryLock(ctx, "stock:item-1")
	fmt.Println("no vote yet:", errors.Is(err, redlock.ErrQuarantine))
	if err := admin.Bootstrap(ctx, locker); err != nil {
		log.Panic(err) // a master does not answer, or is in use: wait instead
	}
	_, err = locker.TryLock(ctx, "stock:item-1") // released by Close
	fmt.Println("vouched for:", err)
	// Output:
	// no vote yet: true
	// vouched for: <nil>
}

// Check reports what the masters know, here that clients disagree.
func ExampleCheck() {
	addrs, stop := exampleMasters(redlock.WithMaxTTL(time.Minute))
	defer stop()
	other, err := redlock.New(addrs, patient, redlock.WithMaxTTL(time.Minute))
	if err != nil {
		log.Panic(err)
	}
	defer other.Close()
	if _, err := other.TryLock(context.Background(), "report", redlock.WithTTL(time.Minute)); err != nil {
		log.Panic(err)
	}
	locker, err := redlock.New(addrs, patient)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	report, err := admin.Check(context.Background(), locker)
	if err != nil {
		fmt.Println(err) // some master has no vote; the error says which, and why
	}
	fmt.Printf("%d of %d masters have a vote, %d are needed\n", report.Voting, len(report.Masters), report.Quorum)
	said := make(map[string]bool) // masters often say the same
	for _, m := range report.Masters {
		for _, f := range m.Findings {
			if f.Level >= admin.LevelWarning && !said[f.Text] {
				fmt.Printf("%s: %s (%s)\n", f.Check, f.Text, f.Hint)
				said[f.Text] = true
			}
		}
	}
	// Output:
	// 3 of 3 masters have a vote, 2 are needed
	// max-ttl: another client has a TTL of 1m0s, this one has WithMaxTTL(10s) (give all clients the same value)
}

// Break ends a lock that its holder does not release.
func ExampleBreak() {
	locker, stop := exampleLocker(redlock.WithTTL(2 * time.Second))
	defer stop()

	ctx := context.Background()
	stuck, err := locker.Lock(ctx, "report") // and renews it
	if err != nil {
		log.Panic(err)
	}
	was, err := admin.Break(ctx, locker, "report")
	if err != nil {
		log.Panic(err) // too few masters answered, and the holder may go on
	}
	fmt.Println("it was the stuck one:", was.Token == stuck.Token(), was.Fence == stuck.Fence())
	fmt.Println("free within its TTL:", was.FreeIn() <= 2*time.Second)
	<-stuck.Context().Done() // at once, in this Locker; the keys are dropped after its context has ended
	fmt.Println(context.Cause(stuck.Context()))
	// Output:
	// it was the stuck one: true true
	// free within its TTL: true
	// redlock: lease lost: key gone from too many masters: lock was broken
}

// Inspect is for operators and for monitoring.
func ExampleInspect() {
	locker, stop := exampleLocker()
	defer stop()

	ctx := context.Background()
	lease, err := locker.Lock(ctx, "stock:item-1")
	if err != nil {
		log.Panic(err)
	}
	for _, resource := range []string{"stock:item-1", "stock:item-2"} {
		seen, err := admin.Inspect(ctx, locker, resource)
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(resource, seen.Verdict, seen.Token == lease.Token())
	}
	// Output:
	// stock:item-1 HELD true
	// stock:item-2 FREE false
}

var (
	exampleMasters = locktest.ExampleMasters // three masters inside this process, which have their votes
	exampleLocker  = locktest.ExampleLocker  // a Locker for such masters
	newMasters     = locktest.NewMasters     // the same without votes

	patient = redlock.WithMasterTimeout(2 * time.Second) // examples run on busy machines, too
)
