package order_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// waiting returns how many processes the queue of "r" has on a node.
func waiting(n *virtual.Node) (k int) { return waitingFor(n, "r") }

func waitingFor(n *virtual.Node, resource string) (k int) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		all, _ := r.SortedSet(redlock.DefaultKeyPrefix + resource + "~queue")
		k = len(all)
	})
	return k
}

// The queue node serves several Lockers one after another, in their order, and calls each at the
// moment at which the holder before it releases.
//
// Source: ALGORITHM section 10, "wake"; section 13, I10.
func TestVirtualQueueNode(t *testing.T) {
	const there, back = 3 * time.Millisecond, 2 * time.Millisecond
	// From Unlock: the release goes to the queue node, the call comes back, and then comes the round
	// trip of the attempt.
	const handsOn = there + back + there + back
	// A waiter asks again about once a second. If that is just now, it gets the resource sooner, or is
	// refused before it is called.
	const soonest, latest = there + back, handsOn + there + back
	const net = 1200*time.Millisecond + latest // if it is not called at all
	type scene struct {
		*locktest.Bubble
		queueNode *virtual.Node
		lockers   []*redlock.Locker
		ways      []*locktest.Uplink
		held      *redlock.Lease
		waiters   []*locktest.Waiter
	}
	// begin makes the first Locker hold "r" and the others wait for it, in order.
	begin := func(t *testing.T, b *locktest.Bubble, lockers int, opts ...redlock.Option) *scene {
		t.Helper()
		s := &scene{Bubble: b}
		for range lockers {
			u := new(locktest.Uplink)
			s.ways = append(s.ways, u)
			s.lockers = append(s.lockers, locktest.LockerBy(b, u, opts...))
		}
		s.queueNode = b.Nodes[locktest.QueueNodeOf(s.lockers[0], "r")]
		b.All(func(n *virtual.Node) { n.Latency(there, back) })
		s.held = b.Lock(s.lockers[0], "r")
		for i, l := range s.lockers[1:] {
			s.waiters = append(s.waiters, b.Wait(t.Context(), l))
			time.Sleep(200 * time.Millisecond)
			if got := waiting(s.queueNode); got != i+1 {
				t.Fatalf("in the queue: got %d, want %d", got, i+1)
			}
		}
		return s
	}
	// unlocked unlocks a lease, and returns the time.
	unlocked := func(t *testing.T, lease *redlock.Lease) time.Time {
		t.Helper()
		now := time.Now()
		done := make(chan struct{})
		t.Cleanup(func() { <-done })
		go func() {
			defer close(done)
			if err := lease.Unlock(context.Background()); err != nil {
				t.Errorf("Unlock: got %v, want no error", err)
			}
		}()
		return now
	}
	wantAfter := func(t *testing.T, w *locktest.Waiter, since time.Time, least, most time.Duration) {
		t.Helper()
		if got := w.At.Sub(since); got < least || got > most {
			t.Errorf("the next lease: got it after %v, want from %v to %v", got, least, most)
		}
	}
	locktest.Subtest(t, "a call comes at once", 5, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 2)
		since := unlocked(t, s.held)
		b.Got(s.waiters[0])
		wantAfter(t, s.waiters[0], since, handsOn, handsOn)
	})
	// firstOf waits until the first of two waiters is served.
	firstOf := func(waiters []*locktest.Waiter) (first, second *locktest.Waiter) {
		select {
		case <-waiters[0].Done:
			return waiters[0], waiters[1]
		case <-waiters[1].Done:
			return waiters[1], waiters[0]
		}
	}
	locktest.Subtest(t, "first come, first served, without a pause", 5, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 6)
		lease := s.held
		for _, w := range s.waiters {
			since := unlocked(t, lease)
			next := b.Got(w)
			wantAfter(t, w, since, soonest, latest)
			if next.Fence() <= lease.Fence() {
				t.Errorf("fence: got %d after %d, want a larger fence", next.Fence(), lease.Fence())
			}
			lease = next
			time.Sleep(300 * time.Millisecond)
		}
		unlocked(t, lease)
		time.Sleep(time.Second)
		locktest.WantNothingLeft(b)
		for i, l := range s.lockers {
			if got := door.Look(l).Lines(); got != 0 {
				t.Errorf("lines of Locker %d: got %d, want none", i, got)
			}
		}
	})
	locktest.Subtest(t, "a Locker that has done stands behind the others", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 3)
		ours := b.Wait(t.Context(), s.lockers[0], redlock.WithMaxHold(time.Hour)) // so that there is no hand-over
		lease := s.held
		for _, w := range append(s.waiters, ours) {
			since := unlocked(t, lease)
			lease = b.Got(w)
			wantAfter(t, w, since, soonest, latest)
			time.Sleep(300 * time.Millisecond)
		}
		unlocked(t, lease)
	})
	locktest.Subtest(t, "a call that is lost", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 2)
		since := unlocked(t, s.held)
		time.Sleep(there - 1)
		s.queueNode.LoseReplies()
		time.Sleep(there)
		s.queueNode.Heal()
		b.Got(s.waiters[0])
		wantAfter(t, s.waiters[0], since, soonest, net)
	})
	locktest.Subtest(t, "a subscription that is lost", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 2)
		s.queueNode.BreakOff() // the nodes' other connections, too
		since := unlocked(t, s.held)
		b.Got(s.waiters[0])
		wantAfter(t, s.waiters[0], since, soonest, net)
		unlocked(t, s.waiters[0].Lease)
		time.Sleep(12 * time.Second)
		locktest.WantNothingLeft(b)
	})
	locktest.Subtest(t, "a waiter that is cut off", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 3)
		s.ways[1].Dead.Store(true)
		since := unlocked(t, s.held)
		b.Got(s.waiters[1])
		// It has been called, and its turn lasts 250 ms.
		wantAfter(t, s.waiters[1], since, 250*time.Millisecond, net)
	})
	locktest.Subtest(t, "a waiter that has been cut off for long", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 3)
		s.ways[1].Dead.Store(true)
		time.Sleep(4300 * time.Millisecond) // it has not asked for 3 s
		since := unlocked(t, s.held)
		b.Got(s.waiters[1])
		wantAfter(t, s.waiters[1], since, soonest, latest)
	})
	locktest.Subtest(t, "a waiter whose connections end", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 3)
		locktest.Must(t, s.lockers[1].Close())
		<-s.waiters[0].Done
		locktest.WantMatch(t, "Lock", s.waiters[0].Err, []error{redlock.ErrClosed})
		if got := waiting(s.queueNode); got != 1 {
			t.Errorf("in the queue: got %d, want 1", got)
		}
		since := unlocked(t, s.held)
		b.Got(s.waiters[1])
		wantAfter(t, s.waiters[1], since, soonest, latest)
	})
	locktest.Subtest(t, "a holder that is gone", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 3, redlock.WithTTL(3*time.Second))
		s.ways[0].Dead.Store(true)
		since := time.Now() // within 3 s of a renewal
		first, second := firstOf(s.waiters)
		wantAfter(t, first, since, time.Second, 3*time.Second+net)
		time.Sleep(2 * time.Second)
		since = unlocked(t, b.Got(first))
		b.Got(second)
		wantAfter(t, second, since, soonest, latest)
	})
	locktest.Subtest(t, "callers that give up", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 1)
		l := locktest.LockerBy(b, new(locktest.Uplink))
		ctx, cancel := context.WithCancel(t.Context())
		heads := []*locktest.Waiter{b.Wait(ctx, l), b.Wait(ctx, l)}
		stays, stay := context.WithCancel(t.Context())
		last := b.Wait(stays, l)
		time.Sleep(time.Second)
		cancel()
		for _, w := range heads {
			<-w.Done
			locktest.WantMatch(t, "Lock", w.Err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.Canceled})
		}
		time.Sleep(time.Second)
		if got := waiting(s.queueNode); got != 1 {
			t.Errorf("in the queue, with one caller left: got %d, want 1", got)
		}
		stay()
		<-last.Done
		time.Sleep(there + back + there + 250*time.Millisecond) // an attempt may be under way, and the mark lives so long
		if got := s.queueNode.Queued(redlock.DefaultKeyPrefix + "r"); got != "" {
			t.Errorf("when all have left: got%s, want no queue", got)
		}
		unlocked(t, s.held)
		time.Sleep(time.Second)
		locktest.WantNothingLeft(b)
	})
	locktest.Subtest(t, "waiters that are gone for good", 3, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 4)
		for _, u := range s.ways[1:] {
			u.Dead.Store(true)
		}
		time.Sleep(2500 * time.Millisecond)
		if got := waiting(s.queueNode); got == 0 {
			t.Error("in the queue after less than 3 s: got no process, want them remembered")
		}
		time.Sleep(2 * time.Second)
		if got := s.queueNode.Queued(redlock.DefaultKeyPrefix + "r"); got != "" {
			t.Errorf("after more than 3 s: got%s, want no queue", got)
		}
		unlocked(t, s.held)
		time.Sleep(time.Second)
		locktest.WantNothingLeft(b)
	})
	locktest.Subtest(t, "a queue node that is killed", 5, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 3)
		s.queueNode.Kill()
		time.Sleep(3 * time.Second) // they have asked again
		queueNode := b.Nodes[locktest.QueueNodeOf(s.lockers[1], "r")]
		if queueNode == s.queueNode {
			t.Fatal("the queue node: got the node that is down, want another node")
		}
		if got := waiting(queueNode); got != 2 {
			t.Errorf("in the queue of the next queue node: got %d, want 2", got)
		}
		since := unlocked(t, s.held)
		first, second := firstOf(s.waiters)                    // in the order in which they have asked there
		wantAfter(t, first, since, soonest, latest+there+back) // two of them may have met just now
		b.All((*virtual.Node).ForgetCalls)
		time.Sleep(10 * time.Second)
		for i, n := range b.Nodes {
			if got := n.Seen("acquire", "r"); got > 30 {
				t.Errorf("acquires seen by node %d in 10 s, while one waits: got %d, want at most 30", i, got)
			}
		}
		since = unlocked(t, b.Got(first))
		b.Got(second)
		wantAfter(t, second, since, soonest, latest)
	})
	locktest.Subtest(t, "a queue node that hangs", 5, func(t *testing.T, b *locktest.Bubble) {
		s := begin(t, b, 3)
		s.queueNode.Hang()
		since := unlocked(t, s.held)
		first, second := firstOf(s.waiters)
		wantAfter(t, first, since, there+back, net+2*locktest.MasterTimeout)
		since = unlocked(t, b.Got(first))
		b.Got(second)
		wantAfter(t, second, since, there+back, net+2*locktest.MasterTimeout)
		s.queueNode.Resume()
		unlocked(t, second.Lease)
		time.Sleep(12 * time.Second)
		locktest.WantNothingLeft(b)
	})
}

