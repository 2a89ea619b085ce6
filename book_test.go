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

// book is a history that is recorded during a test. All Lockers of a bubble have the same clock.
type book struct {
	history.History
	client *history.Client

	mu   sync.Mutex
	held map[*redlock.Lease]*history.Held[*redlock.Lease] // guarded by mu
	left map[*redlock.Lease]bool                          // unlocked, and whether the lease was seen to be over; guarded by mu
	late []string                                         // problems with these; guarded by mu
}

func newBook() *book {
	b := &book{held: make(map[*redlock.Lease]*history.Held[*redlock.Lease]), left: make(map[*redlock.Lease]bool)}
	b.client = &history.Client{Name: "c", Sink: b.Add, Now: func() time.Duration { return time.Duration(time.Now().UnixNano()) }, Why: why}
	return b
}

// why returns the one reason for which a lease is valid to its very end.
func why(err error) string {
	if errors.Is(err, redlock.ErrExpired) {
		return history.Expired
	}
	return "other"
}

// take calls try to get a lease, and records the outcome.
func (b *book) take(resource string, waits bool, try func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	b.look()
	h, err := history.Take(b.client, resource, waits, try)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[h.Lease] = h
	b.lookLocked(resource) // leases of others may have become longer meanwhile
	return h.Lease, nil
}

// takeShared is take for a lease of a reader.
func (b *book) takeShared(resource string, try func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	h, err := history.TakeShared(b.client, resource, false, try)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[h.Lease] = h
	return h.Lease, nil
}

// free unlocks a lease. From then on the lease may have no validity when another one is granted,
// unless it was over before: Unlock does not shorten the last moment that a lost lease leaves its
// holder for winding down.
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

// look makes every holder look at its lease.
func (b *book) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookLocked("")
}

// lookLocked is look with mu held. granted is the resource that has just been granted, or "".
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

// problems returns all problems. The run must be over.
func (b *book) problems() (list []string) {
	for _, v := range b.Check(history.Rules{}) {
		list = append(list, v.String())
	}
	return append(list, b.late...)
}

// leases returns the number of leases that were granted. The run must be over.
func (b *book) leases() (n int) {
	for _, a := range b.Done {
		if a.Held {
			n++
		}
	}
	return n
}

// A lease that is still valid when the next one is granted, although its holder has called Unlock,
// is a problem.
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
			seen.left[first] = returned // of an Unlock without effect
			seen.mu.Unlock()
			take(b.locker(redlock.WithKeyPrefix("other:"), redlock.WithoutRestartGuard()))
			problems := seen.problems()
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasSuffix(p, " after Unlock") }) {
				t.Errorf("Unlock has returned: %v: got problems %q, want a problem of the first lease", returned, problems)
			}
		})
	}
}
