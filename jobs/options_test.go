package jobs_test

import (
	"context"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
)

// Each option of the leases means for a job what it means for a lock, or New refuses it.
func TestVirtualOptions(t *testing.T) {
	for name, test := range map[string]struct {
		resource string
		take     func(*testing.T, *jobs.Locker, *locktest.Held) error
	}{
		"Lock": {"r", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			lock, err := j.Lock(t.Context(), "r")
			if err == nil {
				h.Lease, h.Work, h.End = lock, lock.Context(), func() { _ = lock.Unlock(t.Context()) }
			}
			return err
		}},
		"Run": {"r", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			return h.Run(t, func(work func(context.Context, locktest.HeldLease) error) error {
				return j.Run(t.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error { return work(ctx, lease) })
			})
		}},
		"RunWithPermit": {"r~1", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			return h.Run(t, func(work func(context.Context, locktest.HeldLease) error) error {
				return j.RunWithPermit(t.Context(), "r", 1, func(ctx context.Context, lease *semaphore.Lease) error { return work(ctx, lease) })
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.EachOption(t, 3, locktest.Entry{
				Resource: test.resource, Refuses: []string{"WithReentry", "Shared"},
				Take: func(b *locktest.Bubble, opts ...redlock.LockOption) (h locktest.Held, err error) {
					h.Locker = b.Locker()
					j, err := jobs.New(h.Locker, opts...)
					if err != nil {
						return h, err
					}
					err = test.take(b.T, j, &h)
					return h, err
				},
			})
		})
	}
}
