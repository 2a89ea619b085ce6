package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// The validity at the grant is the TTL less the drift and the time in which the quorum answered;
// slower nodes do not count.
//
// Source: distlock, step 4; ALGORITHM section 3, point 4.
func TestVirtualValidityAtGrant(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		latency []time.Duration // one way
		ttl     time.Duration
		drift   time.Duration
		elapsed time.Duration
	}{
		{"no latency", []time.Duration{0, 0, 0}, locktest.TTL, locktest.Drift, 0},
		{"even latency", []time.Duration{7 * ms, 7 * ms, 7 * ms}, locktest.TTL, locktest.Drift, 14 * ms},
		{"nearly the node timeout", []time.Duration{124 * ms, 124 * ms, 124 * ms}, locktest.TTL, locktest.Drift, 248 * ms},
		{"the third of five decides", []time.Duration{50 * ms, 40 * ms, 1 * ms, 30 * ms, 2 * ms}, locktest.TTL, locktest.Drift, 60 * ms},
		{"one node", []time.Duration{3 * ms}, time.Second, 12 * ms, 6 * ms},
		{"two nodes need both", []time.Duration{3 * ms, 9 * ms}, time.Second, 12 * ms, 18 * ms},
		{"the shortest TTL", []time.Duration{ms, ms, ms}, 50 * ms, 2500 * time.Microsecond, 2 * ms},
	} {
		locktest.Subtest(t, test.name, len(test.latency), func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithTTL(test.ttl), redlock.WithoutRenewal())
			for i, n := range b.Nodes {
				n.Latency(test.latency[i], test.latency[i])
			}
			start := time.Now()
			lease := b.Lock(l, "r")
			locktest.WantSince(t, "the lease", start, test.elapsed)
			want := test.ttl - test.elapsed - test.drift
			locktest.WantValidity(t, lease, want)
			time.Sleep(10 * ms)
			locktest.WantValidity(t, lease, want-10*ms)
		})
	}
}

// wantNever polls for a while, and fails if a node has the key of the resource.
func wantNever(t *testing.T, b *locktest.Bubble, resource string, during time.Duration) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got := b.Holding(resource); len(got) > 0 {
			t.Fatalf("nodes that have the key of %q: got %v, want none", resource, got)
		}
	}
}

// An acquire that arrives after the end of its attempt has no effect.
//
// Source: ALGORITHM section 3, LATE; section 5, notAfter; CHAOS section 3, "Ghost write".
func TestVirtualLateAcquire(t *testing.T) {
	for _, test := range []struct {
		name string
		hung []int
		err  error
	}{
		{"of a lease", []int{2}, nil},
		{"of an attempt that failed", []int{0, 2}, redlock.ErrNoQuorum},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.Each((*virtual.Node).Hang, test.hung...)
			lease, err := l.TryLock(t.Context(), "r")
			if !errors.Is(err, test.err) {
				t.Fatalf("TryLock: got %v, want %v", err, test.err)
			}
			time.Sleep(time.Second)
			if lease != nil {
				b.Unlock(lease)
			}
			time.Sleep(2 * time.Second)
			b.Each((*virtual.Node).Resume, test.hung...)
			wantNever(t, b, "r", locktest.TTL)
			late := b.Nodes[2]
			if got := late.Seen("acquire", "r"); got != 1 {
				t.Errorf("acquires that reached the hung node: got %d, want 1", got)
			}
			for _, c := range late.CallsOf("release", "r") { // it would remove an orphan
				if c.Before != "" {
					t.Errorf("key that a release found on the hung node: got %q, want none", c.Before)
				}
			}
		})
	}
}

