package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
)

// begin calls get in a goroutine of its own.
func (b *bubble) begin(get func() (*redlock.Lease, error)) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = get()
		w.at = time.Now()
	}()
	synctest.Wait() // it gets in line
	return w
}

func (b *bubble) waitToRead(ctx context.Context, l *redlock.Locker, opts ...redlock.LockOption) *waiter {
	return b.begin(func() (*redlock.Lease, error) { return l.Lock(ctx, "r", append(opts, redlock.Shared())...) })
}

// read returns a lease of a reader, at once, and waits until all nodes have answered: otherwise a writer that
// comes in the same moment can get the key of a node that was not needed.
func (b *bubble) read(l *redlock.Locker, opts ...redlock.LockOption) *redlock.Lease {
	b.t.Helper()
	lease, err := l.TryLock(b.t.Context(), "r", append(opts, redlock.Shared())...)
	if err != nil {
		b.t.Fatalf("TryLock: got %v, want a lease", err)
	}
	synctest.Wait()
	return lease
}

// waits reports whether a call has not returned.
func (w *waiter) waits() bool {
	synctest.Wait()
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// Any number of readers have the resource together, each after one round trip. A writer has it alone.
//
// Source: ALGORITHM section 12.
func TestVirtualReaders(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		one, two := b.warmLocker(), b.warmLocker()
		b.all(func(n *bubbleNode) { n.latency(10*time.Millisecond, 10*time.Millisecond) })
		var readers []*redlock.Lease
		for i := range 6 {
			start := time.Now()
			readers = append(readers, b.read([]*redlock.Locker{one, two}[i%2]))
			wantSince(t, "TryLock", start, 20*time.Millisecond)
			if m := readers[i].Mode(); m != redlock.ModeShared {
				t.Errorf("got mode %q", m)
			}
			if f := readers[i].Fence(); f != readers[0].Fence() {
				t.Errorf("reader %d: got fencing token %d, want that of the first, %d", i, f, readers[0].Fence())
			}
		}
		_, err := two.TryLock(t.Context(), "r")
		wantMatch(t, "TryLock beside readers", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
		time.Sleep(time.Minute) // they are renewed
		for i, r := range readers {
			if r.Err() != nil || r.Validity() <= 0 {
				t.Errorf("reader %d after a minute: got %v", i, r.Err())
			}
		}
		for _, r := range readers[1:] {
			b.unlock(r)
		}
		_, err = two.TryLock(t.Context(), "r")
		wantMatch(t, "TryLock beside a reader", err, []error{redlock.ErrTaken})
		b.unlock(readers[0])
		start := time.Now()
		writer := b.lock(two, "r")
		wantSince(t, "Lock after the readers", start, 20*time.Millisecond)
		if writer.Mode() != redlock.ModeExclusive || writer.Fence() <= readers[0].Fence() {
			t.Errorf("got mode %q and fencing token %d, want more than %d of the readers", writer.Mode(), writer.Fence(), readers[0].Fence())
		}
		_, err = one.TryLock(t.Context(), "r", redlock.Shared())
		wantMatch(t, "a reader beside a writer", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
		b.unlock(writer)
		last := b.read(one)
		if last.Fence() < writer.Fence() {
			t.Errorf("got fencing token %d after %d of a writer", last.Fence(), writer.Fence())
		}
		b.unlock(last)
		b.wantNothingLeft()
	})
}

// A reader that dies keeps a writer out for its own TTL, and ends no other reader's lease.
//
// Source: ALGORITHM section 13, I13.
func TestVirtualReaderDies(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l, other := b.warmLocker(), b.warmLocker()
		for _, ttl := range []time.Duration{time.Second, 5 * time.Second} {
			living := b.read(l)
			dead := b.read(l, redlock.WithTTL(ttl), redlock.WithoutRenewal())
			died := time.Now()
			w := b.wait(t.Context(), other)
			time.Sleep(ttl / 2)
			if living.Err() != nil || !w.waits() {
				t.Fatalf("got %v of a reader and %v of a writer, want a lease and a wait", living.Err(), w.err)
			}
			b.unlock(living)
			b.unlock(b.got(w))
			if got := w.at.Sub(died); got < ttl || got > ttl+1300*time.Millisecond {
				t.Errorf("a writer behind a dead reader with a TTL of %v: got the lease after %v", ttl, got)
			}
			if !errors.Is(dead.Err(), redlock.ErrLost) {
				t.Errorf("got %v of the dead reader", dead.Err())
			}
		}
		time.Sleep(ttl10 + time.Second) // a master that the writers did without keeps the sign of readers until then
		b.wantNothingLeft()
	})
}

