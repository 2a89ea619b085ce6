package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
)

// The tests in virtual time of what happens where several callers, or several Lockers, want
// one resource.

// waiter is a call of Lock in a goroutine of its own.
type waiter struct {
	lease *redlock.Lease
	err   error
	at    time.Time // when it returned
	done  chan struct{}
}

func (b *bubble) wait(ctx context.Context, l *redlock.Locker, opts ...redlock.LockOption) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Lock(ctx, "r", opts...)
		w.at = time.Now()
	}()
	synctest.Wait() // it stands in line
	return w
}

// got waits for the lease of a call.
func (b *bubble) got(w *waiter) *redlock.Lease {
	b.t.Helper()
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		b.t.Fatal("Lock: got nothing for 20 s, want a lease")
	}
	if w.err != nil {
		b.t.Fatalf("Lock: got %v, want a lease", w.err)
	}
	return w.lease
}

// serve has callers of one Locker wait in line. Each keeps its lease for a time, and then
// unlocks it.
func (b *bubble) serve(l *redlock.Locker, callers int, hold time.Duration, opts ...redlock.LockOption) (fences func() []int64) {
	var mu sync.Mutex
	var list []int64
	var ended sync.WaitGroup
	for range callers {
		w := b.wait(context.Background(), l, opts...)
		ended.Go(func() {
			lease := b.got(w)
			mu.Lock()
			list = append(list, lease.Fence())
			mu.Unlock()
			time.Sleep(hold)
			if err := lease.Unlock(context.Background()); err != nil {
				b.t.Errorf("Unlock: got %v, want no error", err)
			}
		})
	}
	return func() []int64 {
		ended.Wait()
		synctest.Wait()
		return list
	}
}

// wantCalls checks how often each node was asked something about "r".
func (b *bubble) wantCalls(op string, want int) {
	b.t.Helper()
	for i, n := range b.nodes {
		if got := n.seen(op, "r"); got != want {
			b.t.Errorf("%s seen by node %d: got %d, want %d", op, i, got, want)
		}
	}
}

// A caller of the same Locker gets the lease at the moment of the Unlock, and no node
// learns of it.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".
func TestVirtualHandOver(t *testing.T) {
	t.Run("takes no time and no message", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			var mu sync.Mutex
			var told []string
			note := func(what string) func(redlock.Event) {
				return func(e redlock.Event) {
					if e.Resource == "r" {
						mu.Lock()
						told = append(told, fmt.Sprint(what, " ", e.Fence, " after ", e.Elapsed))
						mu.Unlock()
					}
				}
			}
			l := b.warmLocker(redlock.WithObserver(redlock.Observer{Acquired: note("acquired"), Released: note("released"), Lost: note("lost")}))
			b.all(func(n *bubbleNode) { n.latency(5*time.Millisecond, 5*time.Millisecond) })
			lease := b.lock(l, "r")
			time.Sleep(time.Second)
			told = nil
			const hold = 20 * time.Millisecond
			var want []string
			came := time.Now()
			callers := make([]*waiter, 10)
			for i := range callers {
				callers[i] = b.wait(t.Context(), l)
			}
			first, ctx := lease.Fence(), lease.Context()
			for i, c := range callers {
				time.Sleep(hold)
				held := hold
				if i == 0 {
					held += time.Second
				}
				want = append(want, fmt.Sprint("released ", first+int64(i), " after ", held),
					fmt.Sprint("acquired ", first+int64(i)+1, " after ", time.Since(came)))
				unlocked := time.Now()
				if err := lease.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock: got %v, want no error", err)
				}
				wantSince(t, "Unlock", unlocked, 0)
				if lease.Validity() != 0 {
					t.Errorf("validity after Unlock: got %v, want 0", lease.Validity())
				}
				wantMatch(t, "cause of its context", context.Cause(ctx), []error{redlock.ErrReleased}, redlock.ErrLost)
				wantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
				wantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased}, redlock.ErrLost)
				next := b.got(c)
				if !c.at.Equal(unlocked) {
					t.Errorf("the next lease: got it %v after Unlock, want it at once", c.at.Sub(unlocked))
				}
				if next.Fence() != lease.Fence()+1 || next.Validity() < 5*time.Second || next.Context().Err() != nil {
					t.Errorf("the next lease: got fence %d and validity %v, want %d and half a TTL", next.Fence(), next.Validity(), lease.Fence()+1)
				}
				lease, ctx = next, next.Context()
			}
			b.wantCalls("acquire", 1)
			b.wantCalls("release", 0)
			b.wantHolding("r", 0, 1, 2)
			b.unlock(lease)
			time.Sleep(time.Second)
			b.wantCalls("release", 1)
			b.wantHolding("r")
			mu.Lock()
			defer mu.Unlock()
			if told = told[:min(len(want), len(told))]; !slices.Equal(told, want) {
				t.Errorf("events: got %q, want %q", told, want)
			}
		})
	})
	t.Run("of a lease by TryLock", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			w := b.wait(t.Context(), l)
			b.unlock(lease)
			b.unlock(b.got(w))
			b.wantHolding("r")
			if got := l.Lines(); got != 0 {
				t.Errorf("lines: got %d, want none", got)
			}
		})
	})
	t.Run("to a call with another TTL it is none", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			w := b.wait(t.Context(), l, redlock.WithTTL(time.Second))
			b.unlock(lease)
			if next := b.got(w); next.Token() == lease.Token() || next.Validity() > time.Second {
				t.Errorf("got the token %s and validity %v, want a new lease of a second", next.Token(), next.Validity())
			}
		})
	})
	t.Run("between two Do", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			var fences []int64
			var tokens []string
			var ended sync.WaitGroup
			var last context.Context
			for range 5 {
				ended.Go(func() {
					err := l.Do(t.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error {
						if last != nil && last.Err() == nil {
							t.Error("got the context of the function before still there, want it over")
						}
						last = ctx
						fences, tokens = append(fences, lease.Fence()), append(tokens, lease.Token())
						time.Sleep(time.Second)
						return ctx.Err()
					})
					if err != nil {
						t.Errorf("Do: got %v, want no error", err)
					}
				})
			}
			start := time.Now()
			ended.Wait()
			wantSince(t, "all of them", start, 5*time.Second)
			if slices.Sort(tokens); len(slices.Compact(tokens)) != 1 || fences[4] != fences[0]+4 {
				t.Errorf("got fences %v by %d grants, want one grant", fences, len(slices.Compact(tokens)))
			}
			b.wantHolding("r")
		})
	})
}

