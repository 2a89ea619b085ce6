package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/wire"
)

// testPermits goes through what attempts for permits do to the slots of a semaphore.
//
// Source: ALGORITHM section 14.
func testPermits(t *testing.T, base *node) {
	of := func(t *testing.T, count, all uint16) *node {
		n := base.fresh(t)
		n.pinned, n.first, n.permits = true, 1, wire.Permits{Count: count, Of: all}
		return n
	}
	with := func(n *node, count, first uint16) *node { // the same semaphore
		other := *n
		other.permits.Count, other.first = count, first
		return &other
	}
	slot := func(n *node, i int) *node {
		other := *n
		other.permits, other.key = wire.Permits{}, wire.Slot(n.key, i)
		other.counterKey = other.key + wire.FenceSuffix
		return &other
	}
	chosen := func(t *testing.T, rep Reply, want ...int) {
		t.Helper()
		if rep.Err != nil || rep.Code != wire.Chosen || len(rep.Slots) != len(want) {
			t.Fatalf("got %+v, want slots %v", rep, want)
		}
		for i, s := range rep.Slots {
			if s.Number != want[i] {
				t.Errorf("got slot %d, want %d", s.Number, want[i])
			}
		}
	}
	busy := func(t *testing.T, rep Reply) {
		t.Helper()
		if rep.Code != wire.Busy || rep.Extra > hour || rep.Extra < hour-minute {
			t.Errorf("got %+v, want that it is busy, for an hour", rep)
		}
	}
	t.Run("free slots are taken, all or none", func(t *testing.T) {
		n := of(t, 2, 3)
		rep := n.acquire(t, "a", 0)
		chosen(t, rep, 1, 2)
		rep.Slot(0).want(t, wire.Granted, theTime, 0)
		slot(n, 1).wantKeys(t, value("a", theTime), fmt.Sprint(theTime))
		slot(n, 2).wantKeys(t, value("a", theTime), fmt.Sprint(theTime))
		busy(t, n.acquire(t, "b", 0))
		slot(n, 3).wantKeys(t, "", "")
		chosen(t, with(n, 1, 2).acquire(t, "b;web 1", 0), 3)
		rep = with(n, 1, 3).acquire(t, "c", 0)
		busy(t, rep)
		if rep.Owner != "web 1" {
			t.Errorf("got the owner %q, want that of the slot asked for", rep.Owner)
		}
		n.release(t, "a", 0, 0).want(t, wire.Released, 0, 0)
		n.release(t, "a", 0, 0).want(t, wire.Gone, 0, 0)
		slot(n, 1).wantKeys(t, "", fmt.Sprint(theTime))
		slot(n, 3).wantKeys(t, value("b;web 1", theTime), fmt.Sprint(theTime))
		rep = n.acquire(t, "c", 0)
		chosen(t, rep, 1, 2)
		rep.Slot(1).want(t, wire.Granted, theTime+64, 0)
	})
	t.Run("a request that comes twice gets the same slots", func(t *testing.T) {
		n := of(t, 2, 4)
		chosen(t, with(n, 1, 3).acquire(t, "other", 0), 3)
		chosen(t, with(n, 2, 3).acquire(t, "a", 0), 4, 1)
		slot(n, 3).Del(t.Context(), slot(n, 3).key)
		rep := with(n, 2, 3).acquire(t, "a", 0)
		chosen(t, rep, 4, 1)
		rep.Slot(0).want(t, wire.Mine, theTime, 0)
	})
	t.Run("a slot is an ordinary lock", func(t *testing.T) {
		n := of(t, 1, 2)
		chosen(t, n.acquire(t, "a", 0), 1)
		slot(n, 1).acquire(t, "a", 0).want(t, wire.Mine, theTime, 0)
		slot(n, 2).acquire(t, "b", 0).want(t, wire.Granted, theTime, 0)
		busy(t, n.acquire(t, "c", 0))
		slot(n, 1).extend(t, "a", 0, theTime, theTime).want(t, wire.Kept, 0, 0)
		slot(n, 1).release(t, "a", theTime, theTime).want(t, wire.Released, 0, 0)
		slot(n, 1).set(t, slot(n, 1).key, wire.Placeholder("x"), hour)
		busy(t, n.acquire(t, "c", 0))
		n.release(t, "x", 0, 0).want(t, wire.Released, 0, 0) // which ends a placeholder, too
		chosen(t, n.acquire(t, "c", 0), 1)
	})
	t.Run("another number of permits", func(t *testing.T) {
		n := of(t, 1, 2)
		if rep := n.acquire(t, "a", 0); rep.Extra != 0 {
			t.Errorf("got %+v", rep)
		}
		slot(n, 3).acquire(t, "b", 0).want(t, wire.Granted, theTime, 0)
		if rep := n.acquire(t, "c", 0); rep.Code != wire.Chosen || rep.Extra != 1 {
			t.Errorf("got %+v, want that slot 3 is taken", rep)
		}
	})
	t.Run("other programs' data", func(t *testing.T) {
		n := of(t, 1, 2)
		n.RPush(t.Context(), slot(n, 1).key, "x")
		chosen(t, n.acquire(t, "a", 0), 2)
		n.release(t, "a", 0, 0).want(t, wire.Released, 0, 0)
		with(n, 2, 1).acquire(t, "a", 0).want(t, wire.BadType, 1, 1)
		slot(n, 2).wantKeys(t, "", fmt.Sprint(theTime+64))
	})
	t.Run("without a vote", func(t *testing.T) {
		n := of(t, 1, 2)
		n.acquire(t, "a", theTime-1).want(t, wire.Late, 0, 0)
		n.alone = true
		rep := n.acquire(t, "a", 0)
		chosen(t, rep, 1)
		rep.Slot(0).want(t, wire.Unseeded, 0, 0)
	})
	t.Run("at the queue node", func(t *testing.T) {
		n := of(t, 1, 2)
		sub := n.listener(t, "p")
		n.wait(t, 10, "p~2/2", "q~1/2")
		rep, w, _ := n.acquireAtQueueNode(t, "a", "r~1/2")
		rep.want(t, wire.Queued, 2, 1000)
		if got := strings.Join(w.queue, " "); got != "p~2/2 q~1/2" {
			t.Errorf("got the queue %q", got)
		}
		chosen(t, n.acquire(t, "b", 0), 1) // of a client that takes another node for the queue node
		rep, w, _ = n.releaseAtQueueNode(t, "b", "-")
		rep.want(t, wire.Released, 0, 0)
		if w.turn != "p~2/2" || len(w.queue) != 1 {
			t.Errorf("got turn %q, queue %v", w.turn, w.queue)
		}
		if msg, err := sub.ReceiveMessage(t.Context()); err != nil || msg.Payload != n.key+"~2/2" {
			t.Errorf("told: got %v, %v", msg, err)
		}
		rep, _, _ = n.acquireAtQueueNode(t, "a", "r~1/2")
		if rep.Code != wire.Queued || rep.Extra > 250 {
			t.Errorf("got %+v, want the turn of another process", rep)
		}
		two := with(n, 2, 2)
		rep, w, _ = two.acquireAtQueueNode(t, "c", "p~2/2")
		chosen(t, rep, 2, 1)
		if w.turn != "" || rep.Counter != 1 {
			t.Errorf("got turn %q and %+v, want that one process waits", w.turn, rep)
		}
	})
}