// A reader whose keys are gone is told, as any holder is. The keys of readers go with the lock key.
//
// Source: ALGORITHM section 12, "State on a node".
func TestVirtualReaderLoses(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		readers := []*redlock.Lease{b.read(l), b.read(l)}
		b.each(func(n *bubbleNode) { n.put("redlock:r", "", 0) }, 0, 1)
		for _, r := range readers {
			wantDone(t, r.Context(), []error{redlock.ErrLost})
		}
	})
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		reader := b.read(l)
		b.nodes[0].restartEmpty()
		time.Sleep(time.Minute)
		if err := reader.Err(); err != nil {
			t.Errorf("one node restarted empty: got %v, want a lease", err)
		}
		if got := b.nodes[0].value("r"); got != "~readers|0" {
			t.Errorf("got %q on the node, want that it was filled", got)
		}
		b.unlock(reader)
	})
}

// A writer that waits is not overtaken by readers that come later, and readers that wait in a row get
// the resource together.
//
// Source: ALGORITHM section 12, "Order".
func TestVirtualReadersQueue(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		var lockers []*redlock.Locker
		for range 5 {
			lockers = append(lockers, b.warmLocker())
		}
		first := b.read(lockers[0])
		writer := b.wait(t.Context(), lockers[1])
		time.Sleep(10 * time.Millisecond)
		var later []*waiter
		for _, l := range lockers[2:] {
			later = append(later, b.waitToRead(t.Context(), l))
			time.Sleep(10 * time.Millisecond)
		}
		_, err := lockers[0].TryLock(t.Context(), "r", redlock.Shared())
		wantMatch(t, "a reader while a writer waits", err, []error{redlock.ErrTaken})
		for range 40 { // timers of waiting processes do not change the order
			time.Sleep(100 * time.Millisecond)
			if !writer.waits() {
				t.Fatal("a writer beside a reader")
			}
			for i, w := range later {
				if !w.waits() {
					t.Fatalf("reader %d: got past a writer that waits", i)
				}
			}
		}
		b.unlock(first)
		b.got(writer)
		for i, w := range later {
			if !w.waits() {
				t.Fatalf("reader %d: got beside a writer", i)
			}
		}
		freed := time.Now()
		b.unlock(writer.lease)
		for _, w := range later {
			b.got(w)
			wantWithin(t, "a reader behind the writer", freed, 50*time.Millisecond)
		}
		for _, w := range later {
			b.unlock(w.lease)
		}
		time.Sleep(time.Second)
		b.wantNothingLeft()
	})
}

// Readers that come one after the other, so that the resource is never free of them, do not starve a
// writer, even where the queue node is far away.
//
// Source: ALGORITHM section 12, "Order", points 1 and 3.
func TestVirtualReadersDoNotStarveAWriter(t *testing.T) {
	for _, far := range []time.Duration{0, 30 * time.Millisecond} {
		t.Run(far.String(), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				if took := b.amongReaders(far); took > 200*time.Millisecond+10*far {
					t.Errorf("a writer among readers that hold for 50 ms: got the lease after %v", took)
				}
			})
		})
	}
}

