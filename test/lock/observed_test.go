package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// The events behind the metrics: how long nodes take to answer, and how calls end.
func TestObservedCalls(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var mu sync.Mutex
		var got []string
		keep := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf(format, args...))
		}
		fast, slow, hung := b.Nodes[0], b.Nodes[1], b.Nodes[2]
		l := b.WarmLocker(locktest.On(func(e redlock.Event) {
			if e.Master != fast.Addr() {
				keep("%s %v %s", e.Master, e.Elapsed, redlock.Reason(e.Err))
			}
		}, redlock.EventExchange),
			locktest.On(func(e redlock.Event) {
				keep("acquired %s after %v, handed over: %v", e.Resource, e.Elapsed, e.HandedOver)
			}, redlock.EventAcquired),
			locktest.On(func(e redlock.Event) { keep("gave up %s after %v: %s", e.Resource, e.Elapsed, redlock.Reason(e.Err)) }, redlock.EventNotAcquired))
		told := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			got = nil
		}
		synctest.Wait()
		got = nil

		r := "r" // the fast node is its queue node
		for locktest.QueueNodeOf(l, r) != 0 {
			r += "r"
		}
		fast.Latency(time.Millisecond, 0) // so each request to slow is sent before fast answers: an unsent one is dropped with its attempt
		slow.Latency(time.Millisecond, 2*time.Millisecond)
		hung.Hang()
		lease := b.Lock(l, r, redlock.WithoutRenewal())
		time.Sleep(time.Second)
		told(slow.Addr()+" 3ms ", hung.Addr()+" 250ms timeout", "acquired "+r+" after 3ms, handed over: false")

		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := l.Lock(ctx, r)
		locktest.WantErr(t, err, redlock.ErrTaken, context.DeadlineExceeded)
		told("gave up " + r + " after 300ms: taken") // without asking a node: this process has it
		_, err = l.TryLock(t.Context(), r)
		locktest.WantErr(t, err, redlock.ErrTaken)
		time.Sleep(10 * time.Millisecond)
		told("gave up "+r+" after 1ms: taken", slow.Addr()+" 3ms ", slow.Addr()+" 3ms ") // fast refuses and hung is down; then comes the release

		next := make(chan *redlock.Lease)
		go func() { next <- locktest.Lock(t, l, r, redlock.WithoutRenewal()) }()
		time.Sleep(200 * time.Millisecond)
		b.Unlock(lease)
		heir := <-next
		told("acquired " + r + " after 200ms, handed over: true")

		b.Unlock(heir)
	})
}

