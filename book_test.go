package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
)

// book is a history that is written while a test goes on. All Lockers of a bubble have the
// same clock.
type book struct {
	history.History
	client *history.Client

	mu   sync.Mutex
	held map[*redlock.Lease]*history.Held[*redlock.Lease] // guarded by mu
	left map[*redlock.Lease]bool                          // unlocked, and whether seen to be over; guarded by mu
	late []string                                         // problems with those; guarded by mu
}

func newBook() *book {
	b := &book{held: make(map[*redlock.Lease]*history.Held[*redlock.Lease]), left: make(map[*redlock.Lease]bool)}
	b.client = &history.Client{Name: "c", Sink: b.Add, Now: func() time.Duration { return time.Duration(time.Now().UnixNano()) }, Why: why}
	return b
}

// why tells the one reason apart for which a lease is valid to its very end.
func why(err error) string {
	if errors.Is(err, redlock.ErrExpired) {
		return history.Expired
	}
	return "other"
}

// take has try get a lease, and writes down what comes of it.
func (b *book) take(resource string, waits bool, try func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	b.look()
	h, err := history.Take(b.client, resource, waits, try)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[h.Lease] = h
	b.lookLocked(resource) // others may have become longer meanwhile
	return h.Lease, nil
}

// free gives a lease back. From then on nothing may be left of it when another one is
// granted, unless it was over before: Unlock does not end the last moment that a lost lease
// has for winding down.
func (b *book) free(ctx context.Context, lease *redlock.Lease) error {
	b.mu.Lock()
	b.lookLocked("")
	h := b.held[lease]
	delete(b.held, lease)
	if lease.Context().Err() == nil {
		b.left[lease] = false
	}
	b.mu.Unlock()
	err := h.Free(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, watched := b.left[lease]; watched {
		b.left[lease] = true
	}
	if errors.Is(err, redlock.ErrLost) {
		delete(b.left, lease)
	}
	return err
}

// look has every holder look at its lease.
func (b *book) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookLocked("")
}

// lookLocked is look when a resource has just been granted, or none.
func (b *book) lookLocked(granted string) {
	for _, h := range b.held {
		h.Look()
	}
	for lease, over := range b.left {
		valid := lease.Validity() > 0
		if valid && (over || lease.Resource() == granted) {
			b.late = append(b.late, fmt.Sprintf("lease of %q with fence %d valid for %v after Unlock", lease.Resource(), lease.Fence(), lease.Validity()))
		}
		b.left[lease] = over || !valid
	}
}

// problems is all that is wrong. The run has to be over.
func (b *book) problems() (list []string) {
	for _, v := range b.Check(history.Rules{}) {
		list = append(list, v.String())
	}
	return append(list, b.late...)
}

// leases is how many were granted. The run has to be over.
func (b *book) leases() (n int) {
	for _, a := range b.Done {
		if a.Held {
			n++
		}
	}
	return n
}

// A lease that still is valid when the next one is granted, though its holder has called
// Unlock, is a problem.
func TestBookSeesALeaseThatOutlivesUnlock(t *testing.T) {
	for _, returned := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			seen := newBook()
			take := func(l *redlock.Locker) *redlock.Lease {
				lease, err := seen.take("r", false, func() (*redlock.Lease, error) { return l.TryLock(t.Context(), "r") })
				must(t, err)
				return lease
			}
			first := take(b.warmLocker())
			seen.mu.Lock()
			delete(seen.held, first)
			seen.left[first] = returned // from an Unlock that ends nothing
			seen.mu.Unlock()
			take(b.locker(redlock.WithKeyPrefix("other:"), redlock.WithoutRestartGuard()))
			problems := seen.problems()
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasSuffix(p, " after Unlock") }) {
				t.Errorf("Unlock has returned: %v: got problems %q, want one of the first lease", returned, problems)
			}
		})
	}
}