// A caller gets a free resource without the queue node. A caller that knows of waiting processes
// gives the queue node a short time to answer, and obeys an answer in that time.
//
// Source: ALGORITHM section 10, "Free lock" and "a queue node that is slow".
func TestVirtualQueueNodeHasItsSay(t *testing.T) {
	const trip = 10 * time.Millisecond // for all nodes but the queue node
	// crowded returns a Locker that knows of another waiting Locker.
	crowded := func(t *testing.T, b *locktest.Bubble) (l *redlock.Locker, queueNode *virtual.Node) {
		t.Helper()
		l, other, holder := b.WarmLocker(), b.WarmLocker(), b.WarmLocker()
		held := b.Lock(holder, "r")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.Wait(ctx, other)
		time.Sleep(time.Second)
		if _, err := l.TryLock(t.Context(), "r"); err == nil {
			t.Fatal("TryLock: got a lease, want it taken")
		}
		synctest.Wait() // otherwise a node may see it after the release
		cancel()
		<-w.Done
		b.Unlock(held)
		b.WantHolding("r")
		return l, b.Nodes[locktest.QueueNodeOf(l, "r")]
	}
	for _, test := range []struct {
		name      string
		queueNode time.Duration // its round trip; negative if it hangs
		patient   bool
		takes     time.Duration
		turn      string
		taken     bool
		forgotten bool
	}{
		{name: "no process waits, the queue node is slow", queueNode: 30 * time.Millisecond, takes: trip},
		{name: "no process waits, the queue node hangs", queueNode: -1, takes: trip},
		{name: "others wait, the queue node is as fast", patient: true, queueNode: trip, takes: trip},
		{name: "others wait, the queue node is a little slower", patient: true, queueNode: 15 * time.Millisecond, takes: 15 * time.Millisecond},
		{name: "others wait, the queue node is twice as slow", patient: true, queueNode: 2*trip - 1, takes: 2*trip - 1},
		{name: "others wait, the queue node is slower than that", patient: true, queueNode: 30 * time.Millisecond, takes: 2 * trip},
		{name: "others wait, the queue node hangs", patient: true, queueNode: -1, takes: 2 * trip},
		{name: "others have waited a TTL ago, the queue node hangs", patient: true, forgotten: true, queueNode: -1, takes: trip},
		{name: "another has been called", queueNode: trip - 1, turn: "another", takes: trip - 1, taken: true},
		{name: "another has been called, which others wait for", patient: true, queueNode: 15 * time.Millisecond, turn: "another", takes: 15 * time.Millisecond, taken: true},
		{name: "another has been called, but the queue node is too slow to say so", queueNode: 30 * time.Millisecond, turn: "another", takes: trip},
	} {
		locktest.Subtest(t, test.name, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			queueNode := b.Nodes[locktest.QueueNodeOf(l, "r")]
			if test.patient {
				l, queueNode = crowded(t, b)
			}
			if test.forgotten {
				time.Sleep(locktest.TTL)
			}
			b.All(func(n *virtual.Node) { n.Latency(0, trip) })
			if test.queueNode < 0 {
				queueNode.Hang()
			} else {
				queueNode.Latency(0, test.queueNode)
			}
			if test.turn != "" {
				queueNode.Put(redlock.DefaultKeyPrefix+"r~turn", test.turn, time.Second)
			}
			start := time.Now()
			_, err := l.TryLock(t.Context(), "r")
			locktest.WantSince(t, "TryLock", start, test.takes)
			if !test.taken {
				if err != nil {
					t.Errorf("TryLock: got %v, want a lease", err)
				}
				return
			}
			locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken}, redlock.ErrNoQuorum)
			time.Sleep(2 * trip)
			b.WantHolding("r")
		})
	}
	locktest.Subtest(t, "a waiter without an answer of the queue node asks the others", 5, func(t *testing.T, b *locktest.Bubble) {
		l, queueNode := crowded(t, b)
		queueNode.Hang()
		start := time.Now()
		lease, err := l.Lock(t.Context(), "r") // it asks the queue node first
		locktest.Must(t, err)
		// It rests first, and asks after a pause of up to 2 ms.
		if got, least := time.Since(start), locktest.MasterTimeout; got < least || got > least+3*time.Millisecond {
			t.Errorf("Lock: got the lease after %v, want %v and the pause", got, least)
		}
		if got, least := lease.Validity(), locktest.Validity-locktest.MasterTimeout; got < least || got > least+3*time.Millisecond {
			t.Errorf("validity: got %v, want %v and the pause", got, least)
		}
	})
}

