package redlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
)

// acquirer is an Acquire that waits.
type acquirer struct {
	lease *redlock.MultiLease
	err   error
	at    time.Time // when it returned
	done  chan struct{}
}

func (b *bubble) waitForPermits(ctx context.Context, s *redlock.Semaphore, n int) *acquirer {
	w := &acquirer{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = s.Acquire(ctx, n)
		w.at = time.Now()
	}()
	synctest.Wait() // it gets in line
	return w
}

// waits reports whether a call has not returned.
func (w *acquirer) waits() bool {
	synctest.Wait()
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// wantServed waits until the last caller has got its permits, which must be within a time after others were freed,
// and gives them back.
func (b *bubble) wantServed(w *acquirer, freed time.Time, within time.Duration) {
	b.t.Helper()
	<-w.done
	if took := w.at.Sub(freed); w.err != nil || took > within {
		b.t.Errorf("a caller that waits: got %v after %v, want permits within %v", w.err, took, within)
	}
	b.giveBack(w.lease)
	time.Sleep(time.Second)
	b.wantNothingLeft()
}

// permits returns a lease on n permits, at once.
func (b *bubble) permits(s *redlock.Semaphore, n int, opts ...redlock.LockOption) *redlock.MultiLease {
	b.t.Helper()
	m, err := s.TryAcquire(b.t.Context(), n, opts...)
	if err != nil {
		b.t.Fatalf("TryAcquire of %d: %v", n, err)
	}
	synctest.Wait() // for the nodes that were not needed
	return m
}

func (b *bubble) giveBack(m *redlock.MultiLease) {
	b.t.Helper()
	if err := m.Unlock(context.Background()); err != nil {
		b.t.Errorf("Unlock: %v", err)
	}
}

// warmSemaphores returns a semaphore by each of several Lockers, and the node that keeps its queue.
func (b *bubble) warmSemaphores(lockers, permits int) (all []*redlock.Semaphore, queueNode int) {
	var l *redlock.Locker
	for range lockers {
		l = b.warmLocker()
		all = append(all, l.Semaphore("s", permits))
	}
	return all, l.QueueNodeOf("s~slots")
}

// Permits that are free take two round trips, however many, and there are never more than there are. A
// caller that waits is called when enough permits are free.
//
// Source: ALGORITHM section 14.
func TestVirtualSemaphore(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		b.all(goNative)
		s, _ := b.warmSemaphores(3, 4)
		b.all(func(n *bubbleNode) { n.latency(10*time.Millisecond, 10*time.Millisecond) })
		start := time.Now()
		three := b.permits(s[0], 3)
		wantSince(t, "TryAcquire of three", start, 40*time.Millisecond)
		one := b.permits(s[1], 1)
		_, err := s[2].TryAcquire(t.Context(), 1)
		wantMatch(t, "TryAcquire of a fifth", err, []error{redlock.ErrTaken})
		w := b.waitForPermits(t.Context(), s[2], 2)
		time.Sleep(time.Minute) // they are renewed
		if three.Err() != nil || one.Err() != nil || !w.waits() {
			t.Fatalf("after a minute: got %v, %v and a waiter with %v", three.Err(), one.Err(), w.err)
		}
		b.giveBack(one)
		time.Sleep(5 * time.Second)
		if !w.waits() {
			t.Fatal("got two permits while one was free")
		}
		freed := time.Now()
		b.giveBack(three)
		b.wantServed(w, freed, 100*time.Millisecond)
	})
}

// A caller that wants all permits gets them among callers that come one after the other for one.
//
// Source: ALGORITHM section 14, "Order".
func TestVirtualSemaphoreDoesNotStarve(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		if took := b.amongSingles(); took > 200*time.Millisecond {
			t.Errorf("a caller that wants all permits among others that hold one for 50 ms: got them after %v", took)
		}
	})
}

// amongSingles returns how long a caller waits for all of three permits while two other processes have
// one each all the time, but for moments.
func (b *bubble) amongSingles() time.Duration {
	b.all(goNative)
	s, _ := b.warmSemaphores(3, 3)
	ctx, stop := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer stop()
	for i := range 2 {
		go func() {
			time.Sleep(time.Duration(i) * 25 * time.Millisecond)
			for ctx.Err() == nil {
				m, err := s[i].Acquire(ctx, 1)
				if err == nil {
					time.Sleep(50 * time.Millisecond)
					_ = m.Unlock(context.Background())
				}
			}
		}()
	}
	time.Sleep(500 * time.Millisecond)
	start := time.Now()
	m, err := s[2].Acquire(ctx, 3)
	took := time.Since(start)
	if err == nil {
		b.giveBack(m)
	}
	stop()
	time.Sleep(time.Second)
	return took
}

