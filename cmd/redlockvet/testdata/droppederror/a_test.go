package droppederror

import (
	"context"
	"testing"

	"github.com/d0720281/redlock"
)

func TestInATest(t *testing.T) {
	var lease *redlock.Lease
	defer lease.Unlock(t.Context())
}

func Example() {
	var lease *redlock.Lease
	defer lease.Unlock(context.Background()) // want `the error of Unlock is dropped`
}
