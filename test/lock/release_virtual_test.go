package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	const ms = time.Millisecond
	kill, hang, blackhole := (*virtual.Node).Kill, (*virtual.Node).Hang, (*virtual.Node).Blackhole
	each := func(do func(*virtual.Node), nodes ...int) func(*locktest.Bubble) {
		return func(b *locktest.Bubble) { b.Each(do, nodes...) }
	}
	slow := func(there, back time.Duration) func(*virtual.Node) {
		return func(n *virtual.Node) { n.Latency(there, back) }
	}
	for _, test := range []struct {
		name          string
		nodes         int
		before, while func(*locktest.Bubble) // faults: since before the lease, and while it is held
		takes         time.Duration
		want          error
		left          []int // the nodes that have the key until they are healed
	}{
		{"two of five hung", 5, nil, each(hang, 3, 4), 0, nil, []int{3, 4}},
		{"each node slower than the one before", 5, nil, func(b *locktest.Bubble) {
			for i, n := range b.Nodes {
				slow(time.Duration(i+1)*ms, time.Duration(i+1)*ms)(n)
			}
		}, 6 * ms, nil, nil},
		{"one of three down since before, one slow", 3, each(kill, 0), each(slow(2*ms, ms), 2), 3 * ms, nil, nil},
		// Two nodes have no key of the lease then: the first never had it.
		{"one of three down since before, one hung", 3, each(kill, 0), each(hang, 2), locktest.MasterTimeout, nil, []int{2}},
		{"three of five hung", 5, nil, each(hang, 0, 1, 2), locktest.MasterTimeout, redlock.ErrNoQuorum, []int{0, 1, 2}},
		{"three of five blackholed", 5, nil, each(blackhole, 0, 1, 2), locktest.MasterTimeout, redlock.ErrNoQuorum, []int{0, 1, 2}},
		{"connections that broke", 3, nil, each(func(n *virtual.Node) { n.Kill(); n.Restart() }, 0, 1, 2), 0, nil, nil},
	} {
		locktest.Subtest(t, test.name, test.nodes, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			if test.before != nil {
				test.before(b)
				b.Unlock(b.Lock(l, "another")) // which finds the fault
			}
			lease := b.Lock(l, "r")
			test.while(b)
			start := time.Now()
			err := lease.Unlock(t.Context())
			if !errors.Is(err, test.want) || errors.Is(err, redlock.ErrNotHeld) {
				t.Errorf("Unlock: got %v, want %v", err, test.want)
			}
			if q, failed := errors.AsType[*redlock.QuorumError](err); failed {
				for _, m := range q.Masters {
					if m.Op != "release" {
						t.Errorf("Unlock: got %+v, want an answer to the release", *m)
					}
				}
			}
			locktest.WantSince(t, "Unlock", start, test.takes)
			locktest.WantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased}, redlock.ErrLost)
			locktest.WantValidity(t, lease, 0)
			b.WantHolding("r", test.left...)
			time.Sleep(2 * time.Second)
			b.All(func(n *virtual.Node) { n.Heal(); n.Latency(0, 0) })
			time.Sleep(locktest.Reconnect)
			wantNever(t, b, "r", locktest.TTL)
		})
	}
	locktest.Subtest(t, "with a context that has ended", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := l.Lock(ctx, "r")
		locktest.Must(t, err)
		cancel()
		locktest.Must(t, lease.Unlock(ctx))
		b.WantHolding("r")
	})
	locktest.Subtest(t, "the key expired on the nodes by a step of their clocks", 3, func(t *testing.T, b *locktest.Bubble) {
		lease := b.Lock(b.WarmLocker(), "r")
		b.All(func(n *virtual.Node) { n.RunClock(1, time.Hour) })
		locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
	})
}