// A grant serves as many callers as it has tokens, fewer where others wait, and none long
// after it was made.
//
// Source: ALGORITHM section 10, "At most B-1 in a row".
func TestVirtualHandOverBounds(t *testing.T) {
	const trip = 2 * time.Millisecond // there and back
	slow := func(n *bubbleNode) { n.latency(trip/2, trip/2) }
	wantRising := func(t *testing.T, fences []int64, want int) {
		t.Helper()
		if len(fences) != want {
			t.Fatalf("leases: got %d, want %d", len(fences), want)
		}
		for i := 1; i < len(fences); i++ {
			if fences[i] <= fences[i-1] {
				t.Fatalf("fence of lease %d: got %d after %d, want a larger one", i, fences[i], fences[i-1])
			}
		}
	}
	for _, test := range []struct {
		callers, grants int
	}{{64, 1}, {65, 2}, {128, 2}, {129, 3}} {
		t.Run(fmt.Sprintf("%d callers", test.callers), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				b.all(goNative)
				l := b.warmLocker()
				b.all(slow)
				start := time.Now()
				fences := b.serve(l, test.callers, 10*time.Millisecond)()
				wantRising(t, fences, test.callers)
				// Each grant takes one round trip, or two where the gate is asked first. The release
				// comes before it on every lane.
				least := time.Duration(test.callers)*10*time.Millisecond + time.Duration(test.grants)*trip
				if got := time.Since(start); got < least || got > least+time.Duration(2*test.grants)*trip {
					t.Errorf("all of them: got it after %v, want from %v to %v", got, least, least+time.Duration(2*test.grants)*trip)
				}
				time.Sleep(time.Second)
				b.wantCalls("acquire", test.grants)
				b.wantCalls("release", test.grants)
				if test.callers > 64 && fences[63] != fences[0]+63 {
					t.Errorf("fence of lease 64: got %d after %d, want the last of the block", fences[63], fences[0])
				}
			})
		})
	}
	t.Run("while others wait", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l, other := b.warmLocker(), b.warmLocker()
			b.all(slow)
			held := b.lock(l, "r")
			theirs := b.wait(t.Context(), other)
			time.Sleep(time.Second) // it is in the queue, which nobody in l knows
			mine := b.serve(l, 63+40, 10*time.Millisecond)
			b.unlock(held)
			lease := b.got(theirs)
			first := lease.Fence()
			w := b.wait(t.Context(), other)
			b.unlock(lease) // one more caller of its own
			lease = b.got(w)
			w = b.wait(t.Context(), other)
			time.Sleep(time.Second) // l has been told now that it is not alone
			b.unlock(lease)
			again := b.got(w)
			b.unlock(again)
			fences := mine()
			wantRising(t, fences, 63+40)
			before := func(fence int64) int {
				n := 0
				for _, f := range fences {
					if f < fence {
						n++
					}
				}
				return n
			}
			if got := before(first); got != 63 {
				t.Errorf("leases handed over to callers who did not know of others: got %d, want 63", got)
			}
			if got := before(again.Fence()) - before(lease.Fence()); got > 17 {
				t.Errorf("leases of l between two of the other: got %d, want at most 17", got)
			}
		})
	})
	t.Run("while others wait, all in line once", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			lockers := []*redlock.Locker{b.warmLocker(), b.warmLocker()}
			b.all(slow)
			var order []int // of the lockers, by lease; the lock guards it
			var workers sync.WaitGroup
			end := time.Now().Add(5 * time.Second)
			for _, who := range []int{0, 0, 0, 0, 0, 1, 1} {
				workers.Go(func() {
					for time.Now().Before(end) {
						lease, err := lockers[who].Lock(t.Context(), "r")
						if err != nil {
							t.Errorf("Lock: got %v, want a lease", err)
							return
						}
						order = append(order, who)
						time.Sleep(10 * time.Millisecond)
						if err := lease.Unlock(t.Context()); err != nil {
							t.Errorf("Unlock: got %v, want no error", err)
						}
					}
				})
			}
			workers.Wait()
			served, blocks := map[int]int{}, 0
			for i, n := 0, 0; i < len(order)-20; i++ { // in the end some stop
				n++
				if order[i] != order[i+1] {
					if want := []int{5, 2}[order[i]]; blocks > 2 && n != want { // once both know of each other
						t.Fatalf("block %d: got %d leases of %d, want %d", blocks, n, order[i], want)
					}
					blocks++
					n = 0
				}
				served[order[i]]++
			}
			if blocks < 50 {
				t.Errorf("got %d blocks of %v leases, want at least 50", blocks, served)
			}
		})
	})
	t.Run("half a TTL after the grant it is over", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l := b.warmLocker()
			fences := b.serve(l, 12, time.Second)()
			wantRising(t, fences, 12)
			b.wantCalls("acquire", 2) // each for those that begin within 5 s
			if fences[5] != fences[0]+5 || fences[6] == fences[5]+1 {
				t.Errorf("fences: got %v, want two blocks of six", fences)
			}
		})
	})
	t.Run("without renewal it is over when half of the validity is", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l := b.warmLocker(redlock.WithoutRenewal())
			wantRising(t, b.serve(l, 10, time.Second)(), 10)
			b.wantCalls("acquire", 2)
			b.wantCalls("extend", 0)
		})
	})
}

