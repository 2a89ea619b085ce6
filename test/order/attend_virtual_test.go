package order_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// Each way in which a resource becomes free leads to the head of the queue, although no process calls it.

// works has a Locker lock "r" again and again for a time. It returns how often, and its longest wait.
func works(t *testing.T, l *redlock.Locker, hold time.Duration, end time.Time) (turns int, longest time.Duration) {
	for time.Now().Before(end) {
		asked := time.Now()
		lease, err := l.Lock(t.Context(), "r")
		if err != nil {
			t.Errorf("Lock: got %v, want a lease", err)
			break
		}
		turns, longest = turns+1, max(longest, time.Since(asked))
		time.Sleep(hold)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: got %v, want no error", err)
		}
	}
	return turns, longest
}

// The queue master may be farther away than the other masters: the processes take turns all the same.
//
// Source: ALGORITHM section 10, "How an attempt asks the nodes".
func TestVirtualFarQueueNode(t *testing.T) {
	t.Parallel()
	const processes, hold = 6, 3 * time.Millisecond
	for _, trip := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(trip.String(), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				lockers := make([]*redlock.Locker, processes)
				for i := range lockers {
					lockers[i] = b.WarmLocker()
				}
				b.All(func(n *virtual.Node) { n.Latency(200*time.Microsecond, 200*time.Microsecond) })
				b.Nodes[locktest.QueueNodeOf(lockers[0], "r")].Latency(trip/2, trip/2)
				var workers sync.WaitGroup
				var longest [processes]time.Duration
				var turns [processes]int
				end := time.Now().Add(30 * time.Second)
				for i, l := range lockers {
					workers.Go(func() { turns[i], longest[i] = works(t, l, hold, end) })
				}
				workers.Wait()
				t.Log(turns, longest)
				for i := range lockers {
					if most := 200*time.Millisecond + (3*trip+hold)*processes; longest[i] > most {
						t.Errorf("the longest wait of process %d: got %v, want at most %v", i, longest[i], most)
					}
				}
			})
		})
	}
}

// A process that no node can call polls, and has its share of the turns.
//
// Source: ALGORITHM section 10, "attend".
func TestVirtualProcessThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const processes = 3
		b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
		var ways [processes]locktest.Uplink
		ways[0].Mute.Store(true)
		var workers sync.WaitGroup
		var turns [processes]int
		var longest [processes]time.Duration
		var lockers [processes]*redlock.Locker
		for i := range lockers {
			lockers[i] = locktest.LockerBy(b, &ways[i])
		}
		end := time.Now().Add(20 * time.Second)
		for i, l := range lockers {
			workers.Go(func() { turns[i], longest[i] = works(t, l, 5*time.Millisecond, end) })
		}
		workers.Wait()
		t.Log(turns, longest)
		if least := max(turns[1], turns[2]) / 4; turns[0] < least {
			t.Errorf("turns of the process that cannot be called: got %d, want at least %d", turns[0], least)
		}
		if most := 1500 * time.Millisecond; longest[0] > most {
			t.Errorf("its longest wait: got %v, want at most %v", longest[0], most)
		}
	})
}

