package order_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

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
			// The release and the call, and an attempt;
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
		lease, err := inside.Of(l).LockAny(t.Context(), "r", 1)
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
		l, err := redlock.NewFromOptions(named)
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
		locktest.WantWithin(t, "all of it", start, 500*time.Millisecond) // each new client waits for node 3 once
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

// TestMain fails the run if a goroutine is left when all tests are over.
//
// Source: ALGORITHM section 13, I11.
func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Again(m)) }
