package sharing_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

func waitToRead(b *locktest.Bubble, ctx context.Context, l *redlock.Locker, opts ...redlock.LockOption) *locktest.Waiter {
	return locktest.Begin(func() (*redlock.Lease, error) { return l.Lock(ctx, "r", append(opts, redlock.Shared())...) })
}

// read returns a lease of a reader, at once, and waits until all nodes have answered: otherwise a writer that
// comes in the same moment can get the key of a node that was not needed.
func read(b *locktest.Bubble, l *redlock.Locker, opts ...redlock.LockOption) *redlock.Lease {
	b.T.Helper()
	lease, err := l.TryLock(b.T.Context(), "r", append(opts, redlock.Shared())...)
	locktest.Must(b.T, err)
	synctest.Wait()
	return lease
}

// Readers that come one after the other, so that the resource is never free of them, do not starve a
// writer, even where the queue node is far away.
//
// Source: ALGORITHM section 12, "Order", points 1 and 3.
func TestVirtualReadersDoNotStarveAWriter(t *testing.T) {
	for _, test := range []struct {
		name string
		take taking
		far  time.Duration
		most time.Duration
	}{
		{"Lock", (*redlock.Locker).Lock, 0, 200 * time.Millisecond},
		{"Lock, the queue node is far away", (*redlock.Locker).Lock, 30 * time.Millisecond, 500 * time.Millisecond},
		{"TryLock", (*redlock.Locker).TryLock, 0, 2500 * time.Millisecond}, // its keys on the other nodes are in the way until it is refused
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			if took := amongReaders(b, test.take, test.far); took > test.most {
				t.Errorf("a writer among readers that hold for 50 ms: got the lease after %v", took)
			}
		})
	}
}

// taking is Lock or TryLock.
type taking func(*redlock.Locker, context.Context, string, ...redlock.LockOption) (*redlock.Lease, error)

