package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/semaphore"
)

func distance(b *locktest.Bubble, d time.Duration) {
	b.All(func(n *virtual.Node) { n.Latency(d, d) })
}

// 100 free permits are handed out together: 100 callers of a process have them within four round trips.
func TestVirtualPermitsTogether(t *testing.T) {
	const n, trip = 100, 40 * time.Millisecond
	for _, waits := range []bool{false, true} { // callers that come when all are free, and callers in line when they become free
		t.Run(fmt.Sprint("in line ", waits), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				s := newSemaphore(t, b.WarmLocker(), n)
				distance(b, trip/2)
				var all *semaphore.Lease
				if waits {
					var err error
					all, err = newSemaphore(t, b.WarmLocker(), n).Acquire(t.Context(), 60)
					locktest.Must(t, err)
				}
				start := time.Now()
				var g sync.WaitGroup
				for range n {
					g.Go(func() {
						if _, err := s.Acquire(t.Context(), 1); err != nil {
							t.Error(err)
						}
					})
				}
				if waits {
					time.Sleep(time.Second)
					start = time.Now()
					locktest.Must(t, all.Unlock(t.Context()))
				}
				g.Wait()
				locktest.WantWithin(t, "the last of 100", start, 4*trip)
			})
		})
	}
}

// A caller waits for the same time whatever the number of permits: for one that another process gives back, or that is
// the only free one.
func TestVirtualWoken(t *testing.T) {
	const trip = 5 * time.Millisecond
	for _, permits := range []int{2, 8, 9, 100, semaphore.MaxPermits} {
		t.Run(fmt.Sprint(permits), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				all, s := newSemaphore(t, b.WarmLocker(), permits), newSemaphore(t, b.WarmLocker(), permits)
				held, err := all.Acquire(t.Context(), permits)
				locktest.Must(t, err)
				distance(b, trip/2)
				var given time.Time
				for i, after := range []time.Duration{time.Second, 1600 * time.Millisecond, 40 * time.Millisecond} {
					time.AfterFunc(after, func() {
						given = time.Now()
						locktest.Must(t, held.Parts()[i].Unlock(context.Background()))
					})
					lease, err := s.Acquire(t.Context(), 1)
					locktest.Must(t, err)
					locktest.WantWithin(t, "a permit that was given back", given, 2*trip+10*time.Millisecond)
					locktest.Must(t, lease.Unlock(t.Context()))
					another := newSemaphore(t, b.WarmLocker(), permits)
					start := time.Now()
					lease, err = another.Acquire(t.Context(), 1)
					locktest.Must(t, err)
					locktest.WantWithin(t, "the only free permit", start, 3*trip+60*time.Millisecond)
					locktest.Must(t, lease.Unlock(t.Context()))
					again, err := all.Acquire(t.Context(), 1)
					locktest.Must(t, err)
					defer again.Unlock(context.Background())
					if permits == 2 && i == 1 {
						break
					}
				}
			})
		})
	}
}

// Processes that want the only permit all the time take turns: what the queue node has given to the next process
// is not contested at the other nodes.
//
// Source: ALGORITHM section 10, "Any of several".
func TestVirtualTakesTurns(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var all []*semaphore.Semaphore
		for range 3 {
			all = append(all, newSemaphore(t, b.WarmLocker(), 1))
		}
		distance(b, 500*time.Microsecond)
		var order []int // guarded by the permit
		var g sync.WaitGroup
		for i, s := range all {
			g.Go(func() {
				for range 100 {
					lease, err := s.Acquire(t.Context(), 1)
					if err != nil {
						t.Error(err)
						return
					}
					order = append(order, i)
					time.Sleep(10 * time.Millisecond)
					locktest.Must(t, lease.Unlock(t.Context()))
				}
			})
		}
		g.Wait()
		for i, who := range order[6:280] { // all know of each other, and want the permit
			if who == order[i+5] || who == order[i+4] {
				t.Fatalf("grant %d: got the order %v, want each process once in three", i+6, order[i:i+8])
			}
		}
	})
}

// Callers of one permit take turns with a caller of all, whose whole lease counts its options.
func TestVirtualAllAmongSingles(t *testing.T) {
	const ttl = 2 * time.Second
	for name, test := range map[string]struct {
		option redlock.LockOption
		left   time.Duration
	}{
		"WithMaxHold":    {redlock.WithMaxHold(ttl), ttl - 100*time.Millisecond},
		"WithoutRenewal": {redlock.WithoutRenewal(), ttl / 2},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				ctx, stop := context.WithCancel(t.Context())
				var singles sync.WaitGroup
				for range 6 {
					s := newSemaphore(t, b.WarmLocker(), 2)
					singles.Go(func() {
						for ctx.Err() == nil {
							if lease, err := s.Acquire(ctx, 1); err == nil {
								time.Sleep(900 * time.Millisecond)
								_ = lease.Unlock(context.Background())
							}
						}
					})
				}
				s := newSemaphore(t, b.WarmLocker(), 2, redlock.WithTTL(ttl), test.option)
				distance(b, 500*time.Microsecond)
				for range 3 {
					start := time.Now()
					lease, err := s.Acquire(t.Context(), 2)
					locktest.Must(t, err)
					locktest.WantWithin(t, "both permits", start, 10*time.Second)
					time.Sleep(test.left - time.Millisecond)
					if err := lease.Err(); err != nil {
						t.Errorf("after %v: got %v, want the lease to stand", test.left, err)
					}
					_ = lease.Unlock(t.Context())
				}
				stop()
				singles.Wait()
			})
		})
	}
}

