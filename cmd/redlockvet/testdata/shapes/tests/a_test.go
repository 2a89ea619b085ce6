// Package tests has tests of a service with the mistakes that their kind makes.
package tests

import (
	"context"
	"testing"

	"github.com/d0720281/redlock"
)

var locker *redlock.Locker

func TestSold(t *testing.T) {
	lease, err := locker.TryLock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.TryLock(t.Context(), "k"); err != redlock.ErrTaken { // want `redlock.ErrTaken is wrapped`
		t.Error(err)
	}
	lease.Unlock(t.Context()) // missed: the masters of a test end with it
}

// Missed: a test may be about a context from outside.
func TestUnder(t *testing.T) {
	_ = locker.Do(t.Context(), "k", func(context.Context, *redlock.Lease) error { return t.Context().Err() })
}

func ExampleLocker() {
	ctx := context.Background()
	var lease *redlock.Lease
	defer lease.Unlock(ctx) // want `the error of Unlock is dropped`
	_ = locker.Do(ctx, "k", func(context.Context, *redlock.Lease) error {
		return work(ctx) // want `ctx is from outside`
	})
}

func work(ctx context.Context) error { return ctx.Err() }
