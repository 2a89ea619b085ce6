package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/reason"
)

// of returns a bubble with some of the nodes, for a Locker with another list.
func (b *bubble) of(nodes ...int) *bubble { return newBubble(b.Part(nodes...)) }

// joins returns the lists of masters in use on a node, and when a client joined with each.
func (n *bubbleNode) joins() (text string) {
	n.inside(func(r *miniredis.Miniredis) { text = r.HGet(redlock.DefaultKeyPrefix+"~guard", "lists") })
	return text
}

// lists returns the lists without the times, shortened.
func (n *bubbleNode) lists() (lists []string) {
	for line := range strings.Lines(n.joins()) {
		_, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		lists = append(lists, strings.ReplaceAll(strings.ReplaceAll(list, "10.0.0.", ""), ":6379", ""))
	}
	return lists
}

// Two clients have lists that differ in one master of three. The first client holds a lease on the
// masters that the second one cannot reach or does not have. The second client gets no lease until
// the first one's list is not in use any more.
//
// Source: ALGORITHM section 8, "Membership".
func TestVirtualExchangedMaster(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bubble) {
		b.vouch()
		before, after := b.of(0, 1, 2), b.of(0, 1, 3)
		first := before.warmLocker()
		b.nodes[0].blackhole()
		lease := b.lock(first, "r") // on nodes 1 and 2
		b.nodes[0].heal()
		b.nodes[1].blackhole()
		second := after.locker()
		for range 3 {
			if _, err := second.TryLock(t.Context(), "r"); !errors.Is(err, reason.Membership) {
				t.Fatalf("TryLock with the other list, by nodes 0 and 3: got %v, want reason.Membership", err)
			}
			time.Sleep(time.Second)
		}
		b.nodes[1].heal()
		time.Sleep(time.Second)
		if _, err := second.Lock(t.Context(), "r"); !errors.Is(err, reason.Membership) {
			t.Errorf("Lock with the other list: got %v, want an end with reason.Membership", err)
		}
		b.unlock(lease)
		must(t, first.Close())
		gone := time.Now()
		for {
			lease, err := second.TryLock(t.Context(), "r")
			if err == nil {
				b.unlock(lease)
				break
			}
			if !errors.Is(err, reason.Membership) || time.Since(gone) > 30*time.Second {
				t.Fatalf("TryLock %v later: got %v, want reason.Membership, and a lease after some time", time.Since(gone), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if waited := time.Since(gone); waited < 10*time.Second || waited > 21*time.Second {
			t.Errorf("the list was in use for %v more, want two quarantines from its last join", waited)
		}
	})
}

// A master is added, and another one removed, while locks are used. No call fails.
func TestVirtualMasterAddedAndRemoved(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bubble) {
		b.vouch()
		lists := []*bubble{b.of(0, 1, 2), b.of(0, 1, 2, 3), b.of(1, 2, 3)}
		old := lists[0].warmLocker()
		for i, next := range lists[1:] {
			l := next.warmLocker()
			for range 3 {
				b.unlock(b.lock(old, "r"))
				b.unlock(b.lock(l, "r"))
				time.Sleep(time.Second)
			}
			must(t, old.Close())
			old = l
			if i == 0 {
				time.Sleep(21 * time.Second) // the clients with the first list have finished
			}
		}
		for _, i := range []int{1, 2, 3} {
			if got := strings.Join(b.nodes[i].lists(), ", "); !strings.Contains(got, "2 3 4") {
				t.Errorf("node %d: got lists %q, want the last one among them", i, got)
			}
		}
	})
}

// A master restarts empty, and a client with a wrong list is the first to ask it after that. This
// gives the client no second vote.
func TestVirtualExchangedMasterAfterARestart(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bubble) {
		b.vouch()
		before, after := b.of(0, 1, 2), b.of(0, 1, 3)
		first := before.warmLocker()
		second := after.locker()
		lease := b.lock(first, "r")
		b.nodes[0].restartEmpty()
		for range 30 {
			if _, err := second.TryLock(t.Context(), "r"); !errors.Is(err, reason.Membership) {
				t.Fatalf("TryLock with the other list: got %v, want reason.Membership", err)
			}
			time.Sleep(time.Second)
		}
		if err := lease.Extend(t.Context()); err != nil {
			t.Errorf("Extend: got %v, want no error", err)
		}
		if got := b.nodes[0].lists(); len(got) != 2 {
			t.Errorf("the restarted node: got lists %q, want both", got)
		}
		b.unlock(lease)
		synctest.Wait()
	})
}

// A client sends its list as seldom as possible, and never with a look or a release.
func TestVirtualJoins(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		looking := b.locker()
		_, err := admin.Check(t.Context(), looking)
		must(t, err)
		_, err = admin.Inspect(t.Context(), looking, "r")
		must(t, err)
		if got := b.nodes[0].lists(); len(got) != 0 {
			t.Errorf("after Check and Inspect: got lists %q, want none", got)
		}
		l := b.warmLocker()
		joined := b.nodes[0].joins()
		for range 50 {
			b.unlock(b.lock(l, "r"))
			time.Sleep(100 * time.Millisecond)
		}
		if got := b.nodes[0].joins(); got != joined {
			t.Errorf("after 5 s: got lists %q, want them as they were: %q", got, joined)
		}
		time.Sleep(time.Second)
		b.unlock(b.lock(l, "r"))
		if got := b.nodes[0].joins(); got == joined {
			t.Errorf("after 6 s: got lists %q, want the list with another time", got)
		}
	})
}