// A lease that was handed over is renewed, ends, and is lost as any other.
//
// Source: ALGORITHM sections 6, 7 and 10.
func TestVirtualLifeAfterHandOver(t *testing.T) {
	// second is a lease that was handed over three seconds after the grant.
	second := func(t *testing.T, b *bubble, l *redlock.Locker, opts ...redlock.LockOption) (first, next *redlock.Lease) {
		t.Helper()
		first = b.lock(l, "r", opts...)
		first.Context()
		w := b.wait(t.Context(), l, opts...)
		time.Sleep(3 * time.Second)
		b.unlock(first)
		if next = b.got(w); next.Token() != first.Token() {
			t.Fatal("got a new grant, want it handed over")
		}
		return first, next
	}
	t.Run("it is renewed", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			b.all(goNative)
			_, lease := second(t, b, b.warmLocker())
			for range 60 {
				time.Sleep(time.Second)
				if lease.Validity() < ttl10*6/10 || lease.Context().Err() != nil {
					t.Fatalf("got validity %v, want it renewed", lease.Validity())
				}
			}
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend: got %v, want no error", err)
			}
			b.unlock(lease)
			b.wantHolding("r")
		})
	})
	t.Run("without renewal it ends when the grant does", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			start := time.Now()
			_, lease := second(t, b, b.warmLocker(), redlock.WithoutRenewal())
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrExpired})
			wantSince(t, "end of the context", start, validity10-lead10)
		})
	})
	for _, hold := range []time.Duration{ttl10, 25 * time.Second} {
		t.Run(fmt.Sprintf("a maximum hold of %v counts from its own start", hold), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				b.all(goNative)
				_, lease := second(t, b, b.warmLocker(), redlock.WithMaxHold(hold))
				start := time.Now()
				wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrMaxHold}, redlock.ErrExpired)
				wantSince(t, "end of the context", start, hold-lead10)
				time.Sleep(lead10)
				if got := lease.Validity(); got != 0 {
					t.Errorf("validity at the bound: got %v, want 0", got)
				}
			})
		})
	}
	t.Run("cut off from all nodes it ends on time", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			start := time.Now()
			_, lease := second(t, b, l)
			b.all((*bubbleNode).blackhole)
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrExpired})
			wantSince(t, "end of the context", start, validity10-lead10)
		})
	})
	t.Run("a loss is the new holder's", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			lost := make(chan redlock.Event, 10)
			l := b.warmLocker(redlock.WithObserver(redlock.Observer{Lost: func(e redlock.Event) { lost <- e }}))
			old, lease := second(t, b, l)
			w := b.wait(t.Context(), l)
			b.each(steal, 0, 1)
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrQuorumLost})
			wantMatch(t, "cause of the old context", context.Cause(old.Context()), []error{redlock.ErrReleased}, redlock.ErrLost)
			wantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost})
			if e := <-lost; e.Fence != lease.Fence() || len(lost) > 0 {
				t.Errorf("Lost: got fence %d and %d events more, want %d and none", e.Fence, len(lost), lease.Fence())
			}
			b.each(erase, 0, 1)
			if next := b.got(w); next.Fence() <= lease.Fence() || next.Token() == lease.Token() {
				t.Errorf("the next lease: got fence %d after %d, want a new one", next.Fence(), lease.Fence())
			}
		})
	})
	t.Run("the context of the holder before is outside", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			for _, opts := range [][]redlock.Option{nil, {redlock.WithReentry()}} {
				l := b.warmLocker(opts...)
				old, lease := second(t, b, l)
				ctx, cancel := context.WithTimeout(context.WithoutCancel(old.Context()), time.Second)
				_, err := l.TryLock(ctx, "r")
				wantMatch(t, "TryLock outside", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken}, redlock.ErrReentry)
				start := time.Now()
				_, err = l.Lock(ctx, "r")
				cancel()
				wantMatch(t, "Lock outside", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.DeadlineExceeded}, redlock.ErrReentry)
				wantSince(t, "Lock outside", start, time.Second)
				inner, err := l.TryLock(lease.Context(), "r")
				if len(opts) == 0 {
					wantMatch(t, "TryLock inside", err, []error{redlock.ErrReentry})
				} else if err != nil || inner.Fence() != lease.Fence() {
					t.Errorf("TryLock inside: got %v, want another handle", err)
				} else {
					b.unlock(inner)
				}
				b.unlock(lease)
				b.wantHolding("r")
			}
		})
	})
	t.Run("Close ends it, and who waits for it", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			_, lease := second(t, b, l)
			callers := []*waiter{b.wait(t.Context(), l), b.wait(t.Context(), l)}
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			wantSince(t, "Close", start, 0)
			for _, w := range callers {
				<-w.done
				wantMatch(t, "Lock", w.err, []error{redlock.ErrClosed})
			}
			wantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased, redlock.ErrClosed})
			b.wantHolding("r")
		})
	})
}

// A caller whose context ends in the very moment of the Unlock gets a lease or an error,
// and the one behind it is served in any case.
//
// Source: ALGORITHM section 10, "wakes the new head".
func TestVirtualHeirWhoGivesUp(t *testing.T) {
	served := 0
	for range 40 {
		inBubble(t, 1, func(t *testing.T, b *bubble) {
			b.all(goNative)
			l := b.warmLocker()
			lease := b.lock(l, "r")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			heir, next := b.wait(ctx, l), b.wait(t.Context(), l)
			time.Sleep(time.Second)
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock: got %v, want no error", err)
			}
			<-heir.done
			if heir.err == nil {
				served++
				b.unlock(heir.lease)
			} else {
				wantMatch(t, "Lock", heir.err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.DeadlineExceeded})
			}
			b.unlock(b.got(next))
			b.wantHolding("r")
			if got := l.Lines(); got != 0 {
				t.Errorf("lines: got %d, want none", got)
			}
		})
	}
	t.Logf("%d of 40 got the lease", served)
}

// uplink is the way from one Locker to the nodes. When it is cut, nothing gets through
// any more, in either direction, and no connection ends for it.
type uplink struct {
	dead atomic.Bool

	mu   sync.Mutex
	subs []*cutConn // on which the Locker has subscribed
}

// deafen has nothing get through any more by the subscriptions that there are.
func (u *uplink) deafen() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.subs {
		c.dead.Store(true)
	}
}

func (u *uplink) dialer(n *bubbleNode) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if u.dead.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := n.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, up: u}, nil
	}
}

type cutConn struct {
	net.Conn
	up   *uplink
	dead atomic.Bool
}

func (c *cutConn) isDead() bool { return c.dead.Load() || c.up.dead.Load() }

