package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
)

// Several free resources take one round trip, and their renewals go to a node together.
//
// Source: ALGORITHM section 12.
func TestVirtualLockAllRoundTrips(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		b.all(func(n *bubbleNode) { n.latency(10*time.Millisecond, 10*time.Millisecond) })
		var names []string
		for i := range 8 {
			names = append(names, fmt.Sprint("r", i))
		}
		start := time.Now()
		m, err := l.LockAll(t.Context(), names)
		must(t, err)
		wantSince(t, "LockAll", start, 20*time.Millisecond)
		b.all(func(n *bubbleNode) { n.forgetCalls() })
		time.Sleep(time.Minute)
		for i, n := range b.nodes {
			moments := make(map[time.Time]int)
			for _, c := range n.Calls() {
				moments[c.At]++
			}
			for at, k := range moments {
				if k != len(names) {
					t.Errorf("node %d, %v: got %d requests at once, want %d", i, at, k, len(names))
				}
			}
			if len(moments) < 17 || len(moments) > 20 { // every 3 to 3.33 s
				t.Errorf("node %d: got %d renewals in a minute, want about 18", i, len(moments))
			}
		}
		start = time.Now()
		must(t, m.Unlock(t.Context()))
		wantSince(t, "Unlock", start, 20*time.Millisecond)
	})
}

// When one part is lost the lease is over. The other parts are not renewed any more.
func TestVirtualLockAllLoses(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		m, err := l.LockAll(t.Context(), []string{"a", "b"})
		must(t, err)
		b.each(func(n *bubbleNode) { n.put("redlock:b", "another|1", time.Hour) }, 0, 1)
		wantDone(t, m.Context(), []error{redlock.ErrLost, redlock.ErrQuorumLost})
		if cause := context.Cause(m.Context()); !strings.Contains(cause.Error(), `"b"`) {
			t.Errorf("got cause %v, want it to name b", cause)
		}
		if m.Validity() > 0 || !errors.Is(m.Err(), redlock.ErrLost) {
			t.Errorf("got validity %v, %v; want none", m.Validity(), m.Err())
		}
		synctest.Wait()
		b.all(func(n *bubbleNode) { n.forgetCalls() })
		time.Sleep(ttl10 / 2)
		for i, n := range b.nodes {
			if n.seen("extend", "a") != 0 || n.value("a") == "" {
				t.Errorf("node %d: got %d renewals of a, %q; want none, and the key", i, n.seen("extend", "a"), n.value("a"))
			}
		}
		err = m.Extend(t.Context())
		wantMatch(t, "Extend", err, []error{redlock.ErrNotHeld, redlock.ErrLost})
		err = m.Unlock(t.Context())
		wantMatch(t, "Unlock", err, []error{redlock.ErrNotHeld, redlock.ErrLost})
		b.wantHolding("a")
	})
}

// A part that was handed over to the next caller of the process is renewed for that caller, even if the
// news that another part was lost comes later.
func TestVirtualLockAllHandsAPartOn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		m, err := l.LockAll(t.Context(), []string{"a", "r"})
		must(t, err)
		w := b.wait(t.Context(), l)
		must(t, m.Unlock(t.Context()))
		next := b.got(w)
		if got := next.Token(); got != m.Parts()[1].Token {
			t.Errorf("got token %s, want that of the part: a hand-over", got)
		}
		m.LosePart()
		time.Sleep(3 * ttl10)
		if err := next.Err(); err != nil {
			t.Errorf("got %v, want the lease renewed", err)
		}
		b.unlock(next)
	})
}

// What a call holds while it waits is renewed. If it is lost, the call gives all back, begins again,
// and gets all in the end.
func TestVirtualLockAllBeginsAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		var gaveUp atomic.Int32
		observer := redlock.Observer{GaveUp: func(redlock.Event) { gaveUp.Add(1) }}
		holder, l := b.warmLocker(), b.warmLocker(redlock.WithObserver(observer))
		z := b.lock(holder, "z")
		done := make(chan struct{})
		var m *redlock.MultiLease
		var err error
		go func() {
			defer close(done)
			m, err = l.LockAll(t.Context(), []string{"a", "b", "z"})
		}()
		time.Sleep(time.Minute) // longer than a TTL
		b.wantHolding("a", 0, 1, 2)
		b.wantHolding("b", 0, 1, 2)
		b.all(func(n *bubbleNode) { n.put("redlock:a", "another|1", 20*time.Second) })
		time.Sleep(10 * time.Second) // a renewal finds that
		b.wantHolding("b")
		b.unlock(z)
		time.Sleep(5 * time.Second)
		b.wantHolding("z")
		select {
		case <-done:
			t.Fatalf("got %v, %v before a was free", m, err)
		default:
		}
		<-done
		must(t, err)
		for _, r := range []string{"a", "b", "z"} {
			b.wantHolding(r, 0, 1, 2)
		}
		if v := m.Validity(); v < ttl10/2 {
			t.Errorf("got a validity of %v, want at least half of the TTL", v)
		}
		if k := gaveUp.Load(); k != 0 {
			t.Errorf("got %d events of a call that gave up, want none: it began again", k)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.LockAll(late, []string{"a", "c"})
		wantMatch(t, "LockAll of what is held", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
		synctest.Wait()
		if k := gaveUp.Load(); k != 1 {
			t.Errorf("got %d events of a call that gave up, want 1", k)
		}
		must(t, m.Unlock(t.Context()))
	})
}

