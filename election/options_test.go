package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
)

// Each option of the leases means for a term what it means for a lock, or New refuses it.
func TestVirtualOptions(t *testing.T) {
	locktest.EachOption(t, 3, locktest.Entry{
		Waits: true, Refuses: []string{"WithReentry", "Shared"},
		Take: func(b *locktest.Bubble, opts ...redlock.LockOption) (h locktest.Held, err error) {
			h.Locker = b.Locker()
			if _, err := election.New(h.Locker, "r", opts...); err != nil {
				return h, err
			}
			started := make(chan context.Context, 1)
			c := campaign(b.T, h.Locker, func(ctx context.Context, lease *redlock.Lease) error {
				started <- ctx
				return leading(ctx, lease)
			}, opts...)
			h.Work, h.Lease = locktest.Receive(b.T, started, "a term"), c.term(b.T)
			h.End = func() { c.stop(); <-c.done }
			return h, nil
		},
	})
}

// After a term that was shorter than the minimum hold, the resource stays taken, and then another
// process leads.
func TestVirtualElectorMinHold(t *testing.T) {
	const minHold = 4 * time.Second
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		a := campaign(t, b.Locker(), leading, redlock.WithMinHold(minHold))
		a.term(t)
		began := time.Now()
		z := campaign(t, b.Locker(), leading, redlock.WithMinHold(minHold))
		time.Sleep(time.Second)
		a.Resign()
		time.Sleep(minHold - time.Second - time.Millisecond)
		wantLeading(t, a, false)
		wantLeading(t, z, false)
		z.term(t)
		locktest.WantWithin(t, "the next term", began, minHold+10*time.Millisecond)
		time.Sleep(time.Minute)
		wantLeading(t, a, false)
		wantLeading(t, z, true)
	})
}