func (c *cutConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.isDead() {
			return n, err
		}
	}
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.isDead() {
		return len(p), nil
	}
	if bytes.Contains(p, []byte("\r\nsubscribe\r\n")) {
		c.up.mu.Lock()
		c.up.subs = append(c.up.subs, c)
		c.up.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// lockerBy is a Locker that has been warmed up, with a way to the nodes of its own.
func (b *bubble) lockerBy(u *uplink, opts ...redlock.Option) *redlock.Locker {
	b.t.Helper()
	masters := make([]*redis.Options, len(b.nodes))
	for i, n := range b.nodes {
		masters[i] = &redis.Options{Addr: n.Addr(), Dialer: u.dialer(n)}
	}
	l, err := redlock.NewFromOptions(masters, append([]redlock.Option{redlock.WithClock(redlock.RuntimeClock())}, opts...)...)
	if err != nil {
		b.t.Fatalf("NewFromOptions: got %v, want no error", err)
	}
	b.t.Cleanup(func() { _ = l.Close() })
	b.vouch()
	b.warm(l)
	return l
}

// waiting is how many processes the queue of "r" has on a node.
func (n *bubbleNode) waiting() (k int) {
	n.inside(func(r *miniredis.Miniredis) {
		all, _ := r.SortedSet(redlock.DefaultKeyPrefix + "r~queue")
		k = len(all)
	})
	return k
}

// left is the keys that a node has, but for the marker and the fencing counters.
func (n *bubbleNode) left() (list []string) {
	n.inside(func(r *miniredis.Miniredis) {
		_, _ = r.Get("") // has what is due expire
		list = slices.DeleteFunc(r.Keys(), func(k string) bool {
			return strings.HasSuffix(k, "~fence") || strings.HasSuffix(k, "~guard")
		})
	})
	return list
}

func (b *bubble) wantNothingLeft() {
	b.t.Helper()
	for i, n := range b.nodes {
		if got := n.left(); len(got) > 0 {
			b.t.Errorf("keys on node %d: got %q, want none", i, got)
		}
	}
}

// Of several Lockers the gate serves one after the other, in the order in which they
// came, and calls each at the moment the one before has done.
//
// Source: ALGORITHM section 10, "wake"; section 13, I10.
func TestVirtualGate(t *testing.T) {
	const there, back = 3 * time.Millisecond, 2 * time.Millisecond
	// From Unlock: the release goes to the gate, the call comes back, and then there is the
	// round trip of the attempt.
	const handsOn = there + back + there + back
	// A waiter asks again about once a second. That can be just now: then it gets the resource
	// sooner, or has been refused before it is called.
	const soonest, latest = there + back, handsOn + there + back
	const net = 1200*time.Millisecond + latest // if it is not called at all
	type scene struct {
		*bubble
		gate    *bubbleNode
		lockers []*redlock.Locker
		ways    []*uplink
		held    *redlock.Lease
		waiters []*waiter
	}
	// begin has the first Locker hold "r" and the others wait for it, in order.
	begin := func(t *testing.T, b *bubble, lockers int, opts ...redlock.Option) *scene {
		t.Helper()
		b.all(goNative)
		s := &scene{bubble: b}
		for range lockers {
			u := new(uplink)
			s.ways = append(s.ways, u)
			s.lockers = append(s.lockers, b.lockerBy(u, opts...))
		}
		s.gate = b.nodes[s.lockers[0].GateOf("r")]
		b.all(func(n *bubbleNode) { n.latency(there, back) })
		s.held = b.lock(s.lockers[0], "r")
		for i, l := range s.lockers[1:] {
			s.waiters = append(s.waiters, b.wait(t.Context(), l))
			time.Sleep(200 * time.Millisecond)
			if got := s.gate.waiting(); got != i+1 {
				t.Fatalf("in the queue: got %d, want %d", got, i+1)
			}
		}
		return s
	}
	// unlocked has the holder unlock, and says when.
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
	wantAfter := func(t *testing.T, w *waiter, since time.Time, least, most time.Duration) {
		t.Helper()
		if got := w.at.Sub(since); got < least || got > most {
			t.Errorf("the next lease: got it after %v, want from %v to %v", got, least, most)
		}
	}
	t.Run("a call comes at once", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			s := begin(t, b, 2)
			since := unlocked(t, s.held)
			b.got(s.waiters[0])
			wantAfter(t, s.waiters[0], since, handsOn, handsOn)
		})
	})
	// firstOf waits for the one of two who is served first.
	firstOf := func(waiters []*waiter) (first, second *waiter) {
		select {
		case <-waiters[0].done:
			return waiters[0], waiters[1]
		case <-waiters[1].done:
			return waiters[1], waiters[0]
		}
	}
	t.Run("first come, first served, without a pause", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			s := begin(t, b, 6)
			lease := s.held
			for _, w := range s.waiters {
				since := unlocked(t, lease)
				next := b.got(w)
				wantAfter(t, w, since, soonest, latest)
				if next.Fence() <= lease.Fence() {
					t.Errorf("fence: got %d after %d, want a larger one", next.Fence(), lease.Fence())
				}
				lease = next
				time.Sleep(300 * time.Millisecond)
			}
			unlocked(t, lease)
			time.Sleep(time.Second)
			b.wantNothingLeft()
			for i, l := range s.lockers {
				if got := l.Lines(); got != 0 {
					t.Errorf("lines of Locker %d: got %d, want none", i, got)
				}
			}
		})
	})
	t.Run("a Locker that has done stands behind the others", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 3)
			ours := b.wait(t.Context(), s.lockers[0], redlock.WithMaxHold(time.Hour)) // so there is no hand-over
			lease := s.held
			for _, w := range append(s.waiters, ours) {
				since := unlocked(t, lease)
				lease = b.got(w)
				wantAfter(t, w, since, soonest, latest)
				time.Sleep(300 * time.Millisecond)
			}
			unlocked(t, lease)
		})
	})
	t.Run("a call that is lost", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 2)
			since := unlocked(t, s.held)
			time.Sleep(there - 1)
			s.gate.silence()
			time.Sleep(there)
			s.gate.heal()
			b.got(s.waiters[0])
			wantAfter(t, s.waiters[0], since, soonest, net)
		})
	})
	t.Run("a subscription that is lost", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 2)
			s.gate.breakOff() // the lanes' connections, too
			since := unlocked(t, s.held)
			b.got(s.waiters[0])
			wantAfter(t, s.waiters[0], since, soonest, net)
			unlocked(t, s.waiters[0].lease)
			time.Sleep(12 * time.Second)
			b.wantNothingLeft()
		})
	})
	t.Run("a waiter that is cut off", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 3)
			s.ways[1].dead.Store(true)
			since := unlocked(t, s.held)
			b.got(s.waiters[1])
			// It has been called, and the turn is its own for 250 ms.
			wantAfter(t, s.waiters[1], since, 250*time.Millisecond, net)
		})
	})
	t.Run("a waiter that has been cut off for long", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 3)
			s.ways[1].dead.Store(true)
			time.Sleep(4300 * time.Millisecond) // it has not asked for 3 s
			since := unlocked(t, s.held)
			b.got(s.waiters[1])
			wantAfter(t, s.waiters[1], since, soonest, latest)
		})
	})
	t.Run("a waiter whose connections end", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 3)
			if err := s.lockers[1].Close(); err != nil {
				t.Errorf("Close: got %v, want no error", err)
			}
			<-s.waiters[0].done
			wantMatch(t, "Lock", s.waiters[0].err, []error{redlock.ErrClosed})
			if got := s.gate.waiting(); got != 1 {
				t.Errorf("in the queue: got %d, want 1", got)
			}
			since := unlocked(t, s.held)
			b.got(s.waiters[1])
			wantAfter(t, s.waiters[1], since, soonest, latest)
		})
	})
	t.Run("a holder that is gone", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 3, redlock.WithTTL(3*time.Second))
			s.ways[0].dead.Store(true)
			since := time.Now() // within 3 s of a renewal
			first, second := firstOf(s.waiters)
			wantAfter(t, first, since, time.Second, 3*time.Second+net)
			time.Sleep(2 * time.Second)
			since = unlocked(t, b.got(first))
			b.got(second)
			wantAfter(t, second, since, soonest, latest)
		})
	})
	t.Run("callers who give up", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 1)
			l := b.lockerBy(new(uplink))
			ctx, cancel := context.WithCancel(t.Context())
			heads := []*waiter{b.wait(ctx, l), b.wait(ctx, l)}
			stays, stay := context.WithCancel(t.Context())
			last := b.wait(stays, l)
			time.Sleep(time.Second)
			cancel()
			for _, w := range heads {
				<-w.done
				wantMatch(t, "Lock", w.err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.Canceled})
			}
			time.Sleep(time.Second)
			if got := s.gate.waiting(); got != 1 {
				t.Errorf("in the queue, with one caller left: got %d, want 1", got)
			}
			stay()
			<-last.done
			time.Sleep(there + back + there + 1) // an attempt may be under way, and its lane waits for the reply
			if got := s.gate.queued(redlock.DefaultKeyPrefix + "r"); got != "" {
				t.Errorf("when all have left: got%s, want no queue", got)
			}
			unlocked(t, s.held)
			time.Sleep(time.Second)
			b.wantNothingLeft()
		})
	})
	t.Run("waiters who are gone for good", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s := begin(t, b, 4)
			for _, u := range s.ways[1:] {
				u.dead.Store(true)
			}
			time.Sleep(9500 * time.Millisecond)
			if got := s.gate.waiting(); got == 0 {
				t.Error("in the queue after less than 10 s: got nobody, want them remembered")
			}
			time.Sleep(1500 * time.Millisecond)
			if got := s.gate.queued(redlock.DefaultKeyPrefix + "r"); got != "" {
				t.Errorf("after more than 10 s: got%s, want no queue", got)
			}
			unlocked(t, s.held)
			time.Sleep(time.Second)
			b.wantNothingLeft()
		})
	})
	t.Run("a gate that is killed", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			s := begin(t, b, 3)
			s.gate.kill()
			time.Sleep(3 * time.Second) // they have asked again
			gate := b.nodes[s.lockers[1].GateOf("r")]
			if gate == s.gate {
				t.Fatal("the gate: got the node that is down, want another one")
			}
			if got := gate.waiting(); got != 2 {
				t.Errorf("in the queue of the next gate: got %d, want 2", got)
			}
			since := unlocked(t, s.held)
			first, second := firstOf(s.waiters)                    // in the order in which they have asked there
			wantAfter(t, first, since, soonest, latest+there+back) // two of them may have met just now
			b.all((*bubbleNode).forgetCalls)
			time.Sleep(10 * time.Second)
			for i, n := range b.nodes {
				if got := n.seen("acquire", "r"); got > 30 {
					t.Errorf("acquires seen by node %d in 10 s, while one waits: got %d, want at most 30", i, got)
				}
			}
			since = unlocked(t, b.got(first))
			b.got(second)
			wantAfter(t, second, since, soonest, latest)
		})
	})
	t.Run("a gate that hangs", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			s := begin(t, b, 3)
			s.gate.hang()
			since := unlocked(t, s.held)
			first, second := firstOf(s.waiters)
			wantAfter(t, first, since, there+back, net+2*timeout10)
			since = unlocked(t, b.got(first))
			b.got(second)
			wantAfter(t, second, since, there+back, net+2*timeout10)
			s.gate.resume()
			unlocked(t, second.lease)
			time.Sleep(12 * time.Second)
			b.wantNothingLeft()
		})
	})
}