// The options that bound a lease count from when all resources are held.
func TestVirtualLockAllOptions(t *testing.T) {
	for name, opt := range map[string]redlock.LockOption{"without renewal": redlock.WithoutRenewal(), "with a bound": redlock.WithMaxHold(ttl10)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				holder, l := b.warmLocker(), b.warmLocker()
				z := b.lock(holder, "z")
				go func() {
					time.Sleep(time.Minute)
					_ = z.Unlock(t.Context())
				}()
				m, err := l.LockAll(t.Context(), []string{"a", "z"}, opt)
				must(t, err)
				if v := m.Validity(); v < ttl10/2 {
					t.Errorf("got a validity of %v, want at least half of the TTL", v)
				}
				start := time.Now()
				wantDone(t, m.Context(), []error{redlock.ErrLost})
				if took := time.Since(start); took < ttl10/2-lead10 || took > ttl10 {
					t.Errorf("got the end after %v, want it within a TTL", took)
				}
				_ = m.Unlock(t.Context())
			})
		})
	}
}

// Close ends a lease on several resources, and a call that waits.
func TestVirtualLockAllClose(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		m, err := l.LockAll(t.Context(), []string{"a", "b"})
		must(t, err)
		other := b.warmLocker()
		done := make(chan error, 1)
		go func() {
			_, err := other.LockAll(t.Context(), []string{"0", "b"})
			done <- err
		}()
		time.Sleep(time.Second)
		b.wantHolding("0", 0, 1, 2)
		must(t, other.Close())
		wantMatch(t, "a call that waits", <-done, []error{redlock.ErrClosed, redlock.ErrNotAcquired})
		b.wantHolding("0")
		must(t, l.Close())
		wantMatch(t, "Err", m.Err(), []error{redlock.ErrReleased, redlock.ErrClosed})
		b.wantHolding("a")
		b.wantHolding("b")
	})
}

// After Detach no part is renewed or released. A lease that has ended cannot be detached, and is released as ever.
func TestVirtualMultiLeaseDetach(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.warmLocker()
		several, err := l.LockAll(t.Context(), []string{"a", "r"})
		must(t, err)
		permits := b.permits(l.Semaphore("s", 3), 2)
		for _, m := range []*redlock.MultiLease{several, permits} {
			must(t, m.Detach())
			wantMatch(t, "after Detach", m.Err(), []error{redlock.ErrDetached}, redlock.ErrLost, redlock.ErrReleased)
			wantMatch(t, "another Detach", m.Detach(), []error{redlock.ErrNotHeld, redlock.ErrDetached})
			wantMatch(t, "Unlock", m.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrDetached})
		}
		time.Sleep(ttl10 - 100*time.Millisecond)
		b.wantHolding("a", 0, 1, 2)
		b.wantHolding("r", 0, 1, 2)
		b.wantHolding(fmt.Sprint("s~slots~", permits.Parts()[0].Slot), 0, 1, 2)
		for _, part := range append(several.Parts(), permits.Parts()...) {
			for i, n := range b.nodes {
				for _, c := range n.Calls() {
					if c.ID == part.Token && (c.Op == "extend" || c.Op == "release") {
						t.Errorf("node %d: got a call of %s for %q, want none", i, c.Op, part.Resource)
					}
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
		b.wantNothingLeft()
		b.giveBack(b.permits(l.Semaphore("s", 3), 3))

		lost, err := l.LockAll(t.Context(), []string{"a", "r"}, redlock.WithTTL(time.Second), redlock.WithoutRenewal())
		must(t, err)
		time.Sleep(time.Second)
		wantMatch(t, "Detach of a lost lease", lost.Detach(), []error{redlock.ErrNotHeld, redlock.ErrLost}, redlock.ErrDetached)
		_ = lost.Unlock(t.Context())
		b.wantNothingLeft()
	})
}
