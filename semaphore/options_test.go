package semaphore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/semaphore"
)

// Each option means for a lease of permits what it means for a lock, also for several permits, or New
// refuses it.
func TestVirtualOptions(t *testing.T) {
	acquired := func(take func(*semaphore.Semaphore, context.Context, int) (*semaphore.Lease, error)) func(*testing.T, *semaphore.Semaphore, int, *locktest.Held) error {
		return func(t *testing.T, s *semaphore.Semaphore, n int, h *locktest.Held) error {
			lease, err := take(s, t.Context(), n)
			if err == nil {
				h.Lease, h.Work, h.End = lease, lease.Context(), func() { _ = lease.Unlock(context.Background()) }
			}
			return err
		}
	}
	for name, take := range map[string]func(*testing.T, *semaphore.Semaphore, int, *locktest.Held) error{
		"Acquire":    acquired((*semaphore.Semaphore).Acquire),
		"TryAcquire": acquired((*semaphore.Semaphore).TryAcquire),
		"Do": func(t *testing.T, s *semaphore.Semaphore, n int, h *locktest.Held) error {
			return h.Run(t, func(work func(context.Context, locktest.HeldLease) error) error {
				return s.Do(t.Context(), n, func(ctx context.Context, lease *semaphore.Lease) error { return work(ctx, lease) })
			})
		},
	} {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprint(name, " of ", n), func(t *testing.T) {
				locktest.EachOption(t, 3, locktest.Entry{
					Resource: "s~1", Waits: name != "TryAcquire", Parts: n > 1, Refuses: []string{"WithReentry", "Shared"},
					Take: func(b *locktest.Bubble, opts ...redlock.LockOption) (h locktest.Held, err error) {
						h.Locker = b.Locker()
						s, err := semaphore.New(h.Locker, "s", n, opts...)
						if err != nil {
							return h, err
						}
						err = take(b.T, s, n, &h)
						return h, err
					},
				})
			})
		}
	}
}
