package contender

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Again(m)) }

// A floor without a quorum would be too low.
func TestFloorNeedsAQuorum(outer *testing.T) {
	t := redistest.Timed(outer)
	list := redistest.Masters(t, 3)
	f, err := dialFloor(t.Context(), redistest.Addrs(list))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	once := func(ctx context.Context, key string) error {
		lease, err := f.Lock(ctx, key)
		if err != nil {
			return err
		}
		return errors.Join(lease.Extend(ctx), lease.Unlock(ctx))
	}
	for taken, want := range []error{nil, nil, errFloorRefused, errFloorRefused} {
		if taken > 0 {
			c := redistest.Client(t, list[taken-1].Addr())
			if err := c.Set(t.Context(), "k", "another", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := once(t.Context(), "k"); !errors.Is(err, want) {
			t.Errorf("taken on %d of 3: got %v, want %v", taken, err, want)
		}
	}
	for down, want := range []error{nil, nil, errFloorRefused, errFloorRefused} {
		if down > 0 {
			if err := list[down-1].Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err := once(t.Context(), "free"); !errors.Is(err, want) {
			t.Errorf("%d of 3 down: got %v, want %v", down, err, want)
		}
	}
}