// used returns which part of the permits' time some processes, with a caller each, use at a round trip of 5 ms.
func used(t *testing.T, permits, processes int, hold time.Duration) (part float64) {
	const lasting = 3 * time.Second
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), lasting+time.Second)
		defer cancel()
		var mu sync.Mutex
		var held time.Duration
		var g sync.WaitGroup
		var all []*semaphore.Semaphore
		for range processes {
			all = append(all, newSemaphore(t, b.WarmLocker(), permits))
		}
		distance(b, 2500*time.Microsecond)
		began := time.Now().Add(time.Second)
		for _, s := range all {
			g.Go(func() {
				for ctx.Err() == nil {
					lease, err := s.Acquire(ctx, 1)
					if err != nil {
						return
					}
					time.Sleep(hold)
					if time.Since(began) > hold {
						mu.Lock()
						held += hold
						mu.Unlock()
					}
					_ = lease.Unlock(context.Background())
				}
			})
		}
		g.Wait()
		part = float64(held) / float64(permits) / float64(lasting)
	})
	return part
}

// Processes that want permits all the time, and hold them for ten round trips, use most of the permits' time. A
// hand-over takes two round trips of twelve, so they can use 0.83 of it.
func TestVirtualPermitsAreUsed(t *testing.T) {
	redistest.TakesSeconds(t)
	for _, test := range []struct {
		permits, processes int
		want               float64
	}{{10, 14, 0.75}, {30, 60, 0.75}}[:redistest.Rounds(1, 2)] {
		got := used(t, test.permits, test.processes, 50*time.Millisecond)
		t.Logf("%d permits, %d processes: %.1f %% of the permits' time is used", test.permits, test.processes, 100*got)
		if got < test.want {
			t.Errorf("%d permits, %d processes: got %.1f %% used, want %.0f", test.permits, test.processes, 100*got, 100*test.want)
		}
	}
}

// Processes are served in the order in which they came, as the permits become free.
func TestVirtualOrder(t *testing.T) {
	for _, permits := range []int{1, 3, 8, 9, 100} {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			processes := 20 + permits/2
			all, err := newSemaphore(t, b.WarmLocker(), permits).Acquire(t.Context(), permits)
			locktest.Must(t, err)
			granted := make([]time.Time, processes) // two processes may have their permits at the same moment
			var g sync.WaitGroup
			for i := range processes {
				s := newSemaphore(t, b.WarmLocker(), permits)
				g.Go(func() {
					lease, err := s.Acquire(t.Context(), 1)
					if err != nil {
						t.Error(err)
						return
					}
					granted[i] = time.Now()
					time.Sleep(50 * time.Millisecond)
					locktest.Must(t, lease.Unlock(context.Background()))
				})
				time.Sleep(20 * time.Millisecond)
			}
			for _, part := range all.Parts() {
				locktest.Must(t, part.Unlock(t.Context()))
				time.Sleep(20 * time.Millisecond)
			}
			g.Wait()
			// Two may be called at the same moment, and one meets the release of the holder before it.
			inOrder := func(a, b time.Time) int { return int(a.Sub(b) / (5 * time.Millisecond)) }
			if !slices.IsSortedFunc(granted, inOrder) {
				t.Errorf("%d permits: got the order %v", permits, granted)
			}
		})
	}
}

// An attempt for one permit takes one, also if it is refused others first: with WithMinHold a second one would stay
// taken although nothing uses it.
func TestVirtualMinHold(t *testing.T) {
	for range 10 { // the order in which permits are tried is random
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			const permits = 8
			holder, s := newSemaphore(t, b.WarmLocker(), permits), newSemaphore(t, b.WarmLocker(), permits, redlock.WithMinHold(time.Minute))
			held, err := holder.Acquire(t.Context(), 5)
			locktest.Must(t, err)
			for i := range permits - 5 {
				lease, err := s.TryAcquire(t.Context(), 1)
				if err != nil {
					t.Fatalf("TryAcquire of permit %d of 3 that are free: got %v, want no error", i+1, err)
				}
				locktest.Must(t, lease.Unlock(t.Context()))
			}
			_, err = s.TryAcquire(t.Context(), 1)
			locktest.WantMatch(t, "TryAcquire of one permit more", err, []error{redlock.ErrTaken})
			locktest.Must(t, held.Unlock(t.Context()))
		})
	}
}

