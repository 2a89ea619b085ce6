package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// Clocks of nodes may drift by less than half the drift allowance, and may be set to anything: a
// lease excludes others until its deadline.
//
// Source: ALGORITHM section 1, A1; section 9; section 13, I1 and I3.
func TestVirtualClocksOfNodes(t *testing.T) {
	for _, test := range []struct {
		name  string
		rates []float64
	}{
		{"0.4 % fast", []float64{1.004, 1.004, 1.004}},
		{"0.4 % slow", []float64{0.996, 0.996, 0.996}},
		{"apart by 0.8 %", []float64{0.996, 1.004, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				for i, n := range b.Nodes {
					n.RunClock(test.rates[i], time.Duration(i-1)*2*time.Second)
				}
				l, other := b.WarmLocker(redlock.WithoutRenewal()), b.WarmLocker()
				held := b.Lock(l, "r")
				lease, err := other.Lock(t.Context(), "r")
				if err != nil {
					t.Fatalf("Lock: got %v, want a lease", err)
				}
				if held.Validity() > 0 {
					t.Errorf("validity of the holder before, when the next had a lease: got %v, want it over", held.Validity())
				}
				time.Sleep(time.Minute)
				if err := lease.Context().Err(); err != nil {
					t.Errorf("a minute later: got %v, want a lease", context.Cause(lease.Context()))
				}
			})
		})
	}
	t.Run("an hour without a word makes no request late", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithTTL(50 * time.Millisecond)) // a node timeout of 5 ms
			b.All(func(n *virtual.Node) { n.RunClock(1.004, 0) })
			time.Sleep(time.Hour)
			lease, err := l.TryLock(t.Context(), "r")
			if err != nil {
				t.Fatalf("TryLock: got %v, want a lease", err)
			}
			b.Unlock(lease)
		})
	})
	t.Run("a step of all costs one attempt at most", func(t *testing.T) {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			for name, step := range map[string]time.Duration{"back": -time.Hour, "ahead": time.Hour} {
				b.All(func(n *virtual.Node) { n.RunClock(1, step) })
				lease, err := l.TryLock(t.Context(), name)
				if err == nil { // the second reply showed that all had stepped before the first was counted
					b.Unlock(lease)
				} else {
					locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum})
				}
				b.WantHolding(name)
				start := time.Now()
				lease, err = l.Lock(t.Context(), name)
				if err != nil {
					t.Fatalf("Lock: got %v, want a lease", err)
				}
				locktest.WantSince(t, "Lock", start, 0)
				b.Unlock(lease)
			}
		})
	})
}

// harmless injects a fault that Redlock promises to survive on any number of nodes: none of these
// faults loses a key.
func harmless(rng *rand.Rand, n *virtual.Node) {
	switch rng.IntN(8) {
	case 0:
		n.Hang()
	case 1:
		n.Blackhole()
	case 2:
		n.LoseReplies()
	case 3:
		n.Kill()
	case 4:
		n.Kill()
		n.Restart()
	case 5:
		n.Refuse("READONLY You can't write against a read only replica.")
	case 6:
		n.Latency(time.Duration(rng.IntN(30))*time.Millisecond, time.Duration(rng.IntN(30))*time.Millisecond)
	case 7:
		n.Latency(time.Duration(rng.IntN(150))*time.Millisecond, time.Duration(rng.IntN(150))*time.Millisecond)
	}
}

