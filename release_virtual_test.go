package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/reason"
)

// Unlock returns with the quorum, whatever the state of the other nodes, and within the node timeout
// if there is no quorum. The keys are deleted as soon as the nodes are back.
//
// Source: ALGORITHM section 5.
func TestVirtualUnlock(t *testing.T) {
	t.Run("two of five hung", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			synctest.Wait()
			b.each((*bubbleNode).hang, 3, 4)
			start := time.Now()
			b.unlock(lease)
			wantSince(t, "Unlock", start, 0)
			b.wantHolding("r", 3, 4)
			time.Sleep(time.Second)
			b.each((*bubbleNode).resume, 3, 4)
			b.wantHolding("r")
		})
	})
	t.Run("latency is that of the quorum", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			for i, n := range b.nodes {
				n.latency(time.Duration(i+1)*time.Millisecond, time.Duration(i+1)*time.Millisecond)
			}
			start := time.Now()
			b.unlock(lease)
			wantSince(t, "Unlock", start, 6*time.Millisecond)
		})
	})
	t.Run("down since before the lease, and a slow one", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, next := b.warmLocker(), b.warmLocker()
			b.nodes[0].kill()
			b.unlock(b.lock(l, "another")) // finds out that the node is down
			lease := b.lock(l, "r")
			synctest.Wait()
			b.nodes[2].latency(2*time.Millisecond, time.Millisecond)
			start := time.Now()
			b.unlock(lease)
			wantSince(t, "Unlock", start, 3*time.Millisecond)
			b.nodes[2].latency(0, 0)
			b.unlock(b.lock(next, "r")) // no node refuses because of the lease that was released
		})
	})
	t.Run("down since before the lease, and hung since", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			b.nodes[0].kill()
			b.unlock(b.lock(l, "another")) // finds out that the node is down
			lease := b.lock(l, "r")
			synctest.Wait()
			b.nodes[2].hang()
			start := time.Now()
			b.unlock(lease) // two nodes have no key of the lease: the first never had one
			wantSince(t, "Unlock", start, timeout10)
			b.wantHolding("r", 2)
		})
	})
	for name, fault := range map[string]func(*bubbleNode){"hung": (*bubbleNode).hang, "blackholed": (*bubbleNode).blackhole} {
		t.Run("three of five "+name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				lease := b.lock(l, "r")
				synctest.Wait()
				b.each(fault, 0, 1, 2)
				start := time.Now()
				err := lease.Unlock(t.Context())
				wantMatch(t, "Unlock", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld, redlock.ErrLost)
				wantSince(t, "Unlock", start, timeout10)
				wantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased}, redlock.ErrLost)
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity after Unlock: got %v, want none", got)
				}
				b.wantHolding("r", 0, 1, 2)
				time.Sleep(2 * time.Second)
				b.all((*bubbleNode).heal)
				time.Sleep(reconnect10)
				wantNever(t, b, "r", ttl10)
			})
		})
	}
	t.Run("a connection that broke", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			synctest.Wait()
			b.all(func(n *bubbleNode) { n.kill(); n.restart() })
			start := time.Now()
			b.unlock(lease)
			wantSince(t, "Unlock", start, 0)
			b.wantHolding("r")
		})
	})
	t.Run("with a context that has ended", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			ctx, cancel := context.WithCancel(t.Context())
			lease, err := l.Lock(ctx, "r")
			if err != nil {
				t.Fatalf("Lock: got %v, want a lease", err)
			}
			cancel()
			if err := lease.Unlock(ctx); err != nil {
				t.Errorf("Unlock: got %v, want no error", err)
			}
			b.wantHolding("r")
		})
	})
	t.Run("the key expired on the nodes by a step of their clocks", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			synctest.Wait()
			b.all(func(n *bubbleNode) { n.runClock(1, time.Hour) })
			wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
		})
	})
}

// A use of a lease after its end fails at once, with an error that names the reason, and does not
// touch another holder's key.
//
// Source: ALGORITHM section 5 (ErrNotHeld); section 13, I9.
func TestVirtualUseAfterTheEnd(t *testing.T) {
	t.Run("after Unlock", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			b.unlock(lease)
			next := b.lock(l, "r")
			b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
			start := time.Now()
			wantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			wantSince(t, "typed errors", start, 0)
			wantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased})
			time.Sleep(time.Second)
			b.wantHolding("r", 0, 1, 2)
			if next.Validity() <= 0 {
				t.Errorf("validity of the next lease: got %v, want some", next.Validity())
			}
		})
	})
	t.Run("after expiry, with another holder", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, other := b.warmLocker(redlock.WithoutRenewal()), b.warmLocker()
			lease := b.lock(l, "r")
			time.Sleep(ttl10 + time.Millisecond)
			next := b.lock(other, "r")
			start := time.Now()
			wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired}, redlock.ErrReleased)
			wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired}, redlock.ErrReleased)
			wantSince(t, "typed errors", start, 0)
			time.Sleep(2 * time.Second)
			b.wantHolding("r", 0, 1, 2)
			for i, n := range b.nodes {
				if got := n.callsOf("release", "r"); len(got) > 1 {
					t.Errorf("releases seen by node %d: got %d, want at most 1", i, len(got))
				}
			}
			if err := next.Extend(t.Context()); err != nil {
				t.Errorf("Extend of the next lease: got %v, want no error", err)
			}
			if next.Fence() <= lease.Fence() {
				t.Errorf("fence: got %d after %d, want a larger fence", next.Fence(), lease.Fence())
			}
			// The handle does not change.
			wantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
		})
	})
	t.Run("just before the deadline, when the context has ended", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker(redlock.WithoutRenewal())
			lease := b.lock(l, "r")
			<-lease.Context().Done()
			wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
			wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
			b.wantHolding("r") // the key is released all the same
		})
	})
}

