package locktest

import (
	"context"
	"testing"

	"github.com/d0720281/redlock"
)

// An Entry whose package drops the options is found out by each of them; a lock itself is not.
func TestEachOption(t *testing.T) {
	entry := func(drops bool) Entry {
		return Entry{Take: func(b *Bubble, opts ...redlock.LockOption) (h Held, err error) {
			if drops {
				opts = nil
			}
			h.Locker = b.Locker()
			lease, err := h.Locker.TryLock(b.T.Context(), "r", opts...)
			if err != nil {
				return h, err
			}
			h.Lease, h.Work, h.End = lease, lease.Context(), func() { b.Unlock(lease) }
			h.Nest = func(ctx context.Context) (*redlock.Lease, error) { return h.Locker.TryLock(ctx, "r", opts...) }
			return h, nil
		}}
	}
	EachOption(t, 3, entry(false))
	missed := map[string]bool{"WithTTL": true, "WithoutRenewal": true, "WithMaxHold": true, "WithMinHold": true, "WithGrace": true,
		"WithOwner": true, "WithQuarantineWait": true, "WithReentry": true, "Shared": true}
	eachOption(t, 3, entry(true), func(_ *testing.T, option, _ string) { delete(missed, option) })
	if len(missed) > 0 {
		t.Errorf("options that can be dropped: %v", missed)
	}
	refuses := entry(false)
	refuses.Refuses = []string{"WithTTL"}
	found := false
	eachOption(t, 3, refuses, func(_ *testing.T, option, _ string) { found = found || option == "WithTTL" })
	if !found {
		t.Error("an option that is taken, and should be refused, is not found")
	}
}