// A free resource is had by whoever comes, without the gate. One who knows that others wait
// gives the gate a chance to speak, but not much of one; and what it says goes.
//
// Source: ALGORITHM section 10, "Free lock" and "a queue node that is slow".
func TestVirtualGateHasItsSay(t *testing.T) {
	const trip = 10 * time.Millisecond // of all nodes but the gate
	// crowded is a Locker that knows of another which waits.
	crowded := func(t *testing.T, b *bubble) (l *redlock.Locker, gate *bubbleNode) {
		t.Helper()
		b.all(goNative)
		l, other, holder := b.warmLocker(), b.warmLocker(), b.warmLocker()
		held := b.lock(holder, "r")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.wait(ctx, other)
		time.Sleep(time.Second)
		if _, err := l.TryLock(t.Context(), "r"); err == nil {
			t.Fatal("TryLock: got a lease, want it taken")
		}
		synctest.Wait() // else a node may see it after the release
		cancel()
		<-w.done
		b.unlock(held)
		b.wantHolding("r")
		return l, b.nodes[l.GateOf("r")]
	}
	for _, test := range []struct {
		name      string
		gate      time.Duration // its round trip; negative if it hangs
		patient   bool
		takes     time.Duration
		turn      string
		taken     bool
		forgotten bool
	}{
		{name: "nobody waits, the gate is slow", gate: 30 * time.Millisecond, takes: trip},
		{name: "nobody waits, the gate hangs", gate: -1, takes: trip},
		{name: "others wait, the gate is as fast", patient: true, gate: trip, takes: trip},
		{name: "others wait, the gate is a little slower", patient: true, gate: 15 * time.Millisecond, takes: 15 * time.Millisecond},
		{name: "others wait, the gate is twice as slow", patient: true, gate: 2*trip - 1, takes: 2*trip - 1},
		{name: "others wait, the gate is slower than that", patient: true, gate: 30 * time.Millisecond, takes: 2 * trip},
		{name: "others wait, the gate hangs", patient: true, gate: -1, takes: 2 * trip},
		{name: "others have waited a TTL ago, the gate hangs", patient: true, forgotten: true, gate: -1, takes: trip},
		{name: "another has been called", gate: trip - 1, turn: "another", takes: trip - 1, taken: true},
		{name: "another has been called, which others wait for", patient: true, gate: 15 * time.Millisecond, turn: "another", takes: 15 * time.Millisecond, taken: true},
		{name: "another has been called, but the gate is too slow to say so", gate: 30 * time.Millisecond, turn: "another", takes: trip},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				b.all(goNative)
				gate := b.nodes[l.GateOf("r")]
				if test.patient {
					l, gate = crowded(t, b)
				}
				if test.forgotten {
					time.Sleep(ttl10)
				}
				b.all(func(n *bubbleNode) { n.latency(0, trip) })
				if test.gate < 0 {
					gate.hang()
				} else {
					gate.latency(0, test.gate)
				}
				if test.turn != "" {
					gate.put(redlock.DefaultKeyPrefix+"r~turn", test.turn, time.Second)
				}
				start := time.Now()
				_, err := l.TryLock(t.Context(), "r")
				wantSince(t, "TryLock", start, test.takes)
				if !test.taken {
					if err != nil {
						t.Errorf("TryLock: got %v, want a lease", err)
					}
					return
				}
				wantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken}, redlock.ErrNoQuorum)
				time.Sleep(2 * trip)
				b.wantHolding("r")
			})
		})
	}
	t.Run("one who waits, and whom the gate does not answer, asks the others", func(t *testing.T) {
		inBubble(t, 5, func(t *testing.T, b *bubble) {
			l, gate := crowded(t, b)
			gate.hang()
			start := time.Now()
			lease, err := l.Lock(t.Context(), "r") // the gate first
			if err != nil {
				t.Fatalf("Lock: got %v, want a lease", err)
			}
			wantSince(t, "Lock", start, timeout10)
			if got, want := lease.Validity(), validity10-timeout10; got != want {
				t.Errorf("validity: got %v, want %v", got, want)
			}
		})
	})
}