// amongReaders returns how long a writer waits while readers of two processes come every 20 ms. The
// queue node is farther away than the others.
func (b *bubble) amongReaders(far time.Duration) time.Duration {
	lockers := []*redlock.Locker{b.warmLocker(), b.warmLocker(), b.warmLocker()}
	b.nodes[lockers[0].QueueNodeOf("r")].latency(far, far)
	ctx, stop := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer stop()
	for i := range 2 {
		go func() {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			for ctx.Err() == nil {
				go func() {
					lease, err := lockers[i].Lock(ctx, "r", redlock.Shared())
					if err == nil {
						time.Sleep(50 * time.Millisecond)
						_ = lease.Unlock(context.Background())
					}
				}()
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	time.Sleep(500 * time.Millisecond)
	start := time.Now()
	lease, err := lockers[2].Lock(ctx, "r")
	took := time.Since(start)
	if err == nil {
		b.unlock(lease)
	}
	stop()
	time.Sleep(time.Second)
	return took
}

// With a rule left out the tests of readers notice.
//
// Source: ALGORITHM section 13, "Negative controls".
func TestVirtualReadersControls(t *testing.T) {
	replace := func(t *testing.T, old, by string) {
		inject.Script(t, func(script string) string {
			return strings.Replace(script, old, by, 1)
		})
	}
	t.Run("a writer ignores readers", func(t *testing.T) {
		replace(t, "if held == sign and not settle(key) then", "if held == sign and call('DEL', key) then")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			seen := locktest.NewBook()
			_, err := seen.TakeShared("r", func() (*redlock.Lease, error) { return l.TryLock(t.Context(), "r", redlock.Shared()) })
			must(t, err)
			_, err = seen.Take("r", false, func() (*redlock.Lease, error) { return l.TryLock(t.Context(), "r") })
			must(t, err)
			if p := seen.Problems(); len(p) == 0 || !strings.Contains(p[0], "a writer and a reader") {
				t.Errorf("got problems %q, want a writer beside a reader", p)
			}
		})
	})
	t.Run("readers overtake the queue", func(t *testing.T) {
		replace(t, "and behind(key, who) then", "and false then")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			if took := b.amongReaders(0); took < time.Second {
				t.Errorf("a writer among readers: got the lease after %v, want it to starve", took)
			}
		})
	})
	t.Run("attempts that meet readers do not wait for the queue node", func(t *testing.T) {
		inject.Script(t, func(script string) string {
			script = strings.Replace(script, "counter, beside\n", "counter, who and beside or 0\n", 1)
			return strings.Replace(script, "local count = held == sign and 1 or 0", "local count = 0", 1)
		})
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			if took := b.amongReaders(30 * time.Millisecond); took < time.Second {
				t.Errorf("a writer among readers, the queue node is far away: got the lease after %v, want it to starve", took)
			}
		})
	})
	t.Run("no call after the grant of a reader", func(t *testing.T) {
		replace(t, "callNext(key, sign)", "")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			holder, one, two := b.warmLocker(), b.warmLocker(), b.warmLocker()
			b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
			b.nodes[holder.QueueNodeOf("r")].latency(time.Millisecond/2, time.Millisecond/2) // it grants before there is a quorum
			held := b.lock(holder, "r")
			readers := []*waiter{b.waitToRead(t.Context(), one), b.waitToRead(t.Context(), two)}
			time.Sleep(1500 * time.Millisecond)
			freed := time.Now()
			b.unlock(held)
			for _, w := range readers {
				b.got(w)
			}
			if took := max(readers[0].at.Sub(freed), readers[1].at.Sub(freed)); took < 100*time.Millisecond {
				t.Errorf("the second reader: got the lease after %v, want only by its timer", took)
			}
		})
	})
	t.Run("readers of a key that is gone count", func(t *testing.T) {
		replace(t, "call('DEL', readers)\n    else", "call('TIME')\n    else")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lost := b.read(l)
			b.all(func(n *bubbleNode) { n.put("redlock:r", "", 0) })
			b.read(l)
			time.Sleep(ttl10)
			if err := lost.Err(); err != nil {
				t.Errorf("a reader whose keys were deleted: got %v, want that it is not noticed", err)
			}
		})
	})
}

// What a call gets inside a lease of the same resource.
//
// Source: ALGORITHM section 12, "Downgrade".
func TestVirtualReadersReentry(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		writer := b.lock(l, "r")
		ctx, reenter := writer.Context(), redlock.WithReentry()
		_, err := l.Lock(ctx, "r", redlock.Shared())
		wantMatch(t, "a reader inside a writer's lease", err, []error{redlock.ErrReentry})
		inner, err := l.Lock(ctx, "r", redlock.Shared(), reenter)
		must(t, err)
		if inner.Mode() != redlock.ModeExclusive || inner.Token() != writer.Token() {
			t.Errorf("got mode %q of the inner handle, want that of the lease", inner.Mode())
		}
		if err := writer.Downgrade(t.Context()); err != redlock.ErrReentry || writer.Mode() != redlock.ModeExclusive {
			t.Errorf("Downgrade with two handles: got %v and mode %q, want ErrReentry and no change", err, writer.Mode())
		}
		b.unlock(inner)
		must(t, writer.Downgrade(t.Context()))
		_, err = l.Lock(ctx, "r", reenter)
		wantMatch(t, "Lock inside a reader's lease", err, []error{reason.Upgrade})
		_, err = l.Lock(ctx, "r", redlock.Shared())
		wantMatch(t, "a reader inside a reader's lease", err, []error{redlock.ErrReentry})
		inner, err = l.Lock(ctx, "r", redlock.Shared(), reenter)
		must(t, err)
		b.unlock(writer)
		if inner.Err() != nil {
			t.Errorf("the inner handle: got %v", inner.Err())
		}
		b.unlock(inner)
		again := b.lock(l, "r")
		b.unlock(again)
	})
}