// Close releases everything, ends all calls, and returns within its bound.
//
// Source: ALGORITHM section 5 ("Closing the client waits for these, bounded"); section 13, I11.
func TestVirtualClose(t *testing.T) {
	t.Run("releases all leases", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			var leases []*redlock.Lease
			for i := range 10 {
				leases = append(leases, b.lock(l, fmt.Sprint("r", i)))
			}
			inUse := leases[0].Context()
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			wantSince(t, "Close", start, 0)
			if inUse.Err() == nil {
				t.Error("context after Close: got no ended context")
			}
			for i, lease := range leases {
				b.wantHolding(fmt.Sprint("r", i))
				wantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased, redlock.ErrClosed}, redlock.ErrLost)
				wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
				wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity after Close: got %v, want none", got)
				}
			}
			_, err := l.Lock(t.Context(), "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrClosed})
			_, err = l.TryLock(t.Context(), "r")
			wantMatch(t, "TryLock", err, []error{redlock.ErrClosed})
			err = l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error {
				t.Error("Do: got fn called, want it not to be")
				return nil
			})
			wantMatch(t, "Do", err, []error{redlock.ErrClosed})
			if err := l.Close(); err != nil {
				t.Errorf("second Close: got %v, want no error", err)
			}
		})
	})
	t.Run("before anything was done", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.locker()
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			wantSince(t, "Close", start, 0)
		})
	})
	for name, fault := range map[string]func(*bubbleNode){
		"hung": (*bubbleNode).hang, "blackholed": (*bubbleNode).blackhole, "dead": (*bubbleNode).kill,
	} {
		t.Run("all nodes "+name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				for i := range 3 {
					b.lock(l, fmt.Sprint("r", i))
				}
				synctest.Wait()
				b.all(fault)
				start := time.Now()
				wantMatch(t, "Close", l.Close(), []error{redlock.ErrNoQuorum})
				wantWithin(t, "Close", start, 3*timeout10)
				wantMatch(t, "second Close", l.Close(), []error{redlock.ErrNoQuorum})
			})
		})
		t.Run("all nodes "+name+" for long", func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.lock(l, "r")
				synctest.Wait()
				b.all(fault)
				time.Sleep(5 * time.Second) // renewals have failed, dials are under way
				start := time.Now()
				wantMatch(t, "Close", l.Close(), []error{redlock.ErrNoQuorum})
				wantWithin(t, "Close", start, 3*timeout10)
			})
		})
	}
	t.Run("two of five hung", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			b.lock(l, "r")
			synctest.Wait()
			b.each((*bubbleNode).hang, 1, 2)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error: a quorum confirmed", err)
			}
			wantWithin(t, "Close", start, 3*timeout10)
			b.each((*bubbleNode).resume, 1, 2)
			b.wantHolding("r") // the requests that were sent arrive
		})
	})
	t.Run("while callers wait", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, other := b.warmLocker(), b.warmLocker()
			b.lock(other, "r")
			var ended sync.WaitGroup
			for range 5 {
				ended.Go(func() {
					_, err := l.Lock(context.Background(), "r")
					wantMatch(t, "Lock", err, []error{redlock.ErrClosed})
				})
			}
			time.Sleep(time.Second)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			ended.Wait()
			wantSince(t, "Close", start, 0)
		})
	})
	t.Run("while an attempt is under way", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			b.all(func(n *bubbleNode) { n.latency(50*time.Millisecond, 50*time.Millisecond) })
			done := make(chan error, 1)
			go func() {
				_, err := l.TryLock(context.Background(), "r")
				done <- err
			}()
			time.Sleep(10 * time.Millisecond)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			wantMatch(t, "TryLock", <-done, []error{redlock.ErrClosed})
			wantWithin(t, "Close", start, 3*timeout10)
			time.Sleep(50 * time.Millisecond)
			wantNever(t, b, "r", ttl10)
		})
	})
}