// A gate that answers later than a quorum of the others keeps the queue all the same.
//
// Source: ALGORITHM section 10.
func TestVirtualGateIsTheLast(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			inBubble(t, n, func(t *testing.T, b *bubble) {
				b.all(goNative)
				lockers := []*redlock.Locker{b.warmLocker(), b.warmLocker(), b.warmLocker()}
				gate := b.nodes[lockers[0].GateOf("r")]
				b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
				gate.latency(time.Millisecond, 1500*time.Microsecond)
				held := b.lock(lockers[0], "r")
				waiters := []*waiter{b.wait(t.Context(), lockers[1])}
				time.Sleep(500 * time.Millisecond)
				waiters = append(waiters, b.wait(t.Context(), lockers[2]))
				for range 5 {
					time.Sleep(1700 * time.Millisecond)
					if got := gate.waiting(); got != 2 {
						t.Fatalf("in the queue: got %d, want 2", got)
					}
				}
				for i, n := range b.nodes {
					if got := n.seen("acquire", "r"); got > 50 {
						t.Errorf("acquires seen by node %d while two wait for 8 s: got %d, want at most 50", i, got)
					}
				}
				start := time.Now()
				b.unlock(held)
				b.got(waiters[0])
				if got := waiters[0].at.Sub(start); got > 10*time.Millisecond {
					t.Errorf("the next lease: got it after %v, want it at once", got)
				}
			})
		})
	}
}

// race has three Lockers with three callers each contend for resources, while a seeded
// schedule of faults goes over the nodes. When that is over everybody has to be served once
// more, and nothing may be left behind. It returns what went wrong, and the number of
// leases.
//
// Source: ALGORITHM section 13, I1, I2, I7, I10 and I11.
func race(t *testing.T, seed uint64, during time.Duration, opts ...redlock.LockOption) (problems []string, leases, handed int) {
	const (
		ttl     = time.Second
		callers = 3
		hold    = 200 // ms, the longest
		bound   = 15 * time.Second
	)
	inBubble(t, 3+2*int(seed%2), func(t *testing.T, b *bubble) {
		b.all(goNative)
		resources := []string{"r", "s"}[:1+seed/2%2]
		checks := make(map[string]*overlapChecker)
		for _, r := range resources {
			checks[r] = new(overlapChecker)
		}
		var mu sync.Mutex
		problem := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, fmt.Sprintf(format, args...))
		}
		grants := make(map[string]int) // leases by token
		// work is one lease, from Lock to Unlock.
		work := func(ctx context.Context, rng *rand.Rand, l *redlock.Locker, resource string) error {
			wait, cancel := context.WithTimeout(ctx, time.Duration(500+rng.IntN(3000))*time.Millisecond)
			defer cancel()
			if ctx.Err() == nil && rng.IntN(4) > 0 {
				wait = ctx
			}
			lease, err := l.Lock(wait, resource, opts...)
			if err != nil {
				return err
			}
			check := checks[resource]
			check.granted(lease)
			if left := lease.Validity(); left < ttl/2 {
				problem("granted with %v left", left)
			}
			over := lease.Context()
			mu.Lock()
			grants[lease.Token()]++
			mu.Unlock()
			busy := time.NewTimer(time.Duration(rng.IntN(hold)) * time.Millisecond)
			if rng.IntN(10) == 0 {
				busy.Reset(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
			select {
			case <-busy.C:
			case <-over.Done():
				if left := lease.Validity(); left < 0 {
					problem("context ended %v after the validity", -left)
				}
			}
			busy.Stop()
			if over.Err() == nil && lease.Validity() <= 0 {
				problem("context goes on after the validity")
			}
			if over.Err() != nil { // it has a last moment for winding down, which Unlock does not end
				check.unlocking(lease)
			}
			switch err := lease.Unlock(ctx); {
			case errors.Is(err, redlock.ErrLost):
				check.unlocking(lease)
			case lease.Validity() > 0 || over.Err() == nil:
				problem("valid for %v after Unlock", lease.Validity())
			}
			check.look()
			return nil
		}
		var lockers []*redlock.Locker
		for range 3 {
			lockers = append(lockers, b.locker(redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithLogger(slog.New(slog.DiscardHandler))))
		}
		ctx, stop := context.WithTimeout(t.Context(), during)
		defer stop()
		var ended sync.WaitGroup
		for i := range 3 * callers {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			ended.Go(func() {
				for ctx.Err() == nil {
					if rng.IntN(3) == 0 {
						time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
					}
					_ = work(ctx, rng, lockers[i%3], resources[rng.IntN(len(resources))])
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed, 99))
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
			harmless(rng, b.nodes[rng.IntN(len(b.nodes))])
			for range 2 {
				n := b.nodes[rng.IntN(len(b.nodes))]
				n.heal()
				n.latency(time.Duration(rng.IntN(5))*time.Millisecond, time.Duration(rng.IntN(5))*time.Millisecond)
			}
			for _, c := range checks {
				c.look()
			}
		}
		b.all(func(n *bubbleNode) { n.heal(); n.latency(time.Millisecond, time.Millisecond) })
		ended.Wait()
		// All is well now: each caller has to be served.
		last, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		for i := range 3 * callers {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			ended.Go(func() {
				lease, err := lockers[i%3].Lock(last, resources[i%len(resources)], opts...)
				if err != nil {
					problem("not served when all is well: %v", err)
					return
				}
				checks[resources[i%len(resources)]].granted(lease)
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				if err := lease.Unlock(t.Context()); err != nil {
					problem("Unlock when all is well: %v", err)
				}
			})
		}
		ended.Wait()
		for i, l := range lockers {
			if got := l.Lines(); got != 0 {
				problem("%d lines of Locker %d are left", got, i)
			}
			if err := l.Close(); err != nil {
				problem("Close: %v", err)
			}
		}
		time.Sleep(10*time.Second + ttl)
		for _, n := range b.nodes {
			if got := n.left(); len(got) > 0 {
				problem("left: %q", got)
			}
		}
		for _, c := range checks {
			problems = append(problems, c.problems...)
			leases += c.leases
		}
		for _, n := range grants {
			handed += n - 1
		}
	})
	return problems, leases, handed
}

// However callers and Lockers hand a resource on to each other, and whatever happens to the
// nodes: it has one holder at a time, tokens rise, everybody is served when all is well
// again, and nothing is left behind.
//
// Source: ALGORITHM section 13, I1, I2, I7, I10 and I11.
func TestVirtualContention(t *testing.T) {
	const seeds = 60
	var leases, handed atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				problems, n, h := race(t, seed, 3*time.Second)
				if len(problems) > 0 {
					t.Errorf("seed %d: got %d problems, %q first, want none", seed, len(problems), problems[0])
				}
				leases.Add(int64(n))
				handed.Add(int64(h))
			})
		}
	})
	if leases.Load() < 10*seeds || handed.Load() < 2*seeds {
		t.Errorf("got %d leases, %d of them handed over, want at least %d and %d, or little was tested", leases.Load(), handed.Load(), 10*seeds, 2*seeds)
	}
	t.Logf("%d leases, %d of them handed over", leases.Load(), handed.Load())
}