// A lease that was downgraded lets readers in, and no writer before it ends.
//
// Source: ALGORITHM section 12, "Downgrade"; section 13, I15.
func TestVirtualDowngrade(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l, other := b.warmLocker(), b.warmLocker()
		writer := b.lock(l, "r")
		before := writer.Fence()
		waits := b.waitToRead(t.Context(), other)
		b.all(func(n *bubbleNode) { n.latency(10*time.Millisecond, 10*time.Millisecond) })
		done := b.begin(func() (*redlock.Lease, error) { return writer, writer.Downgrade(t.Context()) })
		if writer.Mode() != redlock.ModeShared || !done.waits() {
			t.Error("the right to write did not end before the masters were told")
		}
		b.got(done)
		if writer.Fence() < before || writer.Fence() >= before+64 {
			t.Errorf("got fencing token %d of the reader, want the end of the block from %d", writer.Fence(), before)
		}
		must(t, writer.Downgrade(t.Context()))
		reader := b.got(waits)
		_, err := other.TryLock(t.Context(), "r")
		wantMatch(t, "TryLock beside a lease that was downgraded", err, []error{redlock.ErrTaken})
		time.Sleep(time.Minute)
		if writer.Err() != nil || reader.Err() != nil {
			t.Errorf("after a minute: got %v and %v", writer.Err(), reader.Err())
		}
		b.unlock(reader)
		b.unlock(writer)
		err = writer.Downgrade(t.Context())
		wantMatch(t, "Downgrade after Unlock", err, []error{redlock.ErrNotHeld, redlock.ErrReleased})
		next := b.lock(other, "r")
		if next.Fence() <= writer.Fence() {
			t.Errorf("got fencing token %d after %d of a reader", next.Fence(), writer.Fence())
		}
		b.unlock(next)
		time.Sleep(time.Second)
		b.wantNothingLeft()
	})
	t.Run("without masters", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l, other := b.warmLocker(), b.warmLocker()
			writer := b.lock(l, "r")
			b.each(func(n *bubbleNode) { n.silence() }, 0, 1)
			err := writer.Downgrade(t.Context())
			wantMatch(t, "Downgrade", err, []error{redlock.ErrNoQuorum})
			if writer.Mode() != redlock.ModeShared || writer.Validity() <= 0 {
				t.Errorf("got mode %q with %v left, want a reader's lease", writer.Mode(), writer.Validity())
			}
			b.all((*bubbleNode).heal)
			time.Sleep(ttl10 / 2) // the renewals go on
			reader := b.read(other)
			if err := errors.Join(writer.Err(), reader.Err()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("adopted", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			lease := b.lock(l, "r")
			must(t, lease.Detach())
			adopted, err := l.Adopt(t.Context(), "r", lease.Token(), lease.Fence())
			must(t, err)
			wantMatch(t, "Downgrade of a lease that was adopted", adopted.Downgrade(t.Context()), []error{redlock.ErrConfig})
			b.unlock(adopted)
			reader := b.read(l)
			must(t, reader.Detach())
			for _, opts := range [][]redlock.LockOption{nil, {redlock.Shared()}} {
				_, err = l.Adopt(t.Context(), "r", reader.Token(), 0, opts...)
				wantMatch(t, "Adopt of a reader's lease", err, []error{redlock.ErrConfig})
			}
		})
	})
}

// Callers of a process that wait to read together share one lease. Callers that come later do not.
//
// Source: ALGORITHM section 12, "In one process".
func TestVirtualReadersShare(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l, other := b.warmLocker(), b.warmLocker()
		held := b.lock(other, "r")
		var together []*waiter
		for range 5 {
			together = append(together, b.waitToRead(t.Context(), l))
		}
		alone := b.waitToRead(t.Context(), l, redlock.WithOwner("alone"))
		time.Sleep(2 * time.Second) // an attempt has begun since
		b.unlock(held)
		first := b.got(together[0])
		for _, w := range together {
			if got := b.got(w); got.Token() != first.Token() {
				t.Error("got another lease, want the same one for all that waited together")
			}
		}
		if got := b.got(alone); got.Token() == first.Token() || got.Owner() != "alone" {
			t.Error("got the same lease for other options")
		}
		if s := l.Stats(); len(s.Leases) != 2 || s.Waiting != 0 || s.Leases[0].Mode != redlock.ModeShared || s.Leases[0].Handles+s.Leases[1].Handles != 6 {
			t.Errorf("got %+v, want two leases with six handles", s)
		}
		later := b.read(l)
		if later.Token() == first.Token() {
			t.Error("got the lease of others for a caller that came later")
		}
		b.unlock(later)
		b.unlock(alone.lease)
		for _, w := range together[1:] {
			b.unlock(w.lease)
		}
		if first.Err() != nil {
			t.Errorf("the last handle: got %v", first.Err())
		}
		_, err := other.TryLock(t.Context(), "r")
		wantMatch(t, "TryLock beside the last handle", err, []error{redlock.ErrTaken})
		b.unlock(first)
		b.unlock(b.lock(other, "r"))
		time.Sleep(time.Second)
		b.wantNothingLeft()
		if n := l.Lines(); n != 0 {
			t.Errorf("got %d lines", n)
		}
	})
}