// A node that set the key, but whose replies are lost or come after the node timeout, is told to drop it as soon as it
// answers again. After that no key of the attempt is set.
//
// Source: ALGORITHM section 5; section 13, I6.
func TestVirtualLostReply(t *testing.T) {
	lost := (*virtual.Node).LoseReplies
	late := func(n *virtual.Node) { n.Latency(100*time.Millisecond, 151*time.Millisecond) }
	for _, test := range []struct {
		name  string
		fault func(*virtual.Node)
		mute  []int
	}{
		{"of a lease that was unlocked", lost, []int{4}},
		{"of an attempt that failed", lost, []int{1, 2, 4}},
		{"of an attempt that no node answered", lost, []int{0, 1, 2, 3, 4}},
		{"too late, of an attempt that failed", late, []int{0, 1, 2, 3, 4}},
	} {
		locktest.Subtest(t, test.name, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.Each(test.fault, test.mute...)
			start := time.Now()
			lease, err := l.TryLock(t.Context(), "r")
			synctest.Wait() // the nodes that were not needed get their requests, too
			if failed := len(test.mute) > 2; failed != (err != nil) {
				t.Fatalf("TryLock: got %v, want an error: %v", err, failed)
			}
			if err != nil {
				locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum}, redlock.ErrTaken)
				locktest.WantSince(t, "TryLock", start, locktest.MasterTimeout)
			} else {
				b.Unlock(lease)
			}
			b.WantHolding("r", test.mute...)
			time.Sleep(3 * time.Second)
			b.WantHolding("r", test.mute...)
			b.All(func(n *virtual.Node) { n.Heal(); n.Latency(0, 0) })
			time.Sleep(locktest.Reconnect)
			wantNever(t, b, "r", 2*locktest.TTL)
		})
	}
}

// A call that is cancelled while its requests are under way returns at once, and leaves no key behind.
//
// Source: ALGORITHM section 3, point 5; section 5.
func TestVirtualCancelledAttempt(t *testing.T) {
	const there, back = 60 * time.Millisecond, 40 * time.Millisecond
	for _, after := range []time.Duration{1, 30 * time.Millisecond, 80 * time.Millisecond, 100*time.Millisecond - 1} {
		locktest.Subtest(t, fmt.Sprintf("after %v", after), 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.All(func(n *virtual.Node) { n.Latency(there, back) })
			gone := errors.New("the user went away")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(gone) })
			start := time.Now()
			_, err := l.Lock(ctx, "r")
			locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, context.Canceled, gone}, redlock.ErrTaken, redlock.ErrNoQuorum)
			locktest.WantSince(t, "Lock", start, after)
			time.Sleep(time.Until(start.Add(there+back+there)) + 1) // the release follows the reply
			wantNever(t, b, "r", locktest.TTL)
		})
	}
	locktest.Subtest(t, "before the call", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, call := range []func(context.Context, string, ...redlock.LockOption) (*redlock.Lease, error){l.Lock, l.TryLock} {
			start := time.Now()
			_, err := call(ctx, "r")
			locktest.WantMatch(t, "with a context that has ended", err, []error{redlock.ErrNotAcquired, context.Canceled})
			locktest.WantSince(t, "the error", start, 0)
		}
		time.Sleep(time.Second)
		b.WantCalls("acquire", 0)
	})
	locktest.Subtest(t, "before the nodes are connected", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		b.All(func(n *virtual.Node) { n.Latency(there, back) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := l.Lock(ctx, "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, context.DeadlineExceeded})
		locktest.WantSince(t, "Lock", start, 10*time.Millisecond)
		wantNever(t, b, "r", 2*time.Second)
	})
}

// One attempt takes no longer than the node timeout, whatever the nodes do. It does not wait for
// nodes that it does not need.
//
// Source: ALGORITHM section 1, "NodeTimeout"; section 3, points 2, 4 and 5.
func TestVirtualOneAttempt(t *testing.T) {
	type fault = func(*virtual.Node)
	for _, test := range []struct {
		name  string
		fault fault
		nodes []int
		takes time.Duration
		want  []error // empty: a lease
		not   []error
	}{
		{"all five well", (*virtual.Node).Heal, nil, 0, nil, nil},
		{"two of five hung", (*virtual.Node).Hang, []int{0, 1}, 0, nil, nil},
		{"two of five dead", (*virtual.Node).Kill, []int{1, 3}, 0, nil, nil},
		{"three of five hung", (*virtual.Node).Hang, []int{0, 1, 2}, locktest.MasterTimeout, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"three of five blackholed", (*virtual.Node).Blackhole, []int{2, 3, 4}, locktest.MasterTimeout, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"all hung", (*virtual.Node).Hang, []int{0, 1, 2, 3, 4}, locktest.MasterTimeout, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"three of five dead", (*virtual.Node).Kill, []int{0, 1, 2}, 0, []error{redlock.ErrNoQuorum}, []error{redlock.ErrTaken}},
		{"taken on three of five", locktest.Steal, []int{0, 2, 4}, 0, []error{redlock.ErrTaken}, []error{redlock.ErrNoQuorum}},
		{"taken on two of five", locktest.Steal, []int{0, 2}, 0, nil, nil},
	} {
		locktest.Subtest(t, test.name, 5, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			b.Each(test.fault, test.nodes...)
			start := time.Now()
			lease, err := l.TryLock(t.Context(), "r")
			locktest.WantSince(t, "TryLock", start, test.takes)
			if len(test.want) == 0 {
				locktest.Must(t, err)
				locktest.WantValidity(t, lease, locktest.Validity-test.takes)
				return
			}
			locktest.WantMatch(t, "TryLock", err, append(test.want, redlock.ErrNotAcquired), test.not...)
			var verdict *redlock.QuorumError
			if !errors.As(err, &verdict) || verdict.Need != 3 || verdict.Granted > 2 || verdict.Resource != "r" || verdict.Op != "lock" {
				t.Errorf("TryLock: got %+v, want a QuorumError of lock r with at most 2 of 3", verdict)
			}
			for _, m := range verdict.Masters {
				if m.Op != "acquire" { // also of those that have not answered
					t.Errorf("Op of %s: got %q, want acquire", m.Master, m.Op)
				}
			}
			b.All((*virtual.Node).Heal)
			time.Sleep(locktest.Reconnect)
			for i, n := range b.Nodes {
				if v := n.Value("r"); v != "" && v != "another-holder|1" {
					t.Errorf("key on node %d after a failed attempt: got %q, want none of ours", i, v)
				}
			}
		})
	}
}