// Stats shows the held leases, the waiting callers, and the counts of events.
func TestVirtualStats(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		s := l.Stats()
		if len(s.Leases) != 0 || s.Waiting != 0 || slices.Max(slices.Collect(maps.Values(s.Counts))) != 0 {
			t.Errorf("before the first call: got %+v, want nothing", s)
		}
		for _, n := range s.Masters {
			if n.State != redlock.MasterUntried || n.RoundTrip != 0 || n.Err != nil {
				t.Errorf("before the first call: got node %+v, want a node that was not tried", n)
			}
		}

		b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
		began := time.Now()
		second := b.Lock(l, "b", redlock.WithTTL(time.Second))
		first := b.Lock(l, "a", redlock.WithReentry())
		if _, err := l.TryLock(first.Context(), "a", redlock.WithReentry()); err != nil {
			t.Fatalf("re-entry: got %v, want another hold", err)
		}
		if _, err := l.TryLock(t.Context(), "a"); !errors.Is(err, redlock.ErrTaken) {
			t.Fatalf("TryLock of what is held: got %v, want ErrTaken", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := b.Wait(ctx, l) // for "r", which it gets
		lease := b.Got(w)
		other := b.Wait(ctx, l)
		synctest.Wait()

		s = l.Stats()
		var got []string
		for _, ls := range s.Leases {
			got = append(got, ls.Resource)
		}
		if want := "a b " + lease.Resource(); strings.Join(got, " ") != want {
			t.Errorf("leases: got %q, want %q", got, want)
		}
		if a := s.Leases[0]; a.Fence != first.Fence() || a.Token != first.Token() || a.TTL != redlock.DefaultTTL ||
			a.Holds != 2 || a.Renewals != 0 || a.Validity != first.Validity() || a.Since.Before(began) || a.Since.After(time.Now()) {
			t.Errorf("got %+v, want what the lease says itself", a)
		}
		if s.Waiting != 1 {
			t.Errorf("waiting: got %d, want 1", s.Waiting)
		}
		if c := s.Counts; c[redlock.EventAcquired] != 3 || c[redlock.EventTaken] != 1 || c[redlock.EventAttemptFailed] != 0 || c[redlock.EventReleased] != 0 {
			t.Errorf("got %v, want 3 acquired, 1 not because it was taken", c)
		}
		for _, n := range s.Masters {
			if n.State != redlock.MasterUp || n.RoundTrip != 2*time.Millisecond || n.Err != nil || n.Quarantine != 0 {
				t.Errorf("got node %+v, want it up with a round trip of 2 ms", n)
			}
		}

		cancel()
		<-other.Done
		time.Sleep(900 * time.Millisecond) // "b" is renewed by then
		if r := l.Stats().Leases[1].Renewals; r < 2 {
			t.Errorf("renewals of a lease of 1 s after 900 ms: got %d, want 2 or more", r)
		}
		b.Unlock(second)
		s = l.Stats()
		if s.Waiting != 0 || s.Counts[redlock.EventExtended] < 2 || s.Counts[redlock.EventReleased] != 1 {
			t.Errorf("got %d waiting and %+v, want none, 2 extensions, 1 release", s.Waiting, s.Counts)
		}

		b.Nodes[0].Kill()
		b.Each((*virtual.Node).RestartEmpty, 1)
		down := time.Now()
		if err := first.Extend(t.Context()); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("Extend with one master down and one master emptied: got %v, want ErrNoQuorum", err)
		}
		time.Sleep(time.Second)
		s = l.Stats()
		if n := s.Masters[0]; n.State != redlock.MasterDown || n.Err == nil || n.ErrTime.Before(down) || time.Since(n.ErrTime) < time.Second {
			t.Errorf("a node that is down: got %+v, want it down since %v, and why", n, down)
		}
		if n := s.Masters[1]; n.State != redlock.MasterUp || n.Quarantine <= 8*time.Second || n.Quarantine > 10300*time.Millisecond {
			t.Errorf("a node that restarted empty: got %+v, want a quarantine of about 9 s", n)
		}
		if c := s.Counts; c[redlock.EventMasterDown] == 0 || c[redlock.EventQuarantined] == 0 || c[redlock.EventExtendFailed] == 0 {
			t.Errorf("got %+v, want a node that went down, a quarantine, an Extend that failed", c)
		}
		b.Nodes[0].Heal()
		time.Sleep(time.Second)
		if n := l.Stats().Masters[0]; n.State != redlock.MasterUp || n.Err == nil {
			t.Errorf("a node that was down: got %+v, want it up with the error it was down for", n)
		}

		if err := l.Close(); err != nil {
			t.Logf("Close: %v", err)
		}
		if s = l.Stats(); len(s.Leases) != 0 {
			t.Errorf("after Close: got %+v, want no lease", s.Leases)
		}
	})
}

// A lost lease is neither held nor released.
func TestVirtualStatsOfALostLease(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		lease := b.Lock(l, "r", redlock.WithTTL(time.Second), redlock.WithoutRenewal())
		<-lease.Context().Done()
		s := l.Stats()
		if len(s.Leases) != 0 || s.Counts[redlock.EventLost] != 1 || s.Counts[redlock.EventReleased] != 0 {
			t.Errorf("got %d leases, %+v; want none, 1 lost, 0 released", len(s.Leases), s.Counts)
		}
	})
}

// A tracer sees the start and the end of each call, in that order and in the call's own goroutine, and
// the call's context.
func TestTracer(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		type key struct{}
		var got []string
		l := b.WarmLocker(redlock.WithTracer(func(ctx context.Context, op, resource string) func(*redlock.Lease, error) {
			if op == "TryLock" && resource == "untold" {
				return nil
			}
			got = append(got, fmt.Sprint(op, " ", resource, " ", ctx.Value(key{})))
			return func(le *redlock.Lease, err error) {
				fence := "none"
				if le != nil {
					fence = "a lease"
				}
				got = append(got, fmt.Sprint(op, " ends: ", fence, ", ", redlock.Reason(err)))
			}
		}))
		got = nil // of the warm-up
		ctx := context.WithValue(t.Context(), key{}, "value")
		locktest.WantErr(t, l.Do(ctx, "r", func(_ context.Context, le *redlock.Lease) error {
			locktest.Must(t, le.Extend(context.Background()))
			_, err := l.TryLock(ctx, "r")
			_, _ = l.TryLock(ctx, "untold")
			return err
		}), redlock.ErrTaken)
		_, err := l.Lock(ctx, "")
		locktest.WantErr(t, err, redlock.ErrConfig)
		want := []string{
			"Lock r value", "Lock ends: a lease, ",
			"Extend r <nil>", "Extend ends: a lease, ",
			"TryLock r value", "TryLock ends: none, taken",
			"Unlock r value", "Unlock ends: a lease, ",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