// A caller that wants one permit waits behind a caller that wants two, also while one is free.
//
// Source: ALGORITHM section 14, "Order".
func TestVirtualSemaphoreOrder(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		if b.overtaken() {
			t.Error("a caller that wants one permit overtook a caller that wants two")
		}
	})
}

// overtaken reports whether a caller that wants one permit gets it before a caller that wants two, and
// that came before.
func (b *bubble) overtaken() bool {
	b.all(goNative)
	s, _ := b.warmSemaphores(3, 2)
	one, other := b.permits(s[0], 1), b.permits(s[0], 1)
	two := b.waitForPermits(b.t.Context(), s[1], 2)
	time.Sleep(10 * time.Millisecond)
	single := b.waitForPermits(b.t.Context(), s[2], 1)
	time.Sleep(10 * time.Millisecond)
	b.giveBack(one)
	time.Sleep(5 * time.Second)
	overtaken := !single.waits()
	b.giveBack(other)
	if overtaken {
		b.giveBack(single.lease)
	}
	<-two.done
	b.giveBack(two.lease)
	if !overtaken {
		<-single.done
		b.giveBack(single.lease)
	}
	time.Sleep(time.Second)
	b.wantNothingLeft()
	return overtaken
}

// A holder that dies blocks its permits for its TTL, and no other permit.
func TestVirtualPermitHolderDies(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		s, _ := b.warmSemaphores(2, 2)
		b.permits(s[0], 1, redlock.WithTTL(5*time.Second), redlock.WithoutRenewal())
		living := b.permits(s[0], 1)
		died := time.Now()
		w := b.waitForPermits(t.Context(), s[1], 1)
		<-w.done
		if got := w.at.Sub(died); w.err != nil || got < 5*time.Second || got > 6300*time.Millisecond {
			t.Errorf("a caller behind a dead holder with a TTL of 5s: got %v after %v", w.err, got)
		}
		if living.Err() != nil {
			t.Errorf("the living holder: got %v", living.Err())
		}
		b.giveBack(living)
		b.giveBack(w.lease)
		time.Sleep(ttl10 + time.Second)
		b.wantNothingLeft()
	})
}

// Without the queue node another one chooses. Slots that it does not know of are not given out.
//
// Source: ALGORITHM section 14, "Choice".
func TestVirtualSemaphoreQueueNodeFails(t *testing.T) {
	for name, fail := range map[string]func(*bubbleNode){
		"killed":          (*bubbleNode).kill,
		"hangs":           (*bubbleNode).hang,
		"loses replies":   (*bubbleNode).silence,
		"refuses":         func(n *bubbleNode) { n.replyWith("NOPERM this user has no permissions") },
		"restarted empty": (*bubbleNode).restartEmpty,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				s, queueNode := b.warmSemaphores(3, 2)
				first := b.permits(s[0], 1)
				time.Sleep(10 * time.Millisecond) // each node has its slot
				fail(b.nodes[queueNode])
				start := time.Now()
				second := b.permits(s[1], 1)
				if took := time.Since(start); took > time.Second {
					t.Errorf("a second permit: got it after %v", took)
				}
				if a, c := slotsOf(first), slotsOf(second); slices.Equal(a, c) {
					t.Errorf("got slot %v twice", a)
				}
				for range 20 {
					if m, err := s[2].TryAcquire(t.Context(), 1); err == nil {
						t.Fatalf("got a third permit of two: slot %v", slotsOf(m))
					}
					time.Sleep(300 * time.Millisecond)
				}
				w := b.waitForPermits(t.Context(), s[2], 1)
				freed := time.Now()
				b.giveBack(first)
				<-w.done
				if took := w.at.Sub(freed); w.err != nil || took > 2*time.Second {
					t.Errorf("a caller that waits: got %v after %v", w.err, took)
				}
				time.Sleep(time.Minute)
				if second.Err() != nil || w.lease.Err() != nil {
					t.Errorf("after a minute: got %v and %v", second.Err(), w.lease.Err())
				}
			})
		})
	}
}

// One permit that is lost ends the lease. The others are given back by Unlock.
func TestVirtualPermitLost(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		s, _ := b.warmSemaphores(1, 5)
		m := b.permits(s[0], 3)
		slot := slotsOf(m)[1]
		b.each(func(n *bubbleNode) { n.put("redlock:s~slots~"+string(rune('0'+slot)), "", 0) }, 0, 1)
		wantDone(t, m.Context(), []error{redlock.ErrLost})
		if err := m.Unlock(t.Context()); !errors.Is(err, redlock.ErrNotHeld) || !strings.Contains(err.Error(), `"s"`) {
			t.Errorf("Unlock: got %v", err)
		}
		time.Sleep(time.Second)
		b.wantNothingLeft()
	})
}