// A queue node that answers later than a quorum of the others still keeps the queue.
//
// Source: ALGORITHM section 10.
func TestVirtualQueueNodeIsTheLast(t *testing.T) {
	for _, n := range []int{3, 5} {
		locktest.Subtest(t, fmt.Sprint(n, " nodes"), n, func(t *testing.T, b *locktest.Bubble) {
			lockers := []*redlock.Locker{b.WarmLocker(), b.WarmLocker(), b.WarmLocker()}
			queueNode := b.Nodes[locktest.QueueNodeOf(lockers[0], "r")]
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			queueNode.Latency(time.Millisecond, 1500*time.Microsecond)
			held := b.Lock(lockers[0], "r")
			waiters := []*locktest.Waiter{b.Wait(t.Context(), lockers[1])}
			time.Sleep(500 * time.Millisecond)
			waiters = append(waiters, b.Wait(t.Context(), lockers[2]))
			for range 5 {
				time.Sleep(1700 * time.Millisecond)
				if got := waiting(queueNode); got != 2 {
					t.Fatalf("in the queue: got %d, want 2", got)
				}
			}
			for i, n := range b.Nodes {
				if got := n.Seen("acquire", "r"); got > 50 {
					t.Errorf("acquires seen by node %d while two wait for 8 s: got %d, want at most 50", i, got)
				}
			}
			start := time.Now()
			b.Unlock(held)
			b.Got(waiters[0])
			if got := waiters[0].At.Sub(start); got > 10*time.Millisecond {
				t.Errorf("the next lease: got it after %v, want it at once", got)
			}
		})
	}
}

