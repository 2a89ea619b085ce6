package order_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// Each way in which a resource becomes free leads to the head of the queue, although no process calls it.

// shift is what the callers of several processes did with "r".
type shift struct {
	turns   []int           // by process
	longest []time.Duration // wait, by process
	held    [][2]time.Time
	first   []time.Time // when the first process got it
	mu      sync.Mutex
}

// works has some callers of each Locker lock "r" again and again for a time, with a pause in between.
func works(t *testing.T, lockers []*redlock.Locker, callers int, hold func() time.Duration, long, pause time.Duration, opts ...redlock.LockOption) *shift {
	s := &shift{turns: make([]int, len(lockers)), longest: make([]time.Duration, len(lockers))}
	end := time.Now().Add(long)
	var workers sync.WaitGroup
	for i, l := range lockers {
		for range callers {
			workers.Go(func() {
				for time.Now().Before(end) {
					asked := time.Now()
					lease, err := l.Lock(t.Context(), "r", opts...)
					if err != nil {
						t.Errorf("Lock: got %v, want a lease", err)
						return
					}
					got := time.Now()
					time.Sleep(hold())
					s.mu.Lock()
					s.turns[i]++
					s.longest[i] = max(s.longest[i], got.Sub(asked))
					s.held = append(s.held, [2]time.Time{got, time.Now()})
					if i == 0 {
						s.first = append(s.first, got)
					}
					s.mu.Unlock()
					if err := lease.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock: got %v, want no error", err)
					}
					time.Sleep(pause)
				}
			})
		}
	}
	workers.Wait()
	slices.SortFunc(s.held, func(a, b [2]time.Time) int { return a[0].Compare(b[0]) })
	return s
}

// free returns the longest time between two turns, after the first second. All callers waited then.
func (s *shift) free() (longest time.Duration) {
	for i := 1; i < len(s.held); i++ {
		if s.held[i-1][1].Sub(s.held[0][0]) > time.Second {
			longest = max(longest, s.held[i][0].Sub(s.held[i-1][1]))
		}
	}
	return longest
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// The queue master may be farther away than the other masters: the processes take turns all the same, and
// the resource is not free for long.
//
// Source: ALGORITHM section 10, "How an attempt asks the nodes".
func TestVirtualFarQueueNode(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	const near, hold = 400 * time.Microsecond, 3 * time.Millisecond
	long := time.Duration(redistest.Rounds(2, 10)) * time.Second
	for _, test := range []struct {
		processes, callers int
		trip               time.Duration
	}{
		{2, 2, near}, {6, 2, near}, {2, 2, 10 * time.Millisecond}, {6, 2, 10 * time.Millisecond}, {6, 1, 40 * time.Millisecond},
		{2, 2, 40 * time.Millisecond}, {6, 2, 40 * time.Millisecond}, {6, 1, 200 * time.Millisecond}, {6, 2, 200 * time.Millisecond},
	} {
		locktest.Subtest(t, fmt.Sprintf("%d processes with %d callers, %v", test.processes, test.callers, test.trip), 3, func(t *testing.T, b *locktest.Bubble) {
			lockers := make([]*redlock.Locker, test.processes)
			for i := range lockers {
				lockers[i] = b.WarmLocker()
			}
			b.All(func(n *virtual.Node) { n.Latency(near/2, near/2) })
			b.Nodes[locktest.QueueNodeOf(lockers[0], "r")].Latency(test.trip/2, test.trip/2)
			s := works(t, lockers, test.callers, always(hold), long, 0)
			t.Log(s.turns, s.longest, "free for", s.free())
			most := (3*test.trip + hold) * time.Duration(test.processes*test.callers-1)
			if test.callers > 1 { // at first no process knows of the others: they may split the votes, and one hands its lease over
				most += 63*hold + line.DefaultPolicy.MostDelay
			}
			for i, got := range s.longest {
				if got > most {
					t.Errorf("the longest wait of process %d: got %v, want at most %v", i, got, most)
				}
			}
			if got, most := s.free(), 4*test.trip+2*near; got > most {
				t.Errorf("free while callers wait: got %v, want at most %v", got, most)
			}
		})
	}
}

// Readers of several processes do not wait for each other where the queue master is far away: each lease takes
// a round trip to it.
//
// Source: ALGORITHM section 12, "Order".
func TestVirtualReadersAndAFarQueueNode(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	const near, far, hold = 400 * time.Microsecond, 40 * time.Millisecond, 3 * time.Millisecond
	long := time.Duration(redistest.Rounds(2, 10)) * time.Second
	for _, test := range []struct{ processes, callers, writers int }{{6, 1, 0}, {3, 3, 0}, {6, 1, 1}} {
		locktest.Subtest(t, fmt.Sprint(test), 3, func(t *testing.T, b *locktest.Bubble) {
			lockers := make([]*redlock.Locker, test.processes)
			for i := range lockers {
				lockers[i] = b.WarmLocker()
			}
			writer := b.WarmLocker()
			b.All(func(n *virtual.Node) { n.Latency(near/2, near/2) })
			b.Nodes[locktest.QueueNodeOf(writer, "r")].Latency(far/2, far/2)
			var running sync.WaitGroup
			var wrote *shift
			if test.writers > 0 { // now and then
				running.Go(func() {
					wrote = works(t, []*redlock.Locker{writer}, test.writers, always(hold), long, time.Second)
				})
			}
			s := works(t, lockers, test.callers, always(hold), long, 0, redlock.Shared())
			running.Wait()
			got, allows := 0, int(long/(far+near+hold))*test.processes*test.callers
			for _, n := range s.turns {
				got += n
			}
			t.Log(got, "leases; the round trip allows", allows, s.longest)
			if got < allows/2 {
				t.Errorf("leases of readers: got %d, want at least half of the %d that the round trip allows", got, allows)
			}
			if wrote != nil && wrote.longest[0] > 5*far {
				t.Errorf("the longest wait of a writer: got %v, want at most %v", wrote.longest[0], 5*far)
			}
		})
	}
}

// A process that no node can call polls, and has its share of the turns.
//
// Source: ALGORITHM section 10, "attend".
func TestVirtualProcessThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const processes = 3
		b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
		var ways [processes]locktest.Uplink
		ways[0].Mute.Store(true)
		lockers := make([]*redlock.Locker, processes)
		said := new(locktest.Records)
		for i := range lockers {
			lockers[i] = locktest.LockerBy(b, &ways[i], redlock.WithLogger(slog.New(said)))
		}
		s := works(t, lockers, 1, always(5*time.Millisecond), time.Duration(redistest.Rounds(8, 20))*time.Second, 0)
		t.Log(s.turns, s.longest)
		if least := max(s.turns[1], s.turns[2]) / 4; s.turns[0] < least {
			t.Errorf("turns of the process that cannot be called: got %d, want at least %d", s.turns[0], least)
		}
		if most := 1500 * time.Millisecond; s.longest[0] > most {
			t.Errorf("its longest wait: got %v, want at most %v", s.longest[0], most)
		}
		lines := slices.DeleteFunc(said.List(), func(r map[string]any) bool { return r["level"].(slog.Level) < slog.LevelInfo })
		if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["text"]), "cannot call this process") {
			t.Errorf("log: got %v, want one line about the first process", lines)
		}
	})
}

