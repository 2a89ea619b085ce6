package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
)

// zeros is the worst random source that a program can set.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Ids are unique whatever random source package uuid has. With equal ids two processes would take
// each other's keys and calls for their own.
//
// Source: ALGORITHM section 1 ("an attempt id of its own").
func TestIDsWithADeterministicUUID(t *testing.T) {
	t.Setenv("REDLOCK_DETERMINISTIC_UUID", "yes") // a parallel test must not change the source
	t.Cleanup(func() { uuid.SetRand(nil) })
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		uuid.SetRand(zeros{}) // the nodes have their run ids already
		holder, rival := b.WarmLocker(), b.WarmLocker()
		lease := b.Lock(holder, "r")
		if other, err := rival.TryLock(t.Context(), "r"); err == nil {
			t.Errorf("two Lockers have the resource: with token %s and %s", lease.Token(), other.Token())
		}
		queueNode := b.Nodes[locktest.QueueNodeOf(holder, "r")]
		for _, l := range []*redlock.Locker{b.WarmLocker(), b.WarmLocker()} {
			go func() { _, _ = l.Lock(t.Context(), "r") }()
		}
		time.Sleep(3 * time.Second)
		if got := strings.Count(queueNode.Queued(redlock.DefaultKeyPrefix+"r"), "~inbox:") / 2; got != 2 { // queue and seen
			t.Errorf("processes in the queue: got %d, want 2", got)
		}
		b.Lock(holder, "s")
		for _, resource := range []string{"r", "s"} {
			if _, err := admin.Break(t.Context(), rival, resource); err != nil {
				t.Errorf("Break(%q): got %v, want no error", resource, err)
			}
		}
		if r, s := queueNode.Value("r"), queueNode.Value("s"); r == s {
			t.Errorf("Break put %q in the place of both keys, want a value for each", r)
		}
	})
}
