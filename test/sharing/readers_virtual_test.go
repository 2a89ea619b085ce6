package sharing_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
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

// Any number of readers have the resource together, each after one round trip. A writer has it alone.
//
// Source: ALGORITHM section 12.
func TestVirtualReaders(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		one, two := b.WarmLocker(), b.WarmLocker()
		b.All(func(n *virtual.Node) { n.Latency(10*time.Millisecond, 10*time.Millisecond) })
		var readers []*redlock.Lease
		for i := range 6 {
			start := time.Now()
			readers = append(readers, read(b, []*redlock.Locker{one, two}[i%2]))
			locktest.WantSince(t, "TryLock", start, 20*time.Millisecond)
			if m := readers[i].Mode(); m != redlock.ModeShared {
				t.Errorf("got mode %q", m)
			}
			if f := readers[i].Fence(); f != readers[0].Fence() {
				t.Errorf("reader %d: got fencing token %d, want that of the first, %d", i, f, readers[0].Fence())
			}
		}
		_, err := two.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock beside readers", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
		time.Sleep(time.Minute) // they are renewed
		for i, r := range readers {
			if r.Err() != nil || r.Validity() <= 0 {
				t.Errorf("reader %d after a minute: got %v", i, r.Err())
			}
		}
		for _, r := range readers[1:] {
			b.Unlock(r)
		}
		_, err = two.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock beside a reader", err, []error{redlock.ErrTaken})
		b.Unlock(readers[0])
		start := time.Now()
		writer := b.Lock(two, "r")
		locktest.WantSince(t, "Lock after the readers", start, 20*time.Millisecond)
		if writer.Mode() != redlock.ModeExclusive || writer.Fence() <= readers[0].Fence() {
			t.Errorf("got mode %q and fencing token %d, want more than %d of the readers", writer.Mode(), writer.Fence(), readers[0].Fence())
		}
		_, err = one.TryLock(t.Context(), "r", redlock.Shared())
		locktest.WantMatch(t, "a reader beside a writer", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
		b.Unlock(writer)
		last := read(b, one)
		if last.Fence() < writer.Fence() {
			t.Errorf("got fencing token %d after %d of a writer", last.Fence(), writer.Fence())
		}
		b.Unlock(last)
		locktest.WantNothingLeft(b)
	})
}

// An attempt that has met readers asks the nodes that refused again as soon as the queue node has granted,
// and not at the end of the wait for its answer: here the readers leave before.
//
// Source: ALGORITHM section 10, "Free lock".
func TestVirtualWriterAfterReadersElsewhere(t *testing.T) {
	const trip = 400 * time.Microsecond
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		one, two := b.WarmLocker(), b.WarmLocker()
		b.All(func(n *virtual.Node) { n.Latency(trip/2, trip/2) })
		reader := read(b, one)
		queueNode := b.Nodes[locktest.QueueNodeOf(two, "r")]
		queueNode.Put("redlock:r", "", 0)
		queueNode.Put("redlock:r~readers", "", 0)
		queueNode.Latency(trip, trip) // it answers when the others have refused
		w := b.Wait(t.Context(), two)
		time.Sleep(20 * time.Millisecond)
		left := time.Now()
		b.Unlock(reader)
		b.Unlock(b.Got(w))
		if got := w.At.Sub(left); got > 10*trip {
			t.Errorf("a writer behind a reader that left: got the lease after %v, want %v at most", got, 10*trip)
		}
	})
}

// A reader whose keys are gone is told, as any holder is. The keys of readers go with the lock key.
//
// Source: ALGORITHM section 12, "State on a node".
func TestVirtualReaderLoses(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		readers := []*redlock.Lease{read(b, l), read(b, l)}
		b.Each(func(n *virtual.Node) { n.Put("redlock:r", "", 0) }, 0, 1)
		for _, r := range readers {
			locktest.WantDone(t, r.Context(), []error{redlock.ErrLost})
		}
	})
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		reader := read(b, l)
		b.Nodes[0].RestartEmpty()
		time.Sleep(time.Minute)
		locktest.Must(t, reader.Err())
		if got := b.Nodes[0].Value("r"); got != "~readers|0" {
			t.Errorf("got %q on the node, want that it was filled", got)
		}
		b.Unlock(reader)
	})
}