// A waiter leaves time for a holder's renewals if the queue node does not hold the holder's lease:
// the queue node grants every attempt of the waiter. Thus the waiter has the key that the holder
// lacks while it hopes that the other nodes are about to be released.
//
// Source: ALGORITHM section 10, "While the queue node has granted".
func TestVirtualWaiterLeavesRoom(t *testing.T) {
	const ttl = time.Second
	for _, waiters := range []int{1, 3} {
		locktest.Subtest(t, fmt.Sprint(waiters), 5, func(t *testing.T, b *locktest.Bubble) {
			opts := []redlock.Option{redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl)}
			holder := b.WarmLocker(opts...)
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			queueNode := locktest.QueueNodeOf(holder, "r")
			lacking := []*virtual.Node{b.Nodes[queueNode], b.Nodes[(queueNode+1)%5]}
			for _, n := range lacking { // only during the grant
				n.Put(redlock.DefaultKeyPrefix+"r", "of another holder", 20*time.Millisecond)
			}
			held := b.Lock(holder, "r")
			for range waiters {
				b.Wait(t.Context(), b.WarmLocker(opts...))
			}
			time.Sleep(ttl)
			for _, n := range lacking {
				if got := n.Value("r"); !strings.HasPrefix(got, held.Token()) {
					t.Errorf("node %s: got %q after a TTL, want the key of the holder", n.Addr(), got)
				}
			}
			b.Unlock(held)
		})
	}
}

