package lock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
)

// A tracer sees the start and the end of each call, in that order and in the call's own goroutine, and
// the call's context.
func TestTracer(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		type key struct{}
		var got []string
		l := b.WarmLocker(redlock.WithTracer(func(ctx context.Context, op, resource string) func(*redlock.Lease, error) {
			if op == "TryLock" && resource == "untold" {
				return nil
			}
			got = append(got, fmt.Sprint(op, " ", resource, " ", ctx.Value(key{})))
			return func(le *redlock.Lease, err error) {
				fence := "none"
				if le != nil {
					fence = "a lease"
				}
				got = append(got, fmt.Sprint(op, " ends: ", fence, ", ", redlock.Reason(err)))
			}
		}))
		got = nil // of the warm-up
		ctx := context.WithValue(t.Context(), key{}, "value")
		locktest.WantErr(t, l.Do(ctx, "r", func(_ context.Context, le *redlock.Lease) error {
			locktest.Must(t, le.Extend(context.Background()))
			_, err := l.TryLock(ctx, "r")
			_, _ = l.TryLock(ctx, "untold")
			return err
		}), redlock.ErrTaken)
		_, err := l.Lock(ctx, "")
		locktest.WantErr(t, err, redlock.ErrConfig)
		want := []string{
			"Lock r value", "Lock ends: a lease, ",
			"Extend r <nil>", "Extend ends: a lease, ",
			"TryLock r value", "TryLock ends: none, taken",
			"Unlock r value", "Unlock ends: a lease, ",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