// A writer that waits is not overtaken by readers that come later, and readers that wait in a row get
// the resource together.
//
// Source: ALGORITHM section 12, "Order".
func TestVirtualReadersQueue(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var lockers []*redlock.Locker
		for range 5 {
			lockers = append(lockers, b.WarmLocker())
		}
		first := read(b, lockers[0])
		writer := b.Wait(t.Context(), lockers[1])
		time.Sleep(10 * time.Millisecond)
		var later []*locktest.Waiter
		for _, l := range lockers[2:] {
			later = append(later, waitToRead(b, t.Context(), l))
			time.Sleep(10 * time.Millisecond)
		}
		_, err := lockers[0].TryLock(t.Context(), "r", redlock.Shared())
		locktest.WantMatch(t, "a reader while a writer waits", err, []error{redlock.ErrTaken})
		for range 40 { // timers of waiting processes do not change the order
			time.Sleep(100 * time.Millisecond)
			if !writer.Waits() {
				t.Fatal("a writer beside a reader")
			}
			for i, w := range later {
				if !w.Waits() {
					t.Fatalf("reader %d: got past a writer that waits", i)
				}
			}
		}
		b.Unlock(first)
		b.Got(writer)
		for i, w := range later {
			if !w.Waits() {
				t.Fatalf("reader %d: got beside a writer", i)
			}
		}
		freed := time.Now()
		b.Unlock(writer.Lease)
		for _, w := range later {
			b.Got(w)
			locktest.WantWithin(t, "a reader behind the writer", freed, 50*time.Millisecond)
		}
		for _, w := range later {
			b.Unlock(w.Lease)
		}
		time.Sleep(time.Second)
		locktest.WantNothingLeft(b)
	})
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

// What a call gets inside a lease of the same resource.
//
// Source: ALGORITHM section 12, "Downgrade".
func TestVirtualReadersReentry(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		writer := b.Lock(l, "r")
		ctx, reenter := writer.Context(), redlock.WithReentry()
		_, err := l.Lock(ctx, "r", redlock.Shared())
		locktest.WantMatch(t, "a reader inside a writer's lease", err, []error{redlock.ErrReentry})
		inner, err := l.Lock(ctx, "r", redlock.Shared(), reenter)
		locktest.Must(t, err)
		if inner.Mode() != redlock.ModeExclusive || inner.Token() != writer.Token() {
			t.Errorf("got mode %q of the inner handle, want that of the lease", inner.Mode())
		}
		if err := writer.Downgrade(t.Context()); err != redlock.ErrReentry || writer.Mode() != redlock.ModeExclusive {
			t.Errorf("Downgrade with two handles: got %v and mode %q, want ErrReentry and no change", err, writer.Mode())
		}
		b.Unlock(inner)
		locktest.Must(t, writer.Downgrade(t.Context()))
		_, err = l.Lock(ctx, "r", reenter)
		locktest.WantMatch(t, "Lock inside a reader's lease", err, []error{reason.Upgrade})
		_, err = l.Lock(ctx, "r", redlock.Shared())
		locktest.WantMatch(t, "a reader inside a reader's lease", err, []error{redlock.ErrReentry})
		inner, err = l.Lock(ctx, "r", redlock.Shared(), reenter)
		locktest.Must(t, err)
		b.Unlock(writer)
		if inner.Err() != nil {
			t.Errorf("the inner handle: got %v", inner.Err())
		}
		b.Unlock(inner)
		again := b.Lock(l, "r")
		b.Unlock(again)
	})
}