// The checker of TestVirtualContention must find what is wrong.
//
// Source: ALGORITHM section 13, negative controls.
func TestVirtualContentionCatches(t *testing.T) {
	for way, want := range map[string]string{
		"sameToken":    "fence ",
		"keepsHandle":  "valid for ",
		"lateHandOver": "granted with ",
	} {
		t.Run(way, func(t *testing.T) {
			redlock.Break(t, way)
			for seed := range uint64(300) {
				problems, _, _ := race(t, seed, 3*time.Second)
				if slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
					return
				}
			}
			t.Errorf("problems with 300 seeds: got none, want %q", want)
		})
	}
}

// A node that has granted did answer, even if the attempt waits for others until its time
// is up: with one more that somebody else has, of three, and one down it is taken.
func TestGrantIsNoTimeout(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		gate := l.GateOf("r")
		busy, down := b.nodes[(gate+1)%3], b.nodes[(gate+2)%3]
		busy.put("redlock:r", "other|6400", time.Minute)
		busy.latency(0, 700*time.Microsecond) // it does not answer just when the time is up
		down.kill()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "r")
		wantErr(t, err, redlock.ErrTaken, context.DeadlineExceeded)
		if errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("got %v, want no ErrNoQuorum", err)
		}
		var verdict *redlock.QuorumError
		if !errors.As(err, &verdict) {
			t.Fatalf("got %v, want a QuorumError", err)
		}
		if verdict.Granted != 1 {
			t.Errorf("got %d nodes that granted, want 1: %v", verdict.Granted, err)
		}
		for _, n := range verdict.Nodes {
			if n.Node == b.nodes[gate].Addr() {
				t.Errorf("got %v, want nothing about the node that granted", n)
			}
		}
	})
}

// Who waits leaves room for a holder's renewals where the gate is not among the nodes that
// hold its lease: the gate grants it every attempt, and it has what the holder lacks for as
// long as it hopes that the others are about to be released.
//
// Source: ALGORITHM section 10, "While the queue node has granted".
func TestVirtualWaiterLeavesRoom(t *testing.T) {
	const ttl = time.Second
	for _, waiters := range []int{1, 3} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				b.all(goNative)
				opts := []redlock.Option{redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl)}
				holder := b.warmLocker(opts...)
				b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
				gate := holder.GateOf("r")
				lacking := []*bubbleNode{b.nodes[gate], b.nodes[(gate+1)%5]}
				for _, n := range lacking { // for the grant alone
					n.put(redlock.DefaultKeyPrefix+"r", "of somebody else", 20*time.Millisecond)
				}
				held := b.lock(holder, "r")
				for range waiters {
					b.wait(t.Context(), b.warmLocker(opts...))
				}
				time.Sleep(ttl)
				for _, n := range lacking {
					if got := n.value("r"); !strings.HasPrefix(got, held.Token()) {
						t.Errorf("node %s: got %q after a TTL, want the key of the holder", n.Addr(), got)
					}
				}
				b.unlock(held)
			})
		})
	}
}

// A holder may lack the key of the gate: it was granted without, before the release of the one
// before it got there. The next process is served as soon as it unlocks all the same, whether
// it has just come, asks just then or has asked in vain.
//
// Source: ALGORITHM section 10, "rest".
func TestVirtualHolderWithoutItsGate(t *testing.T) {
	const there = 250 * time.Microsecond
	for hold := time.Duration(0); hold < 3*time.Second; hold += 7*time.Millisecond + hold/20 {
		t.Run(hold.String(), func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				b.all(goNative)
				holder, waiter := b.warmLocker(), b.warmLocker()
				b.all(func(n *bubbleNode) { n.latency(there, there) })
				gate := b.nodes[holder.GateOf("r")]
				gate.put(redlock.DefaultKeyPrefix+"r", "earlier|0", time.Millisecond)
				held := b.lock(holder, "r", redlock.WithoutRenewal())
				time.Sleep(time.Millisecond)
				if got := gate.value("r"); got != "" {
					t.Fatalf("the gate has %q, want it without a key", got)
				}
				w := b.wait(t.Context(), waiter)
				time.Sleep(hold)
				since := time.Now()
				b.unlock(held)
				b.got(w)
				// The release and the call, and an attempt that asks the gate and then the others;
				// or the pause in which one that is under way asks them again.
				if got, most := w.at.Sub(since), 8*there+2*time.Millisecond; got > most {
					t.Errorf("the next lease: got it after %v, want at most %v", got, most)
				}
				b.unlock(w.lease)
				time.Sleep(time.Second)
				b.wantNothingLeft()
			})
		})
	}
}

