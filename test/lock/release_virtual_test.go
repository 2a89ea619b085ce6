package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// Unlock returns with the quorum, whatever the state of the other nodes, and within the node timeout
// if there is no quorum. The keys are deleted as soon as the nodes are back.
//
// Source: ALGORITHM section 5.
func TestVirtualUnlock(t *testing.T) {
	t.Run("two of five hung", func(t *testing.T) {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			synctest.Wait()
			b.Each((*virtual.Node).Hang, 3, 4)
			start := time.Now()
			b.Unlock(lease)
			locktest.WantSince(t, "Unlock", start, 0)
			b.WantHolding("r", 3, 4)
			time.Sleep(time.Second)
			b.Each((*virtual.Node).Resume, 3, 4)
			b.WantHolding("r")
		})
	})
	t.Run("latency is that of the quorum", func(t *testing.T) {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			for i, n := range b.Nodes {
				n.Latency(time.Duration(i+1)*time.Millisecond, time.Duration(i+1)*time.Millisecond)
			}
			start := time.Now()
			b.Unlock(lease)
			locktest.WantSince(t, "Unlock", start, 6*time.Millisecond)
		})
	})
	t.Run("down since before the lease, and a slow one", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l, next := b.WarmLocker(), b.WarmLocker()
			b.Nodes[0].Kill()
			b.Unlock(b.Lock(l, "another")) // finds out that the node is down
			lease := b.Lock(l, "r")
			synctest.Wait()
			b.Nodes[2].Latency(2*time.Millisecond, time.Millisecond)
			start := time.Now()
			b.Unlock(lease)
			locktest.WantSince(t, "Unlock", start, 3*time.Millisecond)
			b.Nodes[2].Latency(0, 0)
			b.Unlock(b.Lock(next, "r")) // no node refuses because of the lease that was released
		})
	})
	t.Run("down since before the lease, and hung since", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.Nodes[0].Kill()
			b.Unlock(b.Lock(l, "another")) // finds out that the node is down
			lease := b.Lock(l, "r")
			synctest.Wait()
			b.Nodes[2].Hang()
			start := time.Now()
			b.Unlock(lease) // two nodes have no key of the lease: the first never had one
			locktest.WantSince(t, "Unlock", start, locktest.MasterTimeout)
			b.WantHolding("r", 2)
		})
	})
	for name, fault := range map[string]func(*virtual.Node){"hung": (*virtual.Node).Hang, "blackholed": (*virtual.Node).Blackhole} {
		t.Run("three of five "+name, func(t *testing.T) {
			locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
				l := b.WarmLocker()
				lease := b.Lock(l, "r")
				synctest.Wait()
				b.Each(fault, 0, 1, 2)
				start := time.Now()
				err := lease.Unlock(t.Context())
				locktest.WantMatch(t, "Unlock", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld, redlock.ErrLost)
				locktest.WantSince(t, "Unlock", start, locktest.MasterTimeout)
				locktest.WantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased}, redlock.ErrLost)
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity after Unlock: got %v, want none", got)
				}
				b.WantHolding("r", 0, 1, 2)
				time.Sleep(2 * time.Second)
				b.All((*virtual.Node).Heal)
				time.Sleep(locktest.Reconnect)
				wantNever(t, b, "r", locktest.TTL)
			})
		})
	}
	t.Run("a connection that broke", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			synctest.Wait()
			b.All(func(n *virtual.Node) { n.Kill(); n.Restart() })
			start := time.Now()
			b.Unlock(lease)
			locktest.WantSince(t, "Unlock", start, 0)
			b.WantHolding("r")
		})
	})
	t.Run("with a context that has ended", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			ctx, cancel := context.WithCancel(t.Context())
			lease, err := l.Lock(ctx, "r")
			if err != nil {
				t.Fatalf("Lock: got %v, want a lease", err)
			}
			cancel()
			if err := lease.Unlock(ctx); err != nil {
				t.Errorf("Unlock: got %v, want no error", err)
			}
			b.WantHolding("r")
		})
	})
	t.Run("the key expired on the nodes by a step of their clocks", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			synctest.Wait()
			b.All(func(n *virtual.Node) { n.RunClock(1, time.Hour) })
			locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
		})
	})
}