// A lease that was downgraded lets readers in, and no writer before it ends.
//
// Source: ALGORITHM section 12, "Downgrade"; section 13, I15.
func TestVirtualDowngrade(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		writer := b.Lock(l, "r")
		before := writer.Fence()
		readers := []*locktest.Waiter{waitToRead(b, t.Context(), other), waitToRead(b, t.Context(), l)}
		time.Sleep(1500 * time.Millisecond)
		b.All(func(n *virtual.Node) { n.Latency(10*time.Millisecond, 10*time.Millisecond) })
		over, cancel := context.WithCancel(t.Context())
		cancel()
		locktest.WantErr(t, writer.Downgrade(over), context.Canceled)
		if writer.Mode() != redlock.ModeExclusive {
			t.Error("got a reader after a Downgrade whose context had ended, want no change")
		}
		began := time.Now()
		done := locktest.Begin(func() (*redlock.Lease, error) { return writer, writer.Downgrade(t.Context()) })
		if writer.Mode() != redlock.ModeShared || !done.Waits() {
			t.Error("the right to write did not end before the masters were told")
		}
		b.Got(done)
		if writer.Fence() < before || writer.Fence() >= before+64 {
			t.Errorf("got fencing token %d of the reader, want the end of the block from %d", writer.Fence(), before)
		}
		locktest.Must(t, writer.Downgrade(t.Context()))
		for i, r := range readers { // they come in now, in the writer's process and in others
			b.Got(r)
			if got := r.At.Sub(began); got > 100*time.Millisecond {
				t.Errorf("reader %d: got its lease %v after the downgrade", i, got)
			}
		}
		_, err := other.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock beside a lease that was downgraded", err, []error{redlock.ErrTaken})
		time.Sleep(time.Minute)
		for _, lease := range []*redlock.Lease{writer, readers[0].Lease, readers[1].Lease} {
			locktest.Must(t, lease.Err())
		}
		b.Unlock(readers[0].Lease)
		b.Unlock(readers[1].Lease)
		b.Unlock(writer)
		err = writer.Downgrade(t.Context())
		locktest.WantMatch(t, "Downgrade after Unlock", err, []error{redlock.ErrNotHeld, redlock.ErrReleased})
		next := b.Lock(other, "r")
		if next.Fence() <= writer.Fence() {
			t.Errorf("got fencing token %d after %d of a reader", next.Fence(), writer.Fence())
		}
		b.Unlock(next)
		time.Sleep(time.Second)
		locktest.WantNothingLeft(b)
	})
	locktest.Subtest(t, "without masters", 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		writer := b.Lock(l, "r")
		b.Each(func(n *virtual.Node) { n.LoseReplies() }, 0, 1)
		err := writer.Downgrade(t.Context())
		locktest.WantMatch(t, "Downgrade", err, []error{redlock.ErrNoQuorum})
		if writer.Mode() != redlock.ModeShared || writer.Validity() <= 0 {
			t.Errorf("got mode %q with %v left, want a reader's lease", writer.Mode(), writer.Validity())
		}
		b.All((*virtual.Node).Heal)
		time.Sleep(locktest.TTL / 2) // the renewals go on
		reader := read(b, other)
		locktest.Must(t, errors.Join(writer.Err(), reader.Err()))
	})
	locktest.Subtest(t, "adopted", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		locktest.Must(t, lease.Detach())
		adopted, err := l.Adopt(t.Context(), "r", lease.Token(), lease.Fence())
		locktest.Must(t, err)
		locktest.Must(t, adopted.Downgrade(t.Context()))
		b.Unlock(adopted)
		reader := read(b, l)
		locktest.Must(t, reader.Detach())
		for _, opts := range [][]redlock.LockOption{nil, {redlock.Shared()}} {
			_, err = l.Adopt(t.Context(), "r", reader.Token(), 0, opts...)
			locktest.WantMatch(t, "Adopt of a reader's lease", err, []error{redlock.ErrConfig})
		}
	})
}