// race lets three Lockers with three callers each contend for resources during a seeded schedule of
// faults of the nodes. After that every caller must be served once more, and no key or goroutine may
// be left. race returns the problems, and the number of leases.
//
// Source: ALGORITHM section 13, I1, I2, I7, I10 and I11.
func race(t *testing.T, seed uint64, during time.Duration, opts ...redlock.LockOption) (problems []string, leases, handed int) {
	seen := locktest.NewBook()
	const (
		ttl     = time.Second
		callers = 3
		hold    = 200 // ms, the longest
		bound   = 15 * time.Second
	)
	locktest.InBubble(t, 3+2*int(seed%2), func(t *testing.T, b *locktest.Bubble) {
		resources := []string{"r", "s"}[:1+seed/2%2]
		var mu sync.Mutex
		problem := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, fmt.Sprintf(format, args...))
		}
		grants := make(map[string]int) // leases by token
		// work is one lease, from Lock to Unlock.
		work := func(ctx context.Context, rng *rand.Rand, l *redlock.Locker, resource string) error {
			wait, cancel := context.WithTimeout(ctx, time.Duration(500+rng.IntN(3000))*time.Millisecond)
			defer cancel()
			if ctx.Err() == nil && rng.IntN(4) > 0 {
				wait = ctx
			}
			lease, err := seen.Take(resource, true, func() (*redlock.Lease, error) { return l.Lock(wait, resource, opts...) })
			if err != nil {
				return err
			}
			if left := lease.Validity(); left < ttl/2 {
				problem("granted with %v left", left)
			}
			over := lease.Context()
			mu.Lock()
			grants[lease.Token()]++
			mu.Unlock()
			busy := time.NewTimer(time.Duration(rng.IntN(hold)) * time.Millisecond)
			if rng.IntN(10) == 0 {
				busy.Reset(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
			select {
			case <-busy.C:
			case <-over.Done():
				if left := lease.Validity(); left < 0 {
					problem("context ended %v after the validity", -left)
				}
			}
			busy.Stop()
			if over.Err() == nil && lease.Validity() <= 0 {
				problem("context goes on after the validity")
			}
			switch err := seen.Free(ctx, lease); {
			case errors.Is(err, redlock.ErrLost):
			case lease.Validity() > 0 || over.Err() == nil:
				problem("valid for %v after Unlock", lease.Validity())
			}
			seen.Look()
			return nil
		}
		var lockers []*redlock.Locker
		for range 3 {
			lockers = append(lockers, b.Locker(redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithLogger(slog.New(slog.DiscardHandler))))
		}
		ctx, stop := context.WithTimeout(t.Context(), during)
		defer stop()
		var ended sync.WaitGroup
		for i := range 3 * callers {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			ended.Go(func() {
				for ctx.Err() == nil {
					if rng.IntN(3) == 0 {
						time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
					}
					_ = work(ctx, rng, lockers[i%3], resources[rng.IntN(len(resources))])
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed, 99))
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
			harmless(rng, b.Nodes[rng.IntN(len(b.Nodes))])
			for range 2 {
				n := b.Nodes[rng.IntN(len(b.Nodes))]
				n.Heal()
				n.Latency(time.Duration(rng.IntN(5))*time.Millisecond, time.Duration(rng.IntN(5))*time.Millisecond)
			}
			seen.Look()
		}
		b.All(func(n *virtual.Node) { n.Heal(); n.Latency(time.Millisecond, time.Millisecond) })
		ended.Wait()
		// There are no faults any more: each caller must be served.
		last, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		for i := range 3 * callers {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			ended.Go(func() {
				resource := resources[i%len(resources)]
				lease, err := seen.Take(resource, true, func() (*redlock.Lease, error) { return lockers[i%3].Lock(last, resource, opts...) })
				if err != nil {
					problem("not served when all is well: %v", err)
					return
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				if err := seen.Free(t.Context(), lease); err != nil {
					problem("Unlock when all is well: %v", err)
				}
			})
		}
		ended.Wait()
		for i, l := range lockers {
			if got := door.Look(l).Lines(); got != 0 {
				problem("%d lines of Locker %d are left", got, i)
			}
			if err := l.Close(); err != nil {
				problem("Close: %v", err)
			}
		}
		time.Sleep(10*time.Second + ttl)
		for _, n := range b.Nodes {
			if got := locktest.Left(n); len(got) > 0 {
				problem("left: %q", got)
			}
		}
		for _, n := range grants {
			handed += n - 1
		}
	})
	return append(problems, seen.Problems()...), seen.Leases(), handed
}

// However callers and Lockers pass a resource on, and whatever happens to the nodes: there is one
// holder at a time, tokens rise, every caller is served after the faults, and nothing is left
// behind.
//
// Source: ALGORITHM section 13, I1, I2, I7, I10 and I11.
func TestVirtualContention(t *testing.T) {
	t.Parallel()
	seeds := redistest.Rounds(3, 30)
	if testing.Short() {
		seeds = 2
	}
	var leases, handed atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				problems, n, h := race(t, seed, 3*time.Second)
				leases.Add(int64(n))
				handed.Add(int64(h))
				if len(problems) > 0 {
					t.Errorf("got %d problems, %q first, want none", len(problems), problems[0])
				}
			})
		}
	})
	if leases.Load() < int64(10*seeds) || handed.Load() < int64(2*seeds) {
		t.Errorf("got %d leases, %d of them handed over, want at least %d and %d, or little was tested", leases.Load(), handed.Load(), 10*seeds, 2*seeds)
	}
	t.Logf("%d leases, %d of them handed over", leases.Load(), handed.Load())
}

// The checker of TestVirtualContention must find faults of the algorithm.
//
// Source: ALGORITHM section 13, negative controls.
func TestVirtualContentionCatches(t *testing.T) {
	redistest.TakesSeconds(t)
	for way, want := range map[string]string{
		"sameToken":    "I2 ",
		"keepsHandle":  "valid for ",
		"lateHandOver": "granted with ",
	} {
		t.Run(way, func(t *testing.T) {
			inject.Rules(t, way)
			for seed := range uint64(300) {
				problems, _, _ := race(t, seed, 3*time.Second)
				if slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
					return
				}
			}
			t.Errorf("problems with 300 seeds: got none, want %q", want)
		})
	}
}