// The first wait of a process has its lease as soon as the resource is free, whether its subscription is
// confirmed by then or not.
//
// Source: ALGORITHM section 10, "How a process waits".
func TestVirtualFirstWait(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	for _, warm := range []bool{true, false} {
		for _, trip := range []time.Duration{400 * time.Microsecond, 5 * time.Millisecond, 20 * time.Millisecond} {
			locktest.Subtest(t, fmt.Sprintf("warm: %v, %v", warm, trip), 3, func(t *testing.T, b *locktest.Bubble) {
				holder, most := b.WarmLocker(), 100*time.Millisecond
				if !warm {
					most += 7 * trip // to connect
				}
				b.All(func(n *virtual.Node) { n.Latency(trip/2, trip/2) })
				for round := 0; round < 50; round += redistest.Rounds(3, 1) {
					l := b.Locker()
					if warm {
						b.Warm(l)
					}
					held := b.Lock(holder, "r")
					w := b.Wait(t.Context(), l)
					time.Sleep(time.Duration(round) * trip / 10)
					since := time.Now()
					b.Unlock(held)
					lease := b.Got(w)
					if got := w.At.Sub(since); got > most {
						t.Errorf("released %v after the call: got the lease %v later, want at most %v", time.Duration(round)*trip/10, got, most)
					}
					b.Unlock(lease)
					locktest.Must(t, l.Close())
				}
			})
		}
	}
}

// After the last of many resets of its subscription a process has its turns again at once.
//
// Source: ALGORITHM section 10, "How a process waits".
func TestVirtualSubscriptionIsReset(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
		var way locktest.Uplink
		lockers := []*redlock.Locker{locktest.LockerBy(b, &way), b.WarmLocker(), b.WarmLocker()}
		var reset time.Time // for the last time
		go func() {
			time.Sleep(2 * time.Second)
			for range 21 {
				way.ResetSubscriptions()
				reset = time.Now()
				time.Sleep(211 * time.Millisecond)
			}
		}()
		s := works(t, lockers, 1, always(5*time.Millisecond), 7*time.Second, 0)
		next := slices.IndexFunc(s.first, func(at time.Time) bool { return at.After(reset) })
		if next < 0 || s.first[next].Sub(reset) > 300*time.Millisecond {
			t.Errorf("got the turns of the first process at %v, want one within 0.3 s of the last reset, %v", s.first[max(next, 0):], reset)
		}
	})
}

// No caller asks a node while no quorum is up, and all ask at once when there is one again.
//
// Source: ALGORITHM section 10, "How a process waits".
func TestVirtualNoQuorumIsUp(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const callers = 500
		l := b.WarmLocker(redlock.WithoutRestartGuard(), redlock.WithLogger(nil))
		b.Each((*virtual.Node).Kill, 0, 1)
		time.Sleep(time.Second)
		b.All((*virtual.Node).ForgetCalls)
		waiters := make([]*locktest.Waiter, callers)
		for i := range waiters {
			waiters[i] = b.WaitFor(t.Context(), l, fmt.Sprint(i))
		}
		time.Sleep(time.Minute)
		for i := range waiters {
			if got := b.Nodes[2].Seen("acquire", fmt.Sprint(i)); got > 1 {
				t.Fatalf("acquires of a caller in a minute without a quorum: got %d, want its first", got)
			}
		}
		b.Each((*virtual.Node).Restart, 0)
		since := time.Now()
		first := time.Hour
		for _, w := range waiters {
			b.Got(w)
			first = min(first, w.At.Sub(since))
			if got := w.At.Sub(since); got > time.Second {
				t.Fatalf("a caller: got its lease %v after a quorum was up again, want at most 1s", got)
			}
		}
		if first > 100*time.Millisecond {
			t.Errorf("the first lease: got it %v after a quorum was up again, want at most 100ms", first)
		}
	})
}