// Callers of a process that wait to read together share one lease. Callers that come later do not.
//
// Source: ALGORITHM section 12, "In one process".
func TestVirtualReadersShare(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		held := b.Lock(other, "r")
		var together []*locktest.Waiter
		for range 5 {
			together = append(together, waitToRead(b, t.Context(), l))
		}
		alone := waitToRead(b, t.Context(), l, redlock.WithOwner("alone"))
		time.Sleep(2 * time.Second) // an attempt has begun since
		b.Unlock(held)
		first := b.Got(together[0])
		for _, w := range together {
			if got := b.Got(w); got.Token() != first.Token() {
				t.Error("got another lease, want the same one for all that waited together")
			}
		}
		if got := b.Got(alone); got.Token() == first.Token() || got.Owner() != "alone" {
			t.Error("got the same lease for other options")
		}
		if s := l.Stats(); len(s.Leases) != 2 || s.Waiting != 0 || s.Leases[0].Mode != redlock.ModeShared || s.Leases[0].Handles+s.Leases[1].Handles != 6 {
			t.Errorf("got %+v, want two leases with six handles", s)
		}
		later := read(b, l)
		if later.Token() == first.Token() {
			t.Error("got the lease of others for a caller that came later")
		}
		b.Unlock(later)
		b.Unlock(alone.Lease)
		for _, w := range together[1:] {
			b.Unlock(w.Lease)
		}
		if first.Err() != nil {
			t.Errorf("the last handle: got %v", first.Err())
		}
		_, err := other.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock beside the last handle", err, []error{redlock.ErrTaken})
		b.Unlock(first)
		b.Unlock(b.Lock(other, "r"))
		time.Sleep(time.Second)
		locktest.WantNothingLeft(b)
		if n := door.Look(l).Lines(); n != 0 {
			t.Errorf("got %d lines", n)
		}
	})
}

// A process has readers and writers that wait, and gives up some of them.
func TestVirtualReadersGiveUp(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		held := b.Lock(other, "r")
		ctx, cancel := context.WithCancel(t.Context())
		reader := waitToRead(b, ctx, l)
		writer := b.Wait(t.Context(), l)
		cancel()
		<-reader.Done
		locktest.WantMatch(t, "Lock", reader.Err, []error{redlock.ErrTaken, context.Canceled})
		freed := time.Now()
		b.Unlock(held)
		b.Unlock(b.Got(writer))
		locktest.WantWithin(t, "the writer", freed, 10*time.Millisecond)

		reading := read(b, other)
		ctx, cancel = context.WithCancel(t.Context())
		writer = b.Wait(ctx, l)
		time.Sleep(10 * time.Millisecond)
		reader = waitToRead(b, t.Context(), l)
		time.Sleep(time.Second)
		if !reader.Waits() {
			t.Fatal("a reader past a writer that waits")
		}
		gone := time.Now()
		cancel()
		<-writer.Done
		b.Unlock(b.Got(reader))
		locktest.WantWithin(t, "the reader behind a writer that gave up", gone, 10*time.Millisecond)
		b.Unlock(reading)
		time.Sleep(time.Second)
		locktest.WantNothingLeft(b)
	})
}

// Break takes the resource from all readers.
func TestVirtualReadersBreak(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(), b.WarmLocker()
		one, two := read(b, l, redlock.WithOwner("one")), read(b, other, redlock.WithOwner(""))
		_, err := admin.Break(t.Context(), l, "r")
		locktest.Must(t, err)
		for _, lease := range []*redlock.Lease{one, two} {
			locktest.WantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrBroken})
		}
		start := time.Now()
		lease, err := l.Lock(t.Context(), "r")
		locktest.Must(t, err)
		locktest.WantWithin(t, "Lock after Break", start, locktest.TTL+time.Second)
		b.Unlock(lease)
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
