package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// Work that is handed a context alone reaches the lease that protects it, whichever package took that.
func TestVirtualLeaseFrom(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l, ctx := b.WarmLocker(), t.Context()
		want := func(what string, ctx context.Context, lease *redlock.Lease) {
			t.Helper()
			got, ok := redlock.LeaseFrom(ctx)
			if ok != (lease != nil) || ok && (got.Token() != lease.Token() || got.Fence() != lease.Fence() || got.Resource() != lease.Resource()) {
				t.Errorf("%s: got %v, want the lease %v", what, ok, lease != nil)
			}
		}
		wantAll := func(what string, ctx context.Context, lease *several.Lease) {
			t.Helper()
			got, ok := several.LeaseFrom(ctx)
			if ok != (lease != nil) || ok && got.Context() != lease.Context() {
				t.Errorf("%s: got %v, want the lease of all parts %v", what, ok, lease != nil)
			} else if ok && !slices.EqualFunc(got.Parts(), lease.Parts(), func(a, b *redlock.Lease) bool { return a.Token() == b.Token() }) {
				t.Errorf("%s: the parts are others", what)
			}
		}
		want("outside", ctx, nil)
		wantAll("outside", ctx, nil)
		job, err := jobs.New(l)
		locktest.Must(t, err)
		permits, err := semaphore.New(l, "s", 3)
		locktest.Must(t, err)
		leader, err := election.New(l, "e")
		locktest.Must(t, err)
		single := func(what string) func(context.Context, *redlock.Lease) error {
			return func(ctx context.Context, lease *redlock.Lease) error {
				want(what, ctx, lease)
				want(what+", its own context", lease.Context(), lease)
				wantAll(what, ctx, nil)
				return several.Do(ctx, l, several.Names{Write: []string{"a", "b"}}, func(ctx context.Context, all *several.Lease) error {
					want("several within "+what, ctx, nil)
					wantAll("several within "+what, ctx, all)
					wantAll("several within "+what+", its own context", all.Context(), all)
					if _, err := l.TryLock(ctx, "b"); !errors.Is(err, redlock.ErrReentry) {
						t.Errorf("several within %s: got %v, want %v", what, err, redlock.ErrReentry)
					}
					return l.Do(ctx, "c", func(ctx context.Context, inner *redlock.Lease) error {
						want("a lock within several", ctx, inner)
						wantAll("a lock within several", ctx, all)
						return nil
					})
				})
			}
		}
		locktest.Must(t, l.Do(ctx, "r", single("Do")))
		locktest.Must(t, job.Run(ctx, "j", single("Run")))
		locktest.Must(t, leader.Run(ctx, single("lead")))
		locktest.Must(t, permits.Do(ctx, 1, func(ctx context.Context, lease *semaphore.Lease) error {
			want("a permit", ctx, lease.Parts()[0])
			wantAll("a permit", ctx, lease.Lease)
			return nil
		}))
		locktest.Must(t, permits.Do(ctx, 2, func(ctx context.Context, lease *semaphore.Lease) error {
			want("two permits", ctx, nil)
			wantAll("two permits", ctx, lease.Lease)
			return nil
		}))
		over := b.Lock(l, "r")
		b.Unlock(over)
		want("a lease that is over", over.Context(), over)
	})
}
