package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
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
