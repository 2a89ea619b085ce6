package redlocktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/redlocktest"
)

// t is that of the test that has the code of an example.
var t *testing.T

// The body of a test, in a bubble of testing/synctest: the minute takes no time. The masters vote at once.
func ExampleStart() {
	synctest.Test(t, func(t *testing.T) {
		locker := redlocktest.Start(t, 3).Locker()
		err := locker.Do(t.Context(), "mailer", func(ctx context.Context, _ *redlock.Lease) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("got %v, want a minute of work", err)
		}
	})
}

// A program that makes its own Locker takes the options of the masters.
func ExampleCluster_Options() {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		locker, err := redlock.NewFromOptions(masters.Options(), redlock.WithTTL(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		lease, err := locker.Lock(t.Context(), "mailer")
		if err != nil {
			t.Fatal(err)
		}
		if got := masters.Holder("mailer"); got != lease.Token() {
			t.Errorf("got holder %q, want the lease", got)
		}
	})
}

// With a majority of the masters hung, a lease is over within its TTL, and its context says so.
func ExampleMaster_Hang() {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		lease, err := masters.Locker().Lock(t.Context(), "mailer")
		if err != nil {
			t.Fatal(err)
		}
		masters.Masters()[0].Hang()
		masters.Masters()[1].Hang()
		time.Sleep(redlock.DefaultTTL)
		if !errors.Is(context.Cause(lease.Context()), redlock.ErrLost) {
			t.Error("got a lease that goes on, want a lost lease")
		}
	})
}

// The examples cannot run by themselves, as they have no test.
func TestExamples(real *testing.T) {
	for name, example := range map[string]func(){
		"Start": ExampleStart, "Cluster_Options": ExampleCluster_Options, "Master_Hang": ExampleMaster_Hang,
	} {
		real.Run(name, func(sub *testing.T) {
			t = sub
			example()
		})
	}
}