// A holder may lack the key of the queue node: it was granted without it, before the last holder's
// release arrived there. The next process is served all the same as soon as the holder unlocks,
// whether it has just come, is just asking, or has asked in vain.
//
// Source: ALGORITHM section 10, "rest".
func TestVirtualHolderWithoutItsQueueNode(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	const there = 250 * time.Microsecond
	for hold := time.Duration(0); hold < 3*time.Second; hold += 7*time.Millisecond + hold/time.Duration(redistest.Rounds(3, 20)) {
		locktest.Subtest(t, hold.String(), 5, func(t *testing.T, b *locktest.Bubble) {
			holder, waiter := b.WarmLocker(), b.WarmLocker()
			b.All(func(n *virtual.Node) { n.Latency(there, there) })
			queueNode := b.Nodes[locktest.QueueNodeOf(holder, "r")]
			queueNode.Put(redlock.DefaultKeyPrefix+"r", "earlier|0", time.Millisecond)
			held := b.Lock(holder, "r", redlock.WithoutRenewal())
			time.Sleep(time.Millisecond)
			if got := queueNode.Value("r"); got != "" {
				t.Fatalf("the queue node has %q, want it without a key", got)
			}
			w := b.Wait(t.Context(), waiter)
			time.Sleep(hold)
			since := time.Now()
			b.Unlock(held)
			b.Got(w)
			// The release and the call, and an attempt that asks the queue node and then the others;
			// or the pause after which an attempt under way asks them again.
			if got, most := w.At.Sub(since), 8*there+2*time.Millisecond; got > most {
				t.Errorf("the next lease: got it after %v, want at most %v", got, most)
			}
			b.Unlock(w.Lease)
			time.Sleep(time.Second)
			locktest.WantNothingLeft(b)
		})
	}
}