// A use of a lease after its end fails at once, with an error that names the reason, and does not
// touch another holder's key.
//
// Source: ALGORITHM section 5 (ErrNotHeld); section 13, I9.
func TestVirtualUseAfterTheEnd(t *testing.T) {
	locktest.Subtest(t, "after expiry, with another holder", 3, func(t *testing.T, b *locktest.Bubble) {
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
		locktest.Must(t, next.Extend(t.Context()))
		if next.Fence() <= lease.Fence() {
			t.Errorf("fence: got %d after %d, want a larger fence", next.Fence(), lease.Fence())
		}
		// The handle does not change.
		locktest.WantMatch(t, "second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld})
	})
	locktest.Subtest(t, "just before the deadline, when the context has ended", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithoutRenewal())
		lease := b.Lock(l, "r")
		<-lease.Context().Done()
		locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
		locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
		b.WantHolding("r") // the key is released all the same
	})
}

// Close releases everything, ends all calls, and returns within its bound.
//
// Source: ALGORITHM section 5 ("Closing the client waits for these, bounded"); section 13, I11.
func TestVirtualClose(t *testing.T) {
	locktest.Subtest(t, "releases all leases", 5, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		var leases []*redlock.Lease
		for i := range 10 {
			leases = append(leases, b.Lock(l, fmt.Sprint("r", i)))
		}
		inUse := leases[0].Context()
		start := time.Now()
		locktest.Must(t, l.Close())
		locktest.WantSince(t, "Close", start, 0)
		if inUse.Err() == nil {
			t.Error("context after Close: got no ended context")
		}
		for i, lease := range leases {
			b.WantHolding(fmt.Sprint("r", i))
			locktest.WantMatch(t, "cause", context.Cause(lease.Context()), []error{redlock.ErrReleased, redlock.ErrClosed}, redlock.ErrLost)
			locktest.WantMatch(t, "Extend", lease.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
			locktest.WantMatch(t, "Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased, redlock.ErrClosed})
			locktest.WantValidity(t, lease, 0)
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
		locktest.Must(t, l.Close())
	})
	locktest.Subtest(t, "before anything was done", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		start := time.Now()
		locktest.Must(t, l.Close())
		locktest.WantSince(t, "Close", start, 0)
	})
	for _, test := range []struct {
		name  string
		fault func(*virtual.Node)
		down  []int
		long  time.Duration // the fault, before Close
		want  error
	}{
		{"all nodes hung", (*virtual.Node).Hang, []int{0, 1, 2, 3, 4}, 0, redlock.ErrNoQuorum},
		{"all nodes blackholed", (*virtual.Node).Blackhole, []int{0, 1, 2, 3, 4}, 0, redlock.ErrNoQuorum},
		{"all nodes dead", (*virtual.Node).Kill, []int{0, 1, 2, 3, 4}, 0, redlock.ErrNoQuorum},
		// Renewals have failed then, and dials are under way.
		{"all nodes hung for long", (*virtual.Node).Hang, []int{0, 1, 2, 3, 4}, 5 * time.Second, redlock.ErrNoQuorum},
		{"all nodes blackholed for long", (*virtual.Node).Blackhole, []int{0, 1, 2, 3, 4}, 5 * time.Second, redlock.ErrNoQuorum},
		{"all nodes dead for long", (*virtual.Node).Kill, []int{0, 1, 2, 3, 4}, 5 * time.Second, redlock.ErrNoQuorum},
		{"two of five hung", (*virtual.Node).Hang, []int{1, 2}, 0, nil},
	} {
		locktest.Subtest(t, test.name, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			for i := range 3 {
				b.Lock(l, fmt.Sprint("r", i))
			}
			b.Each(test.fault, test.down...)
			time.Sleep(test.long)
			start := time.Now()
			for range 2 {
				if err := l.Close(); !errors.Is(err, test.want) {
					t.Errorf("Close: got %v, want %v", err, test.want)
				}
			}
			locktest.WantWithin(t, "Close", start, 3*locktest.MasterTimeout)
			if test.want == nil {
				b.Each((*virtual.Node).Resume, test.down...)
				for _, i := range test.down { // what was sent first arrives; what waited for the answer to that is not sent
					if slices.Contains(b.Holding("r0"), i) && slices.Contains(b.Holding("r1"), i) && slices.Contains(b.Holding("r2"), i) {
						t.Errorf("no release has come to node %d", i)
					}
				}
			}
		})
	}
	locktest.Subtest(t, "while callers wait", 3, func(t *testing.T, b *locktest.Bubble) {
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
		locktest.Must(t, l.Close())
		ended.Wait()
		locktest.WantSince(t, "Close", start, 0)
	})
	locktest.Subtest(t, "while an attempt is under way", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.All(func(n *virtual.Node) { n.Latency(50*time.Millisecond, 50*time.Millisecond) })
		done := make(chan error, 1)
		go func() {
			_, err := l.TryLock(context.Background(), "r")
			done <- err
		}()
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		locktest.Must(t, l.Close())
		locktest.WantMatch(t, "TryLock", <-done, []error{redlock.ErrClosed})
		locktest.WantWithin(t, "Close", start, 3*locktest.MasterTimeout)
		time.Sleep(50 * time.Millisecond)
		wantNever(t, b, "r", locktest.TTL)
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
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
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
	}
	locktest.Subtest(t, "Close within the work", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		_, cancel := lease.Within(t.Context())
		defer cancel()
		start := time.Now()
		locktest.Must(t, l.Close())
		locktest.WantSince(t, "Close", start, bound)
		b.WantHolding("r")
	})
	locktest.Subtest(t, "while the work extends", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		work, cancel := lease.Within(t.Context())
		inner, err := l.TryLock(work, "r", redlock.WithReentry())
		locktest.Must(t, err)
		b.All(func(n *virtual.Node) { n.Latency(10*time.Millisecond, 10*time.Millisecond) })
		closed := make(chan error, 1)
		time.AfterFunc(5*time.Millisecond, func() { closed <- l.Close() })
		locktest.Must(t, lease.Extend(t.Context()))
		locktest.WantMatch(t, "cause of a context that is made after Close", context.Cause(inner.Context()), []error{redlock.ErrClosed})
		cancel()
		locktest.Must(t, <-closed)
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
		locktest.Must(t, <-unlocked)
	})
}

