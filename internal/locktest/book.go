package locktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/reason"
)

// Book is a history that is recorded during a test. All Lockers of a bubble have the same clock.
type Book struct {
	history.History
	client *history.Client

	mu   sync.Mutex
	held map[*redlock.Lease]*history.Held[*redlock.Lease] // guarded by mu
	left map[*redlock.Lease]bool                          // unlocked, and whether the lease was seen to be over; guarded by mu
	late []string                                         // problems with these; guarded by mu
}

// NewBook returns an empty Book.
func NewBook() *Book {
	b := &Book{held: make(map[*redlock.Lease]*history.Held[*redlock.Lease]), left: make(map[*redlock.Lease]bool)}
	b.client = &history.Client{Name: "c", Sink: b.Add, Now: func() time.Duration { return time.Duration(time.Now().UnixNano()) }, Why: why}
	return b
}

// why returns the one reason for which a lease is valid to its very end.
func why(err error) string {
	if errors.Is(err, reason.Expired) {
		return history.Expired
	}
	return "other"
}

// Take calls try to get a lease, and records the outcome.
func (b *Book) Take(resource string, waits bool, try func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	b.Look()
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

// TakeShared is Take for a lease of a reader.
func (b *Book) TakeShared(resource string, try func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	h, err := history.TakeShared(b.client, resource, false, try)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[h.Lease] = h
	return h.Lease, nil
}

// Free unlocks a lease. From then on the lease may have no validity when another one is granted,
// unless it was over before: Unlock does not shorten the last moment that a lost lease leaves its
// holder for winding down.
func (b *Book) Free(ctx context.Context, lease *redlock.Lease) error {
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

// Look makes every holder look at its lease.
func (b *Book) Look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookLocked("")
}

// lookLocked is Look with mu held. granted is the resource that has just been granted, or "".
func (b *Book) lookLocked(granted string) {
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

// BookRules are the rules by which a Book is checked: a key of no lease may be left for two master
// timeouts, if the test has noted when the faults healed.
var BookRules = history.Rules{Settled: 2 * MasterTimeout}

// LookAt notes the lock keys of a resource on all nodes, at a moment without faults.
func (b *Book) LookAt(bubble *Bubble, resource string) {
	now := time.Duration(time.Now().UnixNano())
	var round []history.Look
	for i, n := range bubble.Nodes {
		id, _, _ := strings.Cut(n.Value(resource), "|")
		round = append(round, history.Look{Node: i, At: now, Done: now, Up: true, Run: n.RunID(), Keys: map[string]history.Key{resource: {ID: id}}})
	}
	b.Rounds = append(b.Rounds, round)
}

// Problems returns all problems. The run must be over.
func (b *Book) Problems() (list []string) {
	for _, v := range b.Check(BookRules) {
		list = append(list, v.String())
	}
	return append(list, b.late...)
}

// Leases returns the number of leases that were granted. The run must be over.
func (b *Book) Leases() (n int) {
	for _, a := range b.Done {
		if a.Held {
			n++
		}
	}
	return n
}