// A use of a lease after its end fails at once, with an error that names the reason, and does not
// touch another holder's key.
//
// Source: ALGORITHM section 5 (ErrNotHeld); section 13, I9.
func TestVirtualUseAfterTheEnd(t *testing.T) {
	t.Run("after Unlock", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			b.Unlock(lease)
			next := b.Lock(l, "r")
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			start := time.Now()
			locktest.WantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
			locktest.WantSince(t, "typed errors", start, 0)
			locktest.WantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased})
			time.Sleep(time.Second)
			b.WantHolding("r", 0, 1, 2)
			if next.Validity() <= 0 {
				t.Errorf("validity of the next lease: got %v, want some", next.Validity())
			}
		})
	})
	t.Run("after expiry, with another holder", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l, other := b.WarmLocker(redlock.WithoutRenewal()), b.WarmLocker()
			lease := b.Lock(l, "r")
			time.Sleep(locktest.TTL + time.Millisecond)
			next := b.Lock(other, "r")
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			start := time.Now()
			locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired}, redlock.ErrReleased)
			locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired}, redlock.ErrReleased)
			locktest.WantSince(t, "typed errors", start, 0)
			time.Sleep(2 * time.Second)
			b.WantHolding("r", 0, 1, 2)
			for i, n := range b.Nodes {
				if got := n.CallsOf("release", "r"); len(got) > 1 {
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
			locktest.WantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
		})
	})
	t.Run("just before the deadline, when the context has ended", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithoutRenewal())
			lease := b.Lock(l, "r")
			<-lease.Context().Done()
			locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
			locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
			b.WantHolding("r") // the key is released all the same
		})
	})
}

// Close releases everything, ends all calls, and returns within its bound.
//
// Source: ALGORITHM section 5 ("Closing the client waits for these, bounded"); section 13, I11.
func TestVirtualClose(t *testing.T) {
	t.Run("releases all leases", func(t *testing.T) {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			var leases []*redlock.Lease
			for i := range 10 {
				leases = append(leases, b.Lock(l, fmt.Sprint("r", i)))
			}
			inUse := leases[0].Context()
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			locktest.WantSince(t, "Close", start, 0)
			if inUse.Err() == nil {
				t.Error("context after Close: got no ended context")
			}
			for i, lease := range leases {
				b.WantHolding(fmt.Sprint("r", i))
				locktest.WantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased, redlock.ErrClosed}, redlock.ErrLost)
				locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
				locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
				if got := lease.Validity(); got > 0 {
					t.Errorf("validity after Close: got %v, want none", got)
				}
			}
			_, err := l.Lock(t.Context(), "r")
			locktest.WantMatch(t, "Lock", err, []error{redlock.ErrClosed})
			_, err = l.TryLock(t.Context(), "r")
			locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrClosed})
			err = l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error {
				t.Error("Do: got fn called, want it not to be")
				return nil
			})
			locktest.WantMatch(t, "Do", err, []error{redlock.ErrClosed})
			if err := l.Close(); err != nil {
				t.Errorf("second Close: got %v, want no error", err)
			}
		})
	})
	t.Run("before anything was done", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.Locker()
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			locktest.WantSince(t, "Close", start, 0)
		})
	})
	for name, fault := range map[string]func(*virtual.Node){
		"hung": (*virtual.Node).Hang, "blackholed": (*virtual.Node).Blackhole, "dead": (*virtual.Node).Kill,
	} {
		t.Run("all nodes "+name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				l := b.WarmLocker()
				for i := range 3 {
					b.Lock(l, fmt.Sprint("r", i))
				}
				synctest.Wait()
				b.All(fault)
				start := time.Now()
				locktest.WantMatch(t, "Close", l.Close(), []error{redlock.ErrNoQuorum})
				locktest.WantWithin(t, "Close", start, 3*locktest.MasterTimeout)
				locktest.WantMatch(t, "second Close", l.Close(), []error{redlock.ErrNoQuorum})
			})
		})
		t.Run("all nodes "+name+" for long", func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				l := b.WarmLocker()
				b.Lock(l, "r")
				synctest.Wait()
				b.All(fault)
				time.Sleep(5 * time.Second) // renewals have failed, dials are under way
				start := time.Now()
				locktest.WantMatch(t, "Close", l.Close(), []error{redlock.ErrNoQuorum})
				locktest.WantWithin(t, "Close", start, 3*locktest.MasterTimeout)
			})
		})
	}
	t.Run("two of five hung", func(t *testing.T) {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.Lock(l, "r")
			synctest.Wait()
			b.Each((*virtual.Node).Hang, 1, 2)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error: a quorum confirmed", err)
			}
			locktest.WantWithin(t, "Close", start, 3*locktest.MasterTimeout)
			b.Each((*virtual.Node).Resume, 1, 2)
			b.WantHolding("r") // the requests that were sent arrive
		})
	})
	t.Run("while callers wait", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l, other := b.WarmLocker(), b.WarmLocker()
			b.Lock(other, "r")
			var ended sync.WaitGroup
			for range 5 {
				ended.Go(func() {
					_, err := l.Lock(context.Background(), "r")
					locktest.WantMatch(t, "Lock", err, []error{redlock.ErrClosed})
				})
			}
			time.Sleep(time.Second)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			ended.Wait()
			locktest.WantSince(t, "Close", start, 0)
		})
	})
	t.Run("while an attempt is under way", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.All(func(n *virtual.Node) { n.Latency(50*time.Millisecond, 50*time.Millisecond) })
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
			locktest.WantMatch(t, "TryLock", <-done, []error{redlock.ErrClosed})
			locktest.WantWithin(t, "Close", start, 3*locktest.MasterTimeout)
			time.Sleep(50 * time.Millisecond)
			wantNever(t, b, "r", locktest.TTL)
		})
	})
}