// One of several resources is granted before the queue node answers that another caller has its turn. The queue node gets
// the key at once: it would call callers to this key that could have another.
//
// Source: ALGORITHM section 10, "Any of several".
func TestVirtualOneOfSeveralWithoutItsQueueNode(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		queueNode := b.Nodes[locktest.QueueNodeOf(l, "r~1")]
		queueNode.Latency(0, 10*time.Millisecond)
		queueNode.Put(redlock.DefaultKeyPrefix+"r~1~turn", "another", 250*time.Millisecond)
		lease := b.Lock(l, "r~1")
		time.Sleep(10 * time.Millisecond)
		b.WantHolding("r~1", 0, 1, 2)
		b.Unlock(lease)
	})
}

// A caller of any of several that is granted without its queue node leaves the queue there.
//
// Source: ALGORITHM section 10, "Any of several".
func TestVirtualOneOfSeveralLeavesTheQueue(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		queueNode := b.Nodes[locktest.QueueNodeOf(l, "r~1")]
		queueNode.Latency(0, 20*time.Millisecond)
		queueNode.Put(redlock.DefaultKeyPrefix+"r~1", "another|64", time.Minute)
		lease, err := l.LockAny(t.Context(), "r", 1)
		locktest.Must(t, err)
		time.Sleep(100 * time.Millisecond)
		if got := queueNode.Queued(redlock.DefaultKeyPrefix + "r~"); got != "" {
			t.Errorf("got%s, want no caller in the queue", got)
		}
		b.Unlock(lease)
	})
}

// A release may reach the queue node while an attempt has its key, and the other nodes, further
// away, after that attempt has asked them in vain. The queue node then makes that process try
// again at once.
//
// Source: ALGORITHM section 10, "the mark".
func TestVirtualMissedRelease(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	const near, far = 250 * time.Microsecond, 2 * time.Millisecond
	for hold := time.Duration(0); hold < 100*time.Millisecond; hold += 100 * time.Millisecond / time.Duration(redistest.Rounds(47, 143)) { // two attempts take 60 ms of these
		locktest.Subtest(t, hold.String(), 5, func(t *testing.T, b *locktest.Bubble) {
			holder, waiter := b.WarmLocker(), b.WarmLocker()
			b.All(func(n *virtual.Node) { n.Latency(far, far) })
			queueNode := b.Nodes[locktest.QueueNodeOf(holder, "r")]
			queueNode.Latency(near, near)
			queueNode.Put(redlock.DefaultKeyPrefix+"r", "earlier|0", time.Millisecond)
			held := b.Lock(holder, "r", redlock.WithoutRenewal())
			w := b.Wait(t.Context(), waiter)
			time.Sleep(hold)
			since := time.Now()
			go func() { _ = held.Unlock(context.Background()) }()
			b.Got(w)
			// The last rounds of an attempt, a pause, and another attempt.
			if got, most := w.At.Sub(since), 20*time.Millisecond; got > most {
				t.Errorf("the next lease: got it after %v, want at most %v", got, most)
			}
			b.Unlock(w.Lease)
			time.Sleep(time.Second)
			locktest.WantNothingLeft(b)
		})
	}
}

