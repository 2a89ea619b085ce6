package redlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// A reader that would join other readers needs the word of the queue node: a refusal there ends its
// attempt, whatever the votes. Where it meets no readers, a quorum is enough, and so it is for a writer.
//
// Source: ALGORITHM section 12, "Order".
func TestReaderThatJoinsNeedsTheQueueNode(t *testing.T) {
	for _, test := range []struct {
		name           string
		shared, meets  bool
		queueNode      queueReply
		before, within phase // after the votes of the others; after the queue node's answer
	}{
		{"a reader joins, and is refused", true, true, queueReply{heard: true, refused: true}, asking, lost},
		{"a reader joins, and the queue node grants", true, true, queueReply{heard: true}, asking, won},
		{"a reader meets no readers", true, false, queueReply{heard: true, refused: true}, won, won},
		{"a writer", false, false, queueReply{heard: true, refused: true}, won, won},
	} {
		r := rules.New()
		a := attempt{rules: r, need: 2, timeout: time.Second, useless: never, nodes: make([]voter, 3),
			skew:     func(int, instant) (error, bool) { return nil, true },
			approach: approach{policy: &defaultQueuePolicy, shared: test.shared}}
		a.step(event{what: begun}, 0, nil)
		for i := 1; i < 3; i++ {
			a.step(event{what: voted, node: i, vote: vote{counter: 64, server: string(rune('a' + i)), readers: test.meets}}, 1, nil)
		}
		if a.phase != test.before {
			t.Errorf("%s: got phase %d after the votes of the others, want %d", test.name, a.phase, test.before)
		}
		last := vote{counter: 64, server: "a", queue: test.queueNode}
		if test.queueNode.refused {
			last.counter, last.refused, last.err = 0, true, errHeldByOther
		}
		a.step(event{what: voted, vote: last}, 2, nil)
		if a.phase != test.within {
			t.Errorf("%s: got phase %d after the queue node's answer, want %d", test.name, a.phase, test.within)
		}
	}
}

// A TAKEN that answers a request of before the downgrade says nothing: the reader's request went before.
// A TAKEN that answers a reader's request ends the lease.
//
// Source: ALGORITHM section 12, "Downgrade".
func TestTakenOfBeforeADowngrade(t *testing.T) {
	for _, late := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHanding(t)
			for i := range h.g.nodes {
				h.g.nodes[i].held, h.g.nodes[i].had = true, true
			}
			round := func() *round {
				h.g.mu.Lock()
				defer h.g.mu.Unlock()
				return h.g.startRoundLocked(h.pool.now(), h.g.ttl)
			}
			rd := round()
			if changed, err := h.lease.share(); !changed || err != nil {
				t.Fatalf("got %v, %v", changed, err)
			}
			if !late {
				rd = round()
			}
			for i := range 2 {
				rd.Receive(&node.Request{Op: wire.Extend, Node: i}, node.Reply{Code: wire.Taken, At: h.pool.now()})
			}
			if lost := errors.Is(h.lease.Err(), ErrLost); lost == late {
				t.Errorf("of before the downgrade: %v; got the lease lost: %v", late, lost)
			}
		})
	}
}

// The release of a reader's lease does not take its process out of the queue: other callers of the process
// may wait there by then. That of a downgraded lease does not either.
func TestReleaseOfAReaderKeepsThePlace(t *testing.T) {
	for _, downgraded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHanding(t)
			h.g.name = h.pool.queuesAs(lineKey{})
			if downgraded {
				if _, err := h.lease.share(); err != nil {
					t.Fatal(err)
				}
			} else {
				h.release(h.lease, h.pool.now())
				h.sent()
				lc := h.conf.lockConfig
				lc.shared = true
				g := newGrant(h.pool, "r", lc)
				g.name = h.pool.queuesAs(lineKey{shared: true})
				for _, n := range h.pool.nodes {
					g.keys.AssumeSent(n)
				}
				h.lease = h.grantLease(t.Context(), g, nil, time.Now())
			}
			h.release(h.lease, h.pool.now())
			named := 0
			for _, n := range h.pool.nodes {
				for _, r := range n.Unsent() {
					if r.Process != "" {
						named++
						if r.Process != wire.NoProcess || !r.Shared {
							t.Errorf("downgraded: %v; got a release by %q, shared %v", downgraded, r.Process, r.Shared)
						}
					}
				}
			}
			if named == 0 {
				t.Error("got no release at the queue node")
			}
		})
	}
}