// After an Unlock that no quorum confirmed, a second Unlock waits until a quorum lacks the key, and says so: because
// the nodes confirm it once they can be reached again, or because the key has expired.
//
// Source: ALGORITHM section 5.
func TestUnlockAgain(t *testing.T) {
	for _, test := range []struct {
		name       string
		fail, heal func(*virtual.Node)
	}{
		{"requests are lost", (*virtual.Node).Kill, (*virtual.Node).Heal},
		{"replies are lost", (*virtual.Node).LoseReplies, (*virtual.Node).Heal}, // the keys are gone, but no node says so
		{"the nodes hang", (*virtual.Node).Hang, (*virtual.Node).Resume},
		{"the connection is a hole", (*virtual.Node).Blackhole, (*virtual.Node).Heal},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			b.Each(test.fail, 0, 1)
			locktest.WantMatch(t, "the first Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld)
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 2 { // the end of a context changes nothing
				locktest.WantMatch(t, "a short context", lease.Unlock(short), []error{redlock.ErrNoQuorum, context.DeadlineExceeded}, redlock.ErrNotHeld)
			}
			results := make(chan error, 2)
			for range 2 {
				go func() { results <- lease.Unlock(t.Context()) }()
			}
			synctest.Wait()
			if len(results) > 0 {
				t.Errorf("the second Unlock: got %v while the nodes cannot be reached, want none yet", <-results)
				return
			}
			b.Each(test.heal, 0, 1)
			healed := time.Now()
			for range 2 {
				locktest.Must(t, <-results)
			}
			locktest.WantWithin(t, "the confirmation after the nodes were back", healed, 2*time.Second)
			if holding := b.Holding("r"); len(holding) > 1 {
				t.Errorf("the nodes %v have the key, want no quorum of them", holding)
			}
			locktest.WantMatch(t, "the third Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
		})
	}
	locktest.Subtest(t, "the keys expire", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		b.Each((*virtual.Node).Kill, 0, 1)
		began := time.Now()
		locktest.WantMatch(t, "the first Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum})
		locktest.Must(t, lease.Unlock(t.Context()))
		if took := time.Since(began); took < redlock.DefaultTTL || took > redlock.DefaultTTL*11/10 {
			t.Errorf("the second Unlock: it took %v, want a TTL of 10 s and a little more", took)
		}
		b.All((*virtual.Node).Heal)
		b.WantHolding("r")
	})
	locktest.Subtest(t, "the Locker is closed", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		b.Each((*virtual.Node).Kill, 0, 1)
		locktest.WantMatch(t, "the first Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum})
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		locktest.WantMatch(t, "the second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum, redlock.ErrClosed}, redlock.ErrNotHeld)
	})
}

// An early Unlock ends the lease for its holder, and the resource stays taken until the minimum hold is
// over, also for longer than a TTL.
//
// Source: the doc comment of WithMinHold.
func TestVirtualMinHold(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const hold = time.Minute
		var lost atomic.Int64
		l, rival := b.WarmLocker(locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost)), b.WarmLocker()
		start := time.Now()
		le := b.Lock(l, "r", redlock.WithMinHold(hold))
		locktest.Must(t, le.Unlock(t.Context()))
		locktest.WantSince(t, "Unlock", start, 0)
		if cause := context.Cause(le.Context()); !errors.Is(cause, redlock.ErrReleased) || le.Validity() > 0 || !errors.Is(le.Err(), redlock.ErrReleased) {
			t.Errorf("after Unlock: got cause %v, validity %v, %v", cause, le.Validity(), le.Err())
		}
		if err := le.Unlock(t.Context()); !errors.Is(err, redlock.ErrNotHeld) {
			t.Errorf("second Unlock: got %v, want ErrNotHeld", err)
		}
		_, err := l.TryLock(context.WithoutCancel(le.Context()), "r", redlock.WithReentry())
		locktest.WantMatch(t, "TryLock with the context of the ended lease", err, []error{redlock.ErrTaken})
		w := b.Wait(t.Context(), rival)
		time.Sleep(hold - time.Second)
		b.WantHolding("r", 0, 1, 2)
		next := b.Got(w)
		if since := time.Since(start); since < hold || since > hold+2*time.Second || next.Fence() <= le.Fence() {
			t.Errorf("got the next lease after %v with fence %d, want it right after %v, with more than %d", since, next.Fence(), hold, le.Fence())
		}
		b.Unlock(next)
		if n := lost.Load(); n != 0 {
			t.Errorf("got %d lost leases, want none", n)
		}

		late := b.Lock(l, "r", redlock.WithMinHold(time.Second))
		time.Sleep(2 * time.Second)
		locktest.Must(t, late.Unlock(t.Context()))
		b.WantHolding("r")
	})
}