// A single permit goes to the next caller of the process, with a larger token, and no master is asked. A
// caller with another count or other options gets none so.
//
// Source: ALGORITHM section 14, "Inside a process".
func TestVirtualPermitHandOver(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		s, queueNode := b.warmSemaphores(1, 2)
		one, other := b.permits(s[0], 1), b.permits(s[0], 1)
		w := b.waitForPermits(t.Context(), s[0], 1)
		b.all((*bubbleNode).forgetCalls)
		before := one.Parts()[0]
		b.giveBack(one)
		<-w.done
		time.Sleep(10 * time.Millisecond)
		after := w.lease.Parts()[0]
		if w.err != nil || after.Slot != before.Slot || after.Fence <= before.Fence || after.Token != before.Token {
			t.Errorf("got %+v after %+v, %v", after, before, w.err)
		}
		for i, n := range b.nodes {
			if k := len(n.callsOf("acquire permits", "s~slots")); k > 0 {
				t.Errorf("node %d was asked %d times", i, k)
			}
		}
		if one.Err() == nil || w.lease.Err() != nil {
			t.Errorf("got %v of the first holder and %v of the second", one.Err(), w.lease.Err())
		}
		if k := b.nodes[queueNode].waitingFor("s~slots"); k != 0 {
			t.Errorf("%d processes wait, although no caller does", k)
		}
		both := b.waitForPermits(t.Context(), s[0], 2)
		b.giveBack(w.lease)
		time.Sleep(time.Second)
		if !both.waits() {
			t.Error("a caller that wants two permits: got them while one is held")
		}
		b.giveBack(other)
		<-both.done
		b.giveBack(both.lease)
		time.Sleep(time.Second)
		b.wantNothingLeft()
	})
}

// When Unlock has returned, the permit is free for the next caller, although the node that chooses is the
// slowest. Unlock does not wait for that node for longer than a node timeout.
func TestVirtualPermitIsFreeAfterUnlock(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		s, queueNode := b.warmSemaphores(2, 1)
		b.nodes[queueNode].latency(20*time.Millisecond, 20*time.Millisecond)
		for range 3 {
			b.giveBack(b.permits(s[0], 1))
			b.giveBack(b.permits(s[1], 1))
		}
		held := b.permits(s[0], 1)
		b.nodes[queueNode].hang()
		start := time.Now()
		b.giveBack(held)
		if took := time.Since(start); took > 250*time.Millisecond {
			t.Errorf("Unlock while the node that chose hangs: took %v", took)
		}
		b.giveBack(b.permits(s[1], 1))
	})
}

// A caller that gives up while its request waits to be sent leaves no slot behind.
func TestVirtualAcquireGivesUpEarly(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		s, _ := b.warmSemaphores(2, 3)
		b.all(func(n *bubbleNode) { n.latency(time.Millisecond, time.Millisecond) })
		granted := 0
		for i := range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%60)*100*time.Microsecond)
			go func() { // so that requests wait behind others
				if m, err := s[0].TryAcquire(t.Context(), 1); err == nil {
					_ = m.Unlock(context.Background())
				}
			}()
			if m, err := s[0].Acquire(ctx, 1); err == nil {
				granted++
				b.giveBack(m)
			}
			cancel()
		}
		time.Sleep(100 * time.Millisecond)
		b.giveBack(b.permits(s[1], 3)) // all are free
		time.Sleep(time.Second)
		b.wantNothingLeft()
		if granted == 0 {
			t.Error("no call was granted, so little was tried")
		}
	})
}

// panicky is a context whose method Done panics at the call of some number.
type panicky struct {
	context.Context
	calls, at int
}

func (c *panicky) Done() <-chan struct{} {
	if c.calls++; c.calls == c.at {
		panic("oops")
	}
	return c.Context.Done()
}

// Whichever call of a method of the context panics, the panic reaches the caller, and no permit is left.
func TestVirtualAcquireContextPanics(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		s, _ := b.warmSemaphores(1, 3)
		panics := 0
		for at := 1; at < 12; at++ {
			var m *redlock.MultiLease
			func() {
				defer func() {
					if recover() != nil {
						panics++
					}
				}()
				m, _ = s[0].TryAcquire(&panicky{Context: t.Context(), at: at}, 2)
			}()
			if m != nil {
				b.giveBack(m)
			}
			time.Sleep(100 * time.Millisecond)
			b.giveBack(b.permits(s[0], 3))
		}
		if panics < 3 {
			t.Errorf("got %d panics, so little was tried", panics)
		}
		time.Sleep(time.Second)
		b.wantNothingLeft()
	})
}