// Clients may have different names for the same masters. They still agree on the queue node, so
// that no client waits longer than the others.
//
// Source: ALGORITHM section 10, "The queue node of a resource".
func TestVirtualOtherNames(t *testing.T) {
	locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
		named := make([]*redis.Options, len(b.Nodes))
		for i, n := range b.Nodes {
			named[i] = &redis.Options{Addr: fmt.Sprintf("master-%d.example:6379", i+1), Dialer: n.Dial}
		}
		l, err := redlock.NewFromOptions(named, redlock.WithClock(redlock.RuntimeClock()))
		locktest.Must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		b.Vouch()
		b.Warm(l)
		other := b.WarmLocker()
		for i := range 200 {
			resource := fmt.Sprint("r", i)
			if a, b := locktest.QueueNodeOf(l, resource), locktest.QueueNodeOf(other, resource); a != b {
				t.Errorf("queue node of %s: got node %d by names and node %d by addresses, want the same node", resource, a, b)
			}
		}
	})
}

// It is not known which server a node is that was never reached: another node keeps the queue, the
// same for all clients that have reached it.
func TestVirtualQueueNodeIsKnown(t *testing.T) {
	locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
		b.Nodes[3].Blackhole()
		start := time.Now()
		lockers := []*redlock.Locker{b.WarmLocker(), b.WarmLocker()}
		for i := range 200 {
			resource := fmt.Sprint("r", i)
			queueNode, other := locktest.QueueNodeOf(lockers[0], resource), locktest.QueueNodeOf(lockers[1], resource)
			if queueNode == 3 || queueNode != other {
				t.Errorf("queue node of %s: got nodes %d and %d, want a node that was reached", resource, queueNode, other)
			}
		}
		locktest.WantSince(t, "all of it", start, 0) // node 3 is not known to be down
	})
}

// If a subscription delivers nothing any more, though its connection stays, a waiting process notices
// before it has lost many turns.
//
// Source: ALGORITHM section 10 ("a ping in the subscription").
func TestVirtualHalfOpenSubscription(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	for seed := range redistest.Rounds(1, 10) {
		locktest.Subtest(t, fmt.Sprint(seed), 3, func(t *testing.T, b *locktest.Bubble) {
			var way locktest.Uplink
			lockers := []*redlock.Locker{locktest.LockerBy(b, &way), b.WarmLocker(), b.WarmLocker(), b.WarmLocker(), b.WarmLocker()}
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			time.AfterFunc(5*time.Second+time.Duration(seed)*37*time.Millisecond, way.Deafen)
			s := works(t, lockers, 1, always(50*time.Millisecond), 25*time.Second, 0)
			// It is noticed within 1.2 s. By then the process has asked again, and is behind the others.
			if got, most := s.longest[0], 2*time.Second; got > most {
				t.Errorf("the longest wait of the deaf Locker: got %v, want at most %v", got, most)
			}
			t.Log(s.longest)
		})
	}
}

// A process that unlocks before its acquire was sent to the queue node gives its turn back all the same:
// the next process does not wait until the turn is over.
//
// Source: ALGORITHM section 10, "release".
func TestVirtualTurnEndsWithTheLease(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		holder, busy, next := b.WarmLocker(), b.WarmLocker(), b.WarmLocker()
		queueNode := b.Nodes[locktest.QueueNodeOf(holder, "r")]
		held := b.Lock(holder, "r")
		other := b.Lock(busy, "other")
		first := b.Wait(t.Context(), busy)
		time.Sleep(200 * time.Millisecond)
		second := b.Wait(t.Context(), next)
		time.Sleep(200 * time.Millisecond)
		queueNode.Latency(400*time.Microsecond, 400*time.Microsecond) // near: one exchange at a time
		for range 20 {                                                // until the Locker regards the node as that near
			locktest.Must(t, other.Extend(t.Context()))
			time.Sleep(400 * time.Millisecond)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { // keeps an exchange under way at each moment, so that an acquire waits to be sent
			for ctx.Err() == nil {
				_ = other.Extend(ctx)
				time.Sleep(50 * time.Microsecond)
			}
		}()
		b.Unlock(held)
		since := time.Now()
		b.Unlock(b.Got(first))
		b.Unlock(b.Got(second))
		locktest.WantWithin(t, "the second waiter", since, 20*time.Millisecond)
	})
}