// A caller that wants all permits is not starved by callers that want one. While it has two of three permits, six
// processes share the third: most runs take 0.2 s to 0.7 s, and some up to 3 s, because a process may get a
// permit again before a waiter of another process. The bound is the TTL.
func TestVirtualManyAmongSingles(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const permits = 3
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		var g sync.WaitGroup
		for i := range 2 * permits {
			s := newSemaphore(t, b.WarmLocker(), permits)
			g.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				for ctx.Err() == nil {
					lease, err := s.Acquire(ctx, 1)
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					time.Sleep(50 * time.Millisecond)
					_ = lease.Unlock(context.Background())
				}
			})
		}
		many := newSemaphore(t, b.WarmLocker(), permits)
		time.Sleep(time.Second)
		start := time.Now()
		lease, err := many.Acquire(ctx, permits)
		locktest.Must(t, err)
		locktest.WantWithin(t, "all permits", start, 10*time.Second)
		locktest.Must(t, lease.Unlock(t.Context()))
		stop()
		g.Wait()
	})
}

// A caller gets whichever permit becomes free, though its process begins to wait for a few of them only.
func TestVirtualAnyPermit(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const permits = 40
		all, err := newSemaphore(t, b.WarmLocker(), permits).Acquire(t.Context(), permits)
		locktest.Must(t, err)
		s := newSemaphore(t, b.WarmLocker(), permits)
		for i := 0; i < permits; i += 7 {
			start := time.Now()
			locktest.Must(t, all.Parts()[i].Unlock(t.Context()))
			lease, err := s.Acquire(t.Context(), 1)
			locktest.Must(t, err)
			locktest.WantWithin(t, "the one free permit", start, 3*time.Second)
			if got := lease.Parts()[0].Resource(); got != all.Parts()[i].Resource() {
				t.Errorf("got %q, want the free permit", got)
			}
			// It stays held.
		}
	})
}

// Callers of three processes give up at any moment, also while they are being called, and the number of permits changes
// under them. There are never more holders than the largest number allows, and then each caller is served and nothing is left.
func TestVirtualStorm(t *testing.T) {
	const largest = 6
	for seed := range uint64(redistest.Rounds(10, 100)) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			r, g := rand.New(rand.NewPCG(seed, 39)), newGate(largest)
			var processes []*semaphore.Semaphore
			for range 3 {
				processes = append(processes, newSemaphore(t, b.WarmLocker(redlock.WithLogger(slog.New(slog.DiscardHandler))), largest))
			}
			distance(b, 5*time.Millisecond)
			use := func(ctx context.Context, s *semaphore.Semaphore, n int, hold time.Duration) error {
				lease, err := s.Acquire(ctx, n)
				if err != nil {
					return err
				}
				leave := g.enter(partsOf(lease)...)
				time.Sleep(hold)
				leave()
				return lease.Unlock(context.Background())
			}
			var callers sync.WaitGroup
			granted, gaveUp := 0, 0
			for range 60 {
				s, n := processes[r.IntN(3)], 1+r.IntN(8)/7*r.IntN(3)
				patience, hold := time.Duration(r.Int64N(int64(100*time.Millisecond))), time.Duration(r.Int64N(int64(60*time.Millisecond)))
				if s == processes[0] && r.IntN(3) == 0 {
					locktest.Must(t, s.Resize(1+r.IntN(largest)))
				}
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					err := use(ctx, s, n, hold)
					g.mu.Lock()
					defer g.mu.Unlock()
					switch {
					case err == nil:
						granted++
					case errors.Is(err, redlock.ErrNotAcquired), errors.Is(err, redlock.ErrConfig): // more than there are
						gaveUp++
					default:
						t.Errorf("seed %d: got %v", seed, err)
					}
				})
				time.Sleep(time.Duration(r.Int64N(int64(10 * time.Millisecond))))
			}
			callers.Wait()
			if granted < 10 || gaveUp < 10 {
				t.Errorf("seed %d: %d calls were granted and %d gave up, want ten of each", seed, granted, gaveUp)
			}
			locktest.Must(t, processes[0].Resize(largest))
			start := time.Now()
			for i := range 24 {
				callers.Go(func() { locktest.Must(t, use(t.Context(), processes[i%3], 1, 10*time.Millisecond)) })
			}
			callers.Wait()
			locktest.WantWithin(t, "24 callers of 6 permits", start, 2*time.Second)
			time.Sleep(time.Second)
			locktest.WantNothingLeft(b)
			if len(g.wrong) > 0 {
				t.Errorf("seed %d: %v", seed, g.wrong)
			}
		})
	}
}