// A lock whose name looks like that of a process that waits for permits is called like any other.
func TestVirtualLockNamedLikePermits(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		const name = "shard~2/5"
		one, two := b.warmLocker(), b.warmLocker()
		held := b.lock(one, name)
		w := b.begin(func() (*redlock.Lease, error) { return two.Lock(t.Context(), name) })
		time.Sleep(1500 * time.Millisecond)
		freed := time.Now()
		b.unlock(held)
		b.got(w)
		wantWithin(t, "a caller that waits", freed, 50*time.Millisecond)
		b.unlock(w.lease)
		_, err := one.TryLock(t.Context(), "s~slots~2/5")
		wantMatch(t, "a name of a semaphore's own", err, []error{redlock.ErrConfig})
	})
}

// A caller that gives up leaves no key and no place in the queue.
func TestVirtualAcquireGivesUp(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		s, queueNode := b.warmSemaphores(3, 2)
		held := b.permits(s[0], 2)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		w := b.waitForPermits(ctx, s[1], 1)
		behind := b.waitForPermits(t.Context(), s[2], 1)
		<-w.done
		wantMatch(t, "Acquire", w.err, []error{redlock.ErrNotAcquired, redlock.ErrTaken, context.DeadlineExceeded})
		time.Sleep(100 * time.Millisecond)
		if k := b.nodes[queueNode].waitingFor("s~slots"); k != 1 {
			t.Errorf("%d processes wait, want 1", k)
		}
		freed := time.Now()
		b.giveBack(held)
		b.wantServed(behind, freed, 50*time.Millisecond)
	})
}

// With a rule left out the tests of semaphores notice.
//
// Source: ALGORITHM section 15, "Negative controls".
func TestVirtualSemaphoreControls(t *testing.T) {
	replace := func(t *testing.T, old, by string) {
		redlock.BreakScript(t, func(script string) string {
			return strings.Replace(script, old, by, 1)
		})
	}
	t.Run("single permits overtake the queue", func(t *testing.T) {
		replace(t, "if not called and behind(base, who) then", "if false then")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			if took := b.amongSingles(); took < 10*time.Second {
				t.Errorf("a caller that wants all permits: got them after %v, want it to starve", took)
			}
		})
	})
	t.Run("a release of permits calls no process", func(t *testing.T) {
		replace(t, "leave(base, who)\n      callNext(base, sign)\n    end\n    return code, 0, 0", "leave(base, who)\n    end\n    return code, 0, 0")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s, _ := b.warmSemaphores(2, 1)
			held := b.permits(s[0], 1)
			w := b.waitForPermits(t.Context(), s[1], 1)
			time.Sleep(1500 * time.Millisecond)
			freed := time.Now()
			b.giveBack(held)
			<-w.done
			if took := w.at.Sub(freed); took < 50*time.Millisecond {
				t.Errorf("got the permit after %v, want only by the timer", took)
			}
		})
	})
	t.Run("no call after a grant of permits", func(t *testing.T) {
		replace(t, "leave(base, who)\n      callNext(base, sign)\n    end\n    return 13", "leave(base, who)\n    end\n    return 13")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s, _ := b.warmSemaphores(3, 2)
			held := b.permits(s[0], 2)
			all := []*acquirer{b.waitForPermits(t.Context(), s[1], 1), b.waitForPermits(t.Context(), s[2], 1)}
			time.Sleep(1500 * time.Millisecond)
			freed := time.Now()
			b.giveBack(held)
			<-all[0].done
			<-all[1].done
			if took := max(all[0].at.Sub(freed), all[1].at.Sub(freed)); took < 50*time.Millisecond {
				t.Errorf("the second caller: got its permit after %v, want only by its timer", took)
			}
		})
	})
	t.Run("a process is called for fewer permits than it wants", func(t *testing.T) {
		replace(t, "return free >= tonumber(count)", "return true")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			if !b.overtaken() {
				t.Error("got the callers in order, want that the first one has lost its place")
			}
		})
	})
	t.Run("what a failed attempt was given is kept", func(t *testing.T) {
		replace(t, "if owns(values[i], value) then", "if false then")
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			s, queueNode := b.warmSemaphores(1, 1)
			b.nodes[queueNode].silence()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			m, err := s[0].Acquire(ctx, 1)
			must(t, err)
			b.nodes[queueNode].heal()
			b.giveBack(m)
			time.Sleep(3 * time.Second)
			if b.nodes[queueNode].at("redlock:s~slots~1") == "" {
				t.Error("got no key, want a key that no attempt releases")
			}
		})
	})
}