// A release may reach the gate while an attempt has its key, and the other nodes, further away,
// when that has asked them in vain. The gate has that process try again at once.
//
// Source: ALGORITHM section 10, "the mark".
func TestVirtualMissedRelease(t *testing.T) {
	const near, far = 250 * time.Microsecond, 2 * time.Millisecond
	for hold := time.Duration(0); hold < 100*time.Millisecond; hold += 700 * time.Microsecond { // of which two attempts take 60
		t.Run(hold.String(), func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				b.all(goNative)
				holder, waiter := b.warmLocker(), b.warmLocker()
				b.all(func(n *bubbleNode) { n.latency(far, far) })
				gate := b.nodes[holder.GateOf("r")]
				gate.latency(near, near)
				gate.put(redlock.DefaultKeyPrefix+"r", "earlier|0", time.Millisecond)
				held := b.lock(holder, "r", redlock.WithoutRenewal())
				w := b.wait(t.Context(), waiter)
				time.Sleep(hold)
				since := time.Now()
				go func() { _ = held.Unlock(context.Background()) }()
				b.got(w)
				// The last rounds of an attempt, a pause between two, and one attempt more.
				if got, most := w.at.Sub(since), 20*time.Millisecond; got > most {
					t.Errorf("the next lease: got it after %v, want at most %v", got, most)
				}
				b.unlock(w.lease)
				time.Sleep(time.Second)
				b.wantNothingLeft()
			})
		})
	}
}

// Clients may have other names for the same masters. They agree all the same on the one that
// keeps the queue, so that no client waits longer than the others.
//
// Source: ALGORITHM section 10, "The queue node of a resource".
func TestVirtualOtherNames(t *testing.T) {
	const resources, others = 3, 5
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		b.all(goNative)
		named := make([]*redis.Options, len(b.nodes))
		for i, n := range b.nodes {
			named[i] = &redis.Options{Addr: fmt.Sprintf("master-%d.example:6379", i+1), Dialer: n.Dial}
		}
		l, err := redlock.NewFromOptions(named, redlock.WithClock(redlock.RuntimeClock()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		b.vouch()
		b.warm(l)
		lockers := []*redlock.Locker{l}
		for range others {
			lockers = append(lockers, b.warmLocker())
		}
		b.all(func(n *bubbleNode) { n.latency(250*time.Microsecond, 250*time.Microsecond) })
		for i := range resources {
			resource := fmt.Sprint("r", i)
			if a, b := lockers[0].GateOf(resource), lockers[1].GateOf(resource); a != b {
				t.Errorf("gate of %s: got node %d by names and node %d by addresses, want one", resource, a, b)
			}
			var locks [1 + others]int
			var longest [1 + others]time.Duration
			var workers sync.WaitGroup
			end := time.Now().Add(20 * time.Second)
			for who, l := range lockers {
				workers.Go(func() {
					for {
						asked := time.Now()
						if asked.After(end) {
							return
						}
						lease, err := l.Lock(t.Context(), resource)
						if err != nil {
							t.Errorf("Lock: got %v, want a lease", err)
							return
						}
						locks[who]++
						longest[who] = max(longest[who], time.Since(asked))
						time.Sleep(20 * time.Millisecond)
						if err := lease.Unlock(t.Context()); err != nil {
							t.Errorf("Unlock: got %v, want no error", err)
						}
					}
				})
			}
			workers.Wait()
			if least, most := slices.Min(locks[:]), slices.Max(locks[:]); least < most*9/10 {
				t.Errorf("%s: got %v locks, want about as many each", resource, locks)
			}
			if got := longest[0]; got > 2*slices.Max(longest[1:]) {
				t.Errorf("%s: the one with other names waited for %v, the others at most %v", resource, got, slices.Max(longest[1:]))
			}
			t.Logf("%s: locks %v, longest waits %v", resource, locks, longest)
		}
	})
}

// Which server a node is that was never reached is not known: another one keeps the queue, the
// same for all who have reached it.
func TestVirtualGateIsKnown(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, b *bubble) {
		b.all(goNative)
		b.nodes[3].blackhole()
		start := time.Now()
		lockers := []*redlock.Locker{b.warmLocker(), b.warmLocker()}
		for i := range 200 {
			resource := fmt.Sprint("r", i)
			gate, other := lockers[0].GateOf(resource), lockers[1].GateOf(resource)
			if gate == 3 || gate != other {
				t.Errorf("gate of %s: got nodes %d and %d, want one that was reached", resource, gate, other)
			}
		}
		wantSince(t, "all of it", start, 0) // node 3 is not known to be down
	})
}

// A subscription over which nothing comes any more, though its connection stays, is found by a
// process that waits before it has lost many turns.
//
// Source: ALGORITHM section 10 ("a ping in the subscription").
func TestVirtualHalfOpenSubscription(t *testing.T) {
	const hold, lockers = 50 * time.Millisecond, 5
	for seed := range 10 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				b.all(goNative)
				ways := make([]uplink, lockers)
				var longest [lockers]time.Duration
				var workers sync.WaitGroup
				b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
				cut := time.Now().Add(5*time.Second + time.Duration(seed)*37*time.Millisecond)
				end := cut.Add(20 * time.Second)
				for who := range lockers {
					l := b.lockerBy(&ways[who])
					workers.Go(func() {
						for time.Now().Before(end) {
							asked := time.Now()
							lease, err := l.Lock(t.Context(), "r")
							if err != nil {
								t.Errorf("Lock: got %v, want a lease", err)
								return
							}
							longest[who] = max(longest[who], time.Since(asked))
							time.Sleep(hold)
							if err := lease.Unlock(t.Context()); err != nil {
								t.Errorf("Unlock: got %v, want no error", err)
							}
						}
					})
				}
				time.Sleep(time.Until(cut))
				ways[0].deafen()
				workers.Wait()
				// It is found within 1.2 s. By then the process has asked again, and stands behind the others.
				if got, most := longest[0], 2*time.Second; got > most {
					t.Errorf("the longest wait of the one that did not hear: got %v, want at most %v", got, most)
				}
				t.Log(longest)
			})
		})
	}
}