// An attempt with less than half of the TTL left is not granted.
//
// Source: ALGORITHM section 1, "MinValidity"; section 3, point 4.
func TestVirtualMinimumValidity(t *testing.T) {
	// 1 s - 12 ms drift - 250 ms grace - 500 ms: 238 ms are left for the round trip.
	for _, test := range []struct {
		trip time.Duration
		ok   bool
	}{
		{238 * time.Millisecond, true},
		{239 * time.Millisecond, false},
	} {
		locktest.Subtest(t, fmt.Sprintf("round trip of %v", test.trip), 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithTTL(time.Second), redlock.WithMasterTimeout(locktest.MasterTimeout), redlock.WithGrace(250*time.Millisecond))
			b.All(func(n *virtual.Node) { n.Latency(test.trip, 0) })
			start := time.Now()
			lease, err := l.TryLock(t.Context(), "r")
			locktest.WantSince(t, "TryLock", start, test.trip)
			if test.ok {
				if err != nil || lease.Validity() != 500*time.Millisecond {
					t.Errorf("TryLock: got %v, want a lease with 500ms left", err)
				}
				return
			}
			locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum}, redlock.ErrTaken)
			time.Sleep(test.trip)
			wantNever(t, b, "r", time.Second)
		})
	}
}

// A quarantine is reported once, even if a reply from that time arrives after its end. The next
// quarantine is reported again, even if the end of the first was not seen.
//
// Source: ALGORITHM section 8.
func TestVirtualQuarantineIsToldOnce(t *testing.T) {
	locktest.InBubble(t, 1, func(t *testing.T, b *locktest.Bubble) {
		var told atomic.Int64
		l := b.WarmLocker(locktest.On(func(redlock.Event) { told.Add(1) }, redlock.EventQuarantined))
		wantTold := func(want int64, when string) {
			t.Helper()
			synctest.Wait()
			if got := told.Load(); got != want {
				t.Errorf("%s: got the event %d times, want %d", when, got, want)
			}
		}
		left := func() time.Duration {
			t.Helper()
			_, err := l.TryLock(t.Context(), "r")
			var q *redlock.QuorumError
			if !errors.As(err, &q) || len(q.Masters) != 1 {
				t.Fatalf("got %v, want a refusal", err)
			}
			return q.Masters[0].Quarantine
		}
		b.Nodes[0].RestartEmpty()
		wait := left()
		if wait <= 0 {
			t.Fatal("got no quarantine after an empty restart")
		}
		wantTold(1, "at first")
		b.Nodes[0].BreakOff() // a new connection
		wait = left()
		wantTold(1, "by another connection")
		time.Sleep(wait - 10*time.Millisecond)
		b.Nodes[0].Latency(0, 30*time.Millisecond)
		_ = left()
		wantTold(1, "by a reply that comes after the end")
		b.Nodes[0].Latency(0, 0)
		b.Unlock(b.Lock(l, "r"))

		b.Nodes[0].RestartEmpty()
		_ = left()
		wantTold(2, "of the next")
		time.Sleep(time.Minute) // no requests
		b.Nodes[0].RestartEmpty()
		_ = left()
		wantTold(3, "of a quarantine after a long time")
	})
}

