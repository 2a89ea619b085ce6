package contender

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// once locks and unlocks.
func once(ctx context.Context, l Locker, key string) error {
	lease, err := l.Lock(ctx, key)
	if err != nil {
		return err
	}
	return errors.Join(lease.Extend(ctx), lease.Unlock(ctx))
}

func newFloor(t *testing.T, list []*masters.Process) Locker {
	t.Helper()
	addrs := redistest.Addrs(list)
	if err := prepareFloor(t.Context(), addrs); err != nil {
		t.Fatal(err)
	}
	f, err := dialFloor(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestFloorNeedsAQuorum(t *testing.T) {
	list := redistest.Masters(t, 3)
	f := newFloor(t, list)
	for taken, want := range []error{nil, nil, errFloorRefused, errFloorRefused} {
		if taken > 0 {
			c := redistest.Client(t, list[taken-1].Addr())
			if err := c.Set(t.Context(), "k", "another", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := once(t.Context(), f, "k"); !errors.Is(err, want) {
			t.Errorf("taken on %d of 3: got %v, want %v", taken, err, want)
		}
	}
	for down, want := range []error{nil, nil, errFloorRefused, errFloorRefused} {
		if down > 0 {
			if err := list[down-1].Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err := once(t.Context(), f, "free"); !errors.Is(err, want) {
			t.Errorf("%d of 3 down: got %v, want %v", down, err, want)
		}
	}
}

func TestFloorHeedsItsContext(t *testing.T) {
	list := redistest.Masters(t, 1)
	f := newFloor(t, list)
	if err := list[0].Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := once(ctx, f, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
}