// A minimum hold that ends just before the maximum hold ends as any other: the resource is free then, and
// the lease was released.
//
// Source: the doc comment of WithMinHold.
func TestVirtualMinHoldNearTheMaximumHold(t *testing.T) {
	const hold = 20 * time.Second
	for _, before := range []time.Duration{time.Nanosecond, 5 * time.Millisecond, locktest.Lead / 2, 2 * locktest.Lead} {
		locktest.Subtest(t, before.String(), 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker() // which released a lease
			start := time.Now()
			lease := b.Lock(l, "r", redlock.WithMinHold(hold-before), redlock.WithMaxHold(hold))
			locktest.Must(t, lease.Unlock(t.Context()))
			time.Sleep(hold - before - time.Millisecond)
			b.WantHolding("r", 0, 1, 2)
			next := b.Got(b.Wait(t.Context(), b.WarmLocker()))
			if got := time.Since(start); got > hold+100*time.Millisecond {
				t.Errorf("got the next lease after %v, want it at %v", got, hold)
			}
			b.Unlock(next)
			if c := l.Stats().Counts; c[redlock.EventReleased] != 2 || c[redlock.EventLost] != 0 {
				t.Errorf("got %d leases released and %d lost, want 2 and 0", c[redlock.EventReleased], c[redlock.EventLost])
			}
		})
	}
}