// A caller gives up while its process's rest waits for an exchange. The release that takes the process
// out of the queue goes out in the same batch, behind the rest: no ghost is left in the queue.
//
// Source: ALGORITHM section 5, "Order of requests".
func TestVirtualRestBeforeRelease(t *testing.T) {
	const there, back = 400 * time.Microsecond, 400 * time.Microsecond // below 1 ms: one exchange at a time
	locktest.InBubble(t, 1, func(t *testing.T, b *locktest.Bubble) {
		holder, next, l := b.WarmLocker(), b.WarmLocker(), b.WarmLocker()
		held := b.Lock(holder, "r")
		waiter := b.Wait(t.Context(), next)
		if _, err := l.TryLock(t.Context(), "r"); err == nil {
			t.Fatal("got a lease that another process has")
		} // and knows now that another process waits: its callers rest at once
		b.Nodes[0].Latency(there, back)
		b.Nodes[0].ForgetCalls()
		busy := b.WaitFor(t.Context(), l, "other")
		time.Sleep(there / 4)
		ctx, cancel := context.WithTimeout(t.Context(), there/4)
		defer cancel()
		_, _ = l.Lock(ctx, "r")
		if !busy.Waits() {
			t.Fatal("no exchange is under way: the schedule has come apart")
		}
		b.Unlock(b.Got(busy))
		if b.Nodes[0].Seen("rest", "r") == 0 {
			t.Fatal("no rest: the schedule has come apart")
		}
		if got := waiting(b.Nodes[0]); got != 1 {
			t.Errorf("processes in the queue: got %d, want 1", got)
		}
		b.Unlock(held)
		b.Unlock(b.Got(waiter))
	})
}

// A caller rests while a TryLock of its process is under way, which is granted, and gives up before
// that lease ends. It leaves no ghost in the queue, whose turn would cost the next process 250 ms.
//
// Source: ALGORITHM section 10, "In one process".
func TestVirtualRestBesideTryLock(t *testing.T) {
	const there, back = 3 * time.Millisecond, 2 * time.Millisecond
	locktest.InBubble(t, 1, func(t *testing.T, b *locktest.Bubble) {
		b.Nodes[0].Latency(there, back)
		holder, next, l := b.WarmLocker(), b.WarmLocker(), b.WarmLocker()
		held := b.Lock(holder, "r")
		waiter := b.Wait(t.Context(), next)
		early, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer stop()
		if _, err := l.Lock(early, "r"); err == nil {
			t.Fatal("got a lease that another process has")
		} // and listens, and knows that another process waits: its callers rest at once
		b.Unlock(held)
		b.Unlock(b.Got(waiter))
		b.Nodes[0].ForgetCalls()
		granted := make(chan *redlock.Lease)
		go func() {
			lease, _ := l.TryLock(t.Context(), "r")
			granted <- lease
		}()
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, _ = l.Lock(ctx, "r")
		lease := <-granted
		if lease == nil || b.Nodes[0].Seen("rest", "r") == 0 {
			t.Fatal("no lease or no rest: the schedule has come apart")
		}
		time.Sleep(10 * time.Millisecond)
		if got := waiting(b.Nodes[0]); got != 0 {
			t.Errorf("processes in the queue: got %d, want none", got)
		}
		waiter = b.Wait(t.Context(), next)
		time.Sleep(20 * time.Millisecond)
		since := time.Now()
		b.Unlock(lease)
		b.Unlock(b.Got(waiter))
		locktest.WantWithin(t, "the waiter", since, 50*time.Millisecond)
	})
}

// TestMain fails the run if a goroutine is left when all tests are over.
//
// Source: ALGORITHM section 13, I11.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