// Close ends the context of work, and keeps the lease until the work is over, the lease has ended, or
// 10 s have passed. Leases without work end at once.
func TestVirtualCloseKeepsLeases(t *testing.T) {
	const bound, soon = 10 * time.Second, 3 * time.Second
	over := []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed}
	for _, test := range []struct {
		name  string
		winds time.Duration // from the end of its context to the end of the work
		opts  []redlock.LockOption
		keeps time.Duration // the lease, from Close
		want  []error       // of Do
	}{
		{"work that ends at once", 0, nil, 0, nil},
		{"work that takes many TTLs to end", soon, []redlock.LockOption{redlock.WithTTL(time.Second)}, soon, nil},
		{"work that goes on", time.Minute, nil, bound, over},
		{"without renewal", time.Minute, []redlock.LockOption{redlock.WithoutRenewal(), redlock.WithTTL(time.Second)}, time.Second - 12*time.Millisecond - 20*time.Millisecond, []error{redlock.ErrLost}},
	} {
		t.Run(test.name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				l, other := b.WarmLocker(), b.WarmLocker()
				b.Lock(l, "without work")
				var work context.Context
				var closed time.Time
				done := make(chan error, 1)
				go func() {
					done <- l.Do(context.Background(), "r", func(ctx context.Context, lease *redlock.Lease) error {
						work = ctx
						<-ctx.Done()
						if test.keeps == soon {
							time.Sleep(test.winds - time.Millisecond)
							if err := errors.Join(lease.Err(), lease.Extend(context.Background())); err != nil {
								t.Errorf("the lease, after Close: got %v, want it held", err)
							}
							time.Sleep(time.Millisecond)
							return nil
						}
						time.Sleep(test.winds)
						return nil
					}, test.opts...)
				}()
				synctest.Wait()
				next := b.Wait(t.Context(), other)
				closed = time.Now()
				closing := make(chan error, 1)
				go func() { closing <- l.Close() }()
				synctest.Wait()
				locktest.WantMatch(t, "cause of the end of the work", context.Cause(work), []error{redlock.ErrReleased, redlock.ErrClosed})
				b.WantHolding("without work")
				b.Got(next)
				if got := next.At.Sub(closed); got < test.keeps || got > test.keeps+100*time.Millisecond {
					t.Errorf("the next holder: got the resource %v after Close, want %v", got, test.keeps)
				}
				locktest.Must(t, <-closing)
				locktest.WantWithin(t, "Close", closed, test.keeps+3*locktest.MasterTimeout)
				err := <-done
				if len(test.want) == 0 && err != nil {
					t.Errorf("Do: got %v, want no error", err)
				}
				locktest.WantMatch(t, "Do", err, test.want)
			})
		})
	}
	t.Run("Close within the work", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			_, cancel := lease.Within(t.Context())
			defer cancel()
			start := time.Now()
			locktest.Must(t, l.Close())
			locktest.WantSince(t, "Close", start, bound)
			b.WantHolding("r")
		})
	})
	t.Run("while the work extends", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			work, cancel := lease.Within(t.Context())
			inner, err := l.TryLock(work, "r", redlock.WithReentry())
			locktest.Must(t, err)
			b.All(func(n *virtual.Node) { n.Latency(10*time.Millisecond, 10*time.Millisecond) })
			closed := make(chan error, 1)
			time.AfterFunc(5*time.Millisecond, func() { closed <- l.Close() })
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend: got %v, want no error", err)
			}
			locktest.WantMatch(t, "cause of a context that is made after Close", context.Cause(inner.Context()), []error{redlock.ErrClosed})
			cancel()
			locktest.Must(t, <-closed)
		})
	})
}

// A release whose reply was lost with the connection is sent once more, and the key is gone then: the lease
// was held until Unlock all the same.
//
// Source: ALGORITHM section 5, "A connection that breaks".
func TestVirtualReleaseWithoutReply(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		lease := b.Lock(b.WarmLocker(), "r")
		b.All((*virtual.Node).LoseReplies)
		unlocked := make(chan error, 1)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		time.Sleep(time.Millisecond)
		b.WantHolding("r")
		b.All((*virtual.Node).Heal)
		b.All((*virtual.Node).Reset)
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock: got %v, want no error", err)
		}
	})
}