// A node that has granted did answer, even if the attempt waits for others until its time is up.
// If another holder has the second of three nodes, and the third is down, the lock is taken.
func TestGrantIsNoTimeout(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		queueNode := locktest.QueueNodeOf(l, "r")
		busy, down := b.Nodes[(queueNode+1)%3], b.Nodes[(queueNode+2)%3]
		busy.Put("redlock:r", "other|6400", time.Minute)
		busy.Latency(0, 700*time.Microsecond) // it answers before the time is up
		down.Kill()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "r")
		locktest.WantErr(t, err, redlock.ErrTaken, context.DeadlineExceeded)
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
		for _, n := range verdict.Masters {
			if n.Master == b.Nodes[queueNode].Addr() {
				t.Errorf("got %v, want nothing about the node that granted", n)
			}
		}
	})
}

// zeros is the worst random source that a program can set.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Ids are unique whatever random source package uuid has. With equal ids two processes would take
// each other's keys and calls for their own.
//
// Source: ALGORITHM section 1 ("an attempt id of its own").
func TestIDsWithADeterministicUUID(t *testing.T) {
	t.Setenv("REDLOCK_DETERMINISTIC_UUID", "yes") // a parallel test must not change the source
	t.Cleanup(func() { uuid.SetRand(nil) })
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		uuid.SetRand(zeros{}) // the nodes have their run ids already
		holder, rival := b.WarmLocker(), b.WarmLocker()
		lease := b.Lock(holder, "r")
		if other, err := rival.TryLock(t.Context(), "r"); err == nil {
			t.Errorf("two Lockers have the resource: with token %s and %s", lease.Token(), other.Token())
		}
		queueNode := b.Nodes[locktest.QueueNodeOf(holder, "r")]
		for _, l := range []*redlock.Locker{b.WarmLocker(), b.WarmLocker()} {
			go func() { _, _ = l.Lock(t.Context(), "r") }()
		}
		time.Sleep(3 * time.Second)
		if got := strings.Count(queueNode.Queued(redlock.DefaultKeyPrefix+"r"), "~inbox:") / 2; got != 2 { // queue and seen
			t.Errorf("processes in the queue: got %d, want 2", got)
		}
		b.Lock(holder, "s")
		for _, resource := range []string{"r", "s"} {
			if _, err := admin.Break(t.Context(), rival, resource); err != nil {
				t.Errorf("Break(%q): got %v, want no error", resource, err)
			}
		}
		if r, s := queueNode.Value("r"), queueNode.Value("s"); r == s {
			t.Errorf("Break put %q in the place of both keys, want a value for each", r)
		}
	})
}