// If a lease ends by itself, the process that came first is next. If that process is dead as well, it
// costs no more than its turn.
//
// Source: ALGORITHM section 10, "attend".
func TestVirtualOrderAtExpiry(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		processes  int
		headIsDead bool
	}{{"five processes", 5, false}, {"eight processes", 8, false}, {"the head is dead", 5, true}} {
		t.Run(test.name, func(t *testing.T) {
			for round := range 10 {
				locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
					b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
					var dying locktest.Uplink
					holder := locktest.LockerBy(b, &dying)
					var dead locktest.Uplink
					lockers := []*redlock.Locker{locktest.LockerBy(b, &dead)}
					for len(lockers) < test.processes {
						lockers = append(lockers, b.WarmLocker())
					}
					held := b.Lock(holder, "r", redlock.WithTTL(3*time.Second), redlock.WithoutRenewal())
					var waiters []*locktest.Waiter
					for _, l := range lockers {
						waiters = append(waiters, b.Wait(t.Context(), l))
						time.Sleep(time.Duration(10+round) * time.Millisecond)
					}
					dying.Dead.Store(true)
					first, late := 0, 100*time.Millisecond
					if test.headIsDead {
						time.Sleep(time.Second)
						dead.Dead.Store(true)
						first, late = 1, 350*time.Millisecond
					}
					ends := time.Now().Add(held.Validity() + locktest.Drift)
					lease := b.Got(waiters[first])
					if got := waiters[first].At.Sub(ends); got > late {
						t.Errorf("round %d: the next lease came %v after the end of the last one, want at most %v", round, got, late)
					}
					time.Sleep(300 * time.Millisecond) // all have asked, by their timers
					for i, other := range waiters[first+1:] {
						if !other.Waits() {
							t.Fatalf("round %d: process %d has the lease, too", round, first+1+i)
						}
					}
					b.Unlock(lease)
					for _, w := range waiters[first+1:] {
						b.Unlock(b.Got(w))
					}
				})
			}
		})
	}
}

// The readers that wait come in when a writer becomes a reader, in its process and in others.
//
// Source: ALGORITHM section 12, "Downgrade".
func TestVirtualDowngradeCallsReaders(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
		writer := b.WarmLocker()
		lockers := []*redlock.Locker{writer, b.WarmLocker(), b.WarmLocker()}
		held := b.Lock(writer, "r")
		var readers []*locktest.Waiter
		for _, l := range lockers {
			readers = append(readers, b.Wait(t.Context(), l, redlock.Shared()))
		}
		time.Sleep(1500 * time.Millisecond)
		since := time.Now()
		if err := held.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, r := range readers {
			b.Got(r)
			if got := r.At.Sub(since); got > 20*time.Millisecond {
				t.Errorf("reader %d: got its lease %v after the downgrade, want at most 20ms", i, got)
			}
		}
	})
}

// A writer comes in when the last reader expires, also if another reader with a longer life has released.
//
// Source: ALGORITHM section 12, "Order".
func TestVirtualReaderExpires(t *testing.T) {
	t.Parallel()
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprint("beside a longer life: ", long), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
				var dying locktest.Uplink
				l := locktest.LockerBy(b, &dying)
				var other *redlock.Lease
				if long {
					other = b.Lock(b.WarmLocker(), "r", redlock.Shared())
				}
				held := b.Lock(l, "r", redlock.Shared(), redlock.WithTTL(2500*time.Millisecond), redlock.WithoutRenewal())
				ends := time.Now().Add(held.Validity() + locktest.Drift)
				dying.Dead.Store(true)
				w := b.Wait(t.Context(), b.WarmLocker())
				if long {
					time.Sleep(100 * time.Millisecond)
					b.Unlock(other)
				}
				b.Got(w)
				if got := w.At.Sub(ends); got > 100*time.Millisecond {
					t.Errorf("the writer: got the lease %v after the reader's end, want at most 100ms", got)
				}
			})
		})
	}
}

// The heads of the lines do not ask while no quorum is up, and ask at once when there is one again.
//
// Source: ALGORITHM section 10, "How a process waits".
func TestVirtualNoQuorumIsUp(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithoutRestartGuard())
		b.Each((*virtual.Node).Kill, 0, 1)
		time.Sleep(time.Second)
		w := b.Wait(t.Context(), l)
		time.Sleep(5 * time.Second)
		b.All((*virtual.Node).ForgetCalls)
		time.Sleep(20 * time.Second)
		if got := b.Nodes[2].Seen("acquire", "r"); got > 25 {
			t.Errorf("acquires of one caller in 20 s without a quorum: got %d, want at most 25", got)
		}
		b.Each((*virtual.Node).Restart, 0)
		since := time.Now()
		b.Got(w)
		if got := w.At.Sub(since); got > 1100*time.Millisecond { // a node that is down is looked at once a second
			t.Errorf("the first lease: got it %v after a master was up again", got)
		}
	})
}