// A caller of the process with the same options takes the lease over when the minimum hold ends, and
// has a minimum hold of its own.
func TestVirtualMinHoldHandOver(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		start := time.Now()
		first := b.Lock(l, "r", redlock.WithMinHold(time.Second))
		w := b.Wait(t.Context(), l, redlock.WithMinHold(time.Second))
		locktest.Must(t, first.Unlock(t.Context()))
		second := b.Got(w)
		locktest.WantSince(t, "the hand-over", start, time.Second)
		if second.Token() != first.Token() {
			t.Errorf("got token %s after %s, want a hand-over", second.Token(), first.Token())
		}
		w = b.Wait(t.Context(), l, redlock.WithMinHold(time.Second))
		locktest.Must(t, second.Unlock(t.Context()))
		time.Sleep(time.Second - time.Millisecond)
		b.WantHolding("r", 0, 1, 2)
		third := b.Got(w)
		locktest.WantSince(t, "the second hand-over", start, 2*time.Second)
		time.Sleep(3 * locktest.TTL)
		locktest.Must(t, third.Err())
		locktest.Must(t, third.Unlock(t.Context()))
		b.WantHolding("r")
	})
}

// A master's clock that steps while others do not answer may be taken for a standstill of the local clock. That
// does not end a minimum hold earlier: the local clock may be right.
//
// Source: the doc comment of WithMinHold; ALGORITHM section 9 ("assume both").
func TestVirtualMinHoldUnderAStep(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const hold, step = time.Minute, 2 * time.Second
		var corrected atomic.Int64
		l := b.WarmLocker(locktest.On(func(redlock.Event) { corrected.Add(1) }, redlock.EventLocalClockStopped))
		start := time.Now()
		locktest.Must(t, b.Lock(l, "r", redlock.WithMinHold(hold)).Unlock(t.Context()))
		b.Nodes[2].Hang()
		b.Nodes[0].RunClock(1, step)
		time.Sleep(locktest.TTL / 2) // the next renewal finds that
		b.Nodes[2].Resume()
		time.Sleep(time.Until(start.Add(hold - time.Millisecond)))
		b.WantHolding("r", 0, 1, 2)
		time.Sleep(2 * time.Millisecond)
		b.WantHolding("r")
		if n := corrected.Load(); n != 1 {
			t.Errorf("the clock was corrected %d times, want once", n)
		}
	})
}

// A lease that is lost while it is only kept for its minimum hold is no loss: the work is done. Close releases it.
func TestVirtualMinHoldEnds(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var lost atomic.Int64
		l := b.WarmLocker(locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost))
		le := b.Lock(l, "r", redlock.WithMinHold(time.Hour))
		locktest.Must(t, le.Unlock(t.Context()))
		b.Each(func(n *virtual.Node) { n.Put("redlock:r", "another|1", time.Minute) }, 0, 1)
		time.Sleep(locktest.TTL)
		if n := lost.Load(); n != 0 {
			t.Errorf("got %d lost leases, want none", n)
		}
		le = b.Lock(l, "s", redlock.WithMinHold(time.Hour))
		locktest.Must(t, le.Unlock(t.Context()))
		b.WantHolding("s", 0, 1, 2)
		locktest.Must(t, l.Close())
		b.WantHolding("s")
	})
}