// A process has readers and writers that wait, and gives up some of them.
func TestVirtualReadersGiveUp(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l, other := b.warmLocker(), b.warmLocker()
		held := b.lock(other, "r")
		ctx, cancel := context.WithCancel(t.Context())
		reader := b.waitToRead(ctx, l)
		writer := b.wait(t.Context(), l)
		cancel()
		<-reader.done
		wantMatch(t, "Lock", reader.err, []error{redlock.ErrTaken, context.Canceled})
		freed := time.Now()
		b.unlock(held)
		b.unlock(b.got(writer))
		wantWithin(t, "the writer", freed, 10*time.Millisecond)

		reading := b.read(other)
		ctx, cancel = context.WithCancel(t.Context())
		writer = b.wait(ctx, l)
		time.Sleep(10 * time.Millisecond)
		reader = b.waitToRead(t.Context(), l)
		time.Sleep(time.Second)
		if !reader.waits() {
			t.Fatal("a reader past a writer that waits")
		}
		gone := time.Now()
		cancel()
		<-writer.done
		b.unlock(b.got(reader))
		wantWithin(t, "the reader behind a writer that gave up", gone, 10*time.Millisecond)
		b.unlock(reading)
		time.Sleep(time.Second)
		b.wantNothingLeft()
	})
}

// Break takes the resource from all readers.
func TestVirtualReadersBreak(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l, other := b.warmLocker(), b.warmLocker()
		one, two := b.read(l, redlock.WithOwner("one")), b.read(other)
		synctest.Wait()
		in, err := admin.Inspect(t.Context(), l, "r")
		must(t, err)
		if in.Verdict != admin.VerdictShared || len(in.Readers) != 2 || in.Masters[0].ReaderKeys != 2 {
			t.Errorf("got %v with readers %v, %d on the first master", in.Verdict, in.Readers, in.Masters[0].ReaderKeys)
		}
		names := fmt.Sprint(in.Readers[0].Owner, in.Readers[1].Owner)
		if names != "one" {
			t.Errorf("got owners %q", names)
		}
		_, err = admin.Break(t.Context(), l, "r")
		must(t, err)
		for _, lease := range []*redlock.Lease{one, two} {
			wantDone(t, lease.Context(), []error{redlock.ErrLost, redlock.ErrBroken})
		}
		in, err = admin.Inspect(t.Context(), l, "r")
		must(t, err)
		if in.Verdict != admin.VerdictBroken {
			t.Errorf("got %v after Break", in.Verdict)
		}
		start := time.Now()
		lease, err := l.Lock(t.Context(), "r")
		must(t, err)
		wantWithin(t, "Lock after Break", start, ttl10+time.Second)
		b.unlock(lease)
	})
}

// Readers of a process wait for no more hand-overs between its writers than other processes do.
//
// Source: ALGORITHM section 10, "In one process"; section 12.
func TestVirtualReadersBesideHandOvers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		held := b.lock(l, "r")
		for range 50 {
			w := b.wait(t.Context(), l)
			go func() {
				<-w.done
				if w.err == nil {
					time.Sleep(10 * time.Millisecond)
					_ = w.lease.Unlock(context.Background())
				}
			}()
		}
		reader := b.waitToRead(t.Context(), l)
		time.Sleep(time.Second)
		start := time.Now()
		b.unlock(held)
		b.unlock(b.got(reader))
		if took := reader.at.Sub(start); took > 300*time.Millisecond {
			t.Errorf("a reader beside 50 writers of its process, 10 ms each: got the lease after %v", took)
		}
		time.Sleep(2 * time.Second)
	})
}