// amongReaders returns how long a writer waits while readers of two processes come every 20 ms. The
// queue node is farther away than the others.
func amongReaders(b *locktest.Bubble, take taking, far time.Duration) time.Duration {
	lockers := []*redlock.Locker{b.WarmLocker(), b.WarmLocker(), b.WarmLocker()}
	b.Nodes[locktest.QueueNodeOf(lockers[0], "r")].Latency(far, far)
	ctx, stop := context.WithTimeout(b.T.Context(), 5*time.Second)
	defer stop()
	var reads atomic.Int64
	for i := range 2 {
		go func() {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			for ctx.Err() == nil {
				go func() {
					lease, err := take(lockers[i], ctx, "r", redlock.Shared())
					if err == nil {
						reads.Add(1)
						time.Sleep(50 * time.Millisecond)
						_ = lease.Unlock(context.Background())
					}
				}()
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	time.Sleep(500 * time.Millisecond)
	if n := reads.Load(); n < 20 {
		b.T.Errorf("got %d leases of readers in half a second, want 20", n)
	}
	start := time.Now()
	lease, err := lockers[2].Lock(ctx, "r")
	took := time.Since(start)
	if err == nil {
		b.Unlock(lease)
	}
	stop()
	time.Sleep(time.Second)
	return took
}

// With a rule left out the tests of readers notice.
//
// Source: ALGORITHM section 13, "Negative controls".
func TestVirtualReadersControls(t *testing.T) {
	redistest.TakesSeconds(t)
	replace := func(t *testing.T, old, by string) {
		inject.Script(t, func(script string) string {
			return strings.Replace(script, old, by, 1)
		})
	}
	t.Run("a writer ignores readers", func(t *testing.T) {
		replace(t, "if held == sign and not settle(key) then", "if held == sign and call('DEL', key) then")
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			seen := locktest.NewBook()
			_, err := seen.TakeShared("r", func() (*redlock.Lease, error) { return l.TryLock(t.Context(), "r", redlock.Shared()) })
			locktest.Must(t, err)
			_, err = seen.Take("r", false, func() (*redlock.Lease, error) { return l.TryLock(t.Context(), "r") })
			locktest.Must(t, err)
			if p := seen.Problems(); len(p) == 0 || !strings.Contains(p[0], "a writer and a reader") {
				t.Errorf("got problems %q, want a writer beside a reader", p)
			}
		})
	})
	t.Run("readers overtake the queue", func(t *testing.T) {
		replace(t, "and behindWriter(key, who) then", "and false then")
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			if took := amongReaders(b, (*redlock.Locker).TryLock, 0); took < time.Second {
				t.Errorf("a writer among readers: got the lease after %v, want it to starve", took)
			}
		})
	})
	t.Run("attempts that meet readers do not wait for the queue node", func(t *testing.T) {
		inject.Script(t, func(script string) string {
			script = strings.Replace(script, "counter, beside\n", "counter, who and beside or 0\n", 1)
			return strings.Replace(script, "local count = held == sign and 1 or 0", "local count = 0", 1)
		})
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			if took := amongReaders(b, (*redlock.Locker).TryLock, 30*time.Millisecond); took < time.Second {
				t.Errorf("a writer among readers, the queue node is far away: got the lease after %v, want it to starve", took)
			}
		})
	})
	t.Run("the first reader alone is called", func(t *testing.T) {
		replace(t, "any = invite(key, name, asker, polls) or any", "return invite(key, name, asker, polls)")
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			holder, one, two := b.WarmLocker(), b.WarmLocker(), b.WarmLocker()
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			b.Nodes[locktest.QueueNodeOf(holder, "r")].Latency(time.Millisecond/2, time.Millisecond/2) // it grants before there is a quorum
			held := b.Lock(holder, "r")
			readers := []*locktest.Waiter{waitToRead(b, t.Context(), one), waitToRead(b, t.Context(), two)}
			time.Sleep(1300 * time.Millisecond) // between two looks of the second reader
			freed := time.Now()
			b.Unlock(held)
			for _, w := range readers {
				b.Got(w)
			}
			if took := max(readers[0].At.Sub(freed), readers[1].At.Sub(freed)); took < 100*time.Millisecond {
				t.Errorf("the second reader: got the lease after %v, want only by its timer", took)
			}
		})
	})
	t.Run("readers of a key that is gone count", func(t *testing.T) {
		replace(t, "call('DEL', readers)\n    else", "call('TIME')\n    else")
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lost := read(b, l)
			b.All(func(n *virtual.Node) { n.Put("redlock:r", "", 0) })
			read(b, l)
			time.Sleep(locktest.TTL)
			locktest.Must(t, lost.Err())
		})
	})
}

// A lease that was adopted is downgraded as any other, and that of a reader is not adopted.
//
// Source: ALGORITHM section 12, "Downgrade".
func TestVirtualDowngradeOfAnAdoptedLease(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		former, err := lease.Detach()
		locktest.Must(t, err)
		adopted, err := l.Adopt(t.Context(), former)
		locktest.Must(t, err)
		former = adopted.Handle()
		locktest.Must(t, adopted.Downgrade(t.Context()))
		_, err = l.Adopt(t.Context(), former)
		locktest.WantMatch(t, "Adopt of a lease that became a reader's", err, []error{redlock.ErrNotHeld})
		b.Unlock(adopted)
		none, err := read(b, l).Detach()
		locktest.Must(t, err)
		_, err = l.Adopt(t.Context(), none)
		locktest.WantMatch(t, "Adopt of a reader's lease", err, []error{redlock.ErrConfig})
	})
}

// Readers of a process wait for no more hand-overs between its writers than other processes do.
//
// Source: ALGORITHM section 10, "In one process"; section 12.
func TestVirtualReadersBesideHandOvers(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		held := b.Lock(l, "r")
		for range 50 {
			w := b.Wait(t.Context(), l)
			go func() {
				<-w.Done
				if w.Err == nil {
					time.Sleep(10 * time.Millisecond)
					_ = w.Lease.Unlock(context.Background())
				}
			}()
		}
		reader := waitToRead(b, t.Context(), l)
		time.Sleep(time.Second)
		start := time.Now()
		b.Unlock(held)
		b.Unlock(b.Got(reader))
		if took := reader.At.Sub(start); took > 300*time.Millisecond {
			t.Errorf("a reader beside 50 writers of its process, 10 ms each: got the lease after %v", took)
		}
		time.Sleep(2 * time.Second)
	})
}
