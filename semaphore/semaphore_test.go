package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/semaphore"
)

func newSemaphore(t testing.TB, l *redlock.Locker, permits int, opts ...redlock.LockOption) *semaphore.Semaphore {
	t.Helper()
	s, err := semaphore.New(l, "s", permits, opts...)
	locktest.Must(t, err)
	return s
}

// gate is what the permits guard. It checks that there are at most so many holders, that a permit has one
// holder, and that the tokens of a permit rise.
type gate struct {
	most int

	mu     sync.Mutex
	inside map[string]bool
	fences map[string]int64
	wrong  []string
}

func newGate(most int) *gate {
	return &gate{most: most, inside: make(map[string]bool), fences: make(map[string]int64)}
}

func (g *gate) enter(parts ...part) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range parts {
		if g.inside[p.permit] {
			g.wrong = append(g.wrong, p.permit+" has two holders")
		}
		if p.fence <= g.fences[p.permit] {
			g.wrong = append(g.wrong, "the tokens of "+p.permit+" fall")
		}
		g.inside[p.permit], g.fences[p.permit] = true, p.fence
	}
	if len(g.inside) > g.most {
		g.wrong = append(g.wrong, "too many holders")
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, p := range parts {
			delete(g.inside, p.permit)
		}
	}
}

type part struct {
	permit string
	fence  int64
}

func partsOf(lease *semaphore.Lease) (parts []part) {
	for _, p := range lease.Parts() {
		parts = append(parts, part{p.Resource(), p.Fence()})
	}
	return parts
}

// Control: the gate sees a permit twice, a token that falls, and too many holders.
func TestGateControl(t *testing.T) {
	for want, enter := range map[string]func(g *gate){
		"two holders": func(g *gate) { g.enter(part{"s~1", 1}); g.enter(part{"s~1", 2}) },
		"tokens":      func(g *gate) { g.enter(part{"s~1", 2})(); g.enter(part{"s~1", 2}) },
		"too many":    func(g *gate) { g.enter(part{"s~1", 1}); g.enter(part{"s~2", 1}, part{"s~3", 1}) },
	} {
		g := newGate(2)
		enter(g)
		if len(g.wrong) != 1 || !strings.Contains(g.wrong[0], want) {
			t.Errorf("got %q, want %q", g.wrong, want)
		}
	}
}

// Callers of three Lockers for one, two or all of four permits are all served, while a master is killed and one
// hangs.
func TestEveryCallerIsServed(outer *testing.T) {
	t := redistest.Timed(outer)
	const permits = 4
	procs := redistest.Masters(t, 5)
	addrs := redistest.Addrs(procs)
	locktest.Bootstrap(t, addrs)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	g := newGate(permits)
	var callers sync.WaitGroup
	for i := range 3 {
		s := newSemaphore(t, locktest.Open(t, addrs), permits)
		for k := range 5 {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			callers.Go(func() {
				for turn := range 12 {
					if i == 0 && k == 0 && turn == 4 {
						if err := errors.Join(procs[0].Kill(), procs[1].Pause()); err != nil {
							t.Error(err)
						}
					}
					lease, err := s.Acquire(ctx, []int{1, 1, 2, permits}[rng.IntN(4)])
					if err != nil {
						t.Errorf("Locker %d, caller %d: %v", i, k, err)
						return
					}
					leave := g.enter(partsOf(lease)...)
					time.Sleep(2 * time.Millisecond)
					leave()
					if err := lease.Unlock(ctx); err != nil && !errors.Is(err, redlock.ErrNoQuorum) { // the quorum is all that are left, and may be late
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
	}
	callers.Wait()
	if len(g.wrong) > 0 {
		t.Errorf("%d problems, the first: %s", len(g.wrong), g.wrong[0])
	}
}

// The permits of a holder that is killed are had within 0.1 s of their end, by a caller that waits and by a caller that comes later.
//
// Source: ALGORITHM section 10, "Any of several".
func TestKilledHolder(outer *testing.T) {
	const variable, ttl = "REDLOCK_TEST_HOLDER", time.Second
	open := func(t testing.TB, addrs []string, name string, permits int) *semaphore.Semaphore {
		s, err := semaphore.New(locktest.Open(t, addrs), name, permits, redlock.WithTTL(ttl))
		locktest.Must(t, err)
		return s
	}
	var name, addrs string
	var permits int
	if _, err := fmt.Sscan(os.Getenv(variable), &permits, &name, &addrs); err == nil { // the holder
		_, err := open(outer, strings.Split(addrs, ","), name, permits).Acquire(outer.Context(), permits)
		locktest.Must(outer, err)
		select {}
	}
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	for _, permits := range []int{1, 3} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d permits, later: %v", permits, later), func(t *redistest.T) {
				name := fmt.Sprintf("%d-%v", permits, later)
				holder := exec.Command(os.Args[0], "-test.run=^TestKilledHolder$")
				holder.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", variable, permits, name, strings.Join(c.Addrs, ",")))
				locktest.Must(t, holder.Start())
				held := func() bool { return c.Count(fmt.Sprintf("redlock:%s~%d", name, permits)) == 3 }
				redistest.Eventually(t, 20*time.Second, held, "the holder has the last permit")
				s, had := open(t, c.Addrs, name, permits), make(chan time.Time, 1)
				acquire := func() {
					lease, err := s.Acquire(t.Context(), permits)
					had <- time.Now()
					locktest.Must(t, err)
					_ = lease.Unlock(t.Context())
				}
				if !later {
					go acquire()
					waits := func() bool {
						return slices.ContainsFunc(c.Nodes, func(n *redis.Client) bool { return n.Exists(t.Context(), "redlock:"+name+"~~queue").Val() > 0 })
					}
					redistest.Eventually(t, 10*time.Second, waits, "the caller waits")
				}
				locktest.Must(t, holder.Process.Kill())
				_ = holder.Wait() // as it was killed
				var end time.Time // no earlier than that of the last key
				for _, n := range c.Nodes {
					for k := range permits {
						left := n.PTTL(t.Context(), fmt.Sprintf("redlock:%s~%d", name, k+1)).Val()
						if at := time.Now().Add(left); at.After(end) {
							end = at
						}
					}
				}
				if later {
					time.Sleep(time.Until(end) - 50*time.Millisecond)
					go acquire()
				}
				after := (<-had).Sub(end)
				t.Logf("had %v after the end, timers were late for %v", after, t.Late())
				if after > 100*time.Millisecond+t.Late() {
					t.Errorf("had %v after the end of the keys, want 100ms at most", after)
				}
			})
		}
	}
}

// stopping makes a process stand still once, when it has locked a permit.
func stopping(stop time.Duration) redlock.Option {
	var once sync.Once
	return redlock.WithTracer(func(_ context.Context, op, _ string) func(*redlock.Lease, error) {
		return func(*redlock.Lease, error) {
			if op == "TryLock" {
				once.Do(func() { time.Sleep(stop) })
			}
		}
	})
}

// A caller that loses its permits before it has a lease on all of them goes on: it waits for them.
func TestAcquireGoesOn(outer *testing.T) {
	t := redistest.Timed(outer)
	const ttl = 300 * time.Millisecond
	l := locktest.Open(t, redistest.Addrs(locktest.Masters(t, 3)), redlock.WithTTL(ttl), stopping(ttl+100*time.Millisecond))
	s := newSemaphore(t, l, 2, redlock.WithoutRenewal())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease, err := s.Acquire(ctx, 2)
	locktest.Must(t, err)
	locktest.Must(t, lease.Unlock(ctx))
}

// Arguments that cannot work are refused before any master is asked.
// A permit whose keys hold something that is no lock is not to be had. The others are, and it is an error only where all are like that.
func TestPermitThatIsNoLock(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	spoil := func(permit int) {
		for _, n := range c.Nodes {
			key := fmt.Sprintf("redlock:s~%d~fence", permit)
			locktest.Must(t, n.Del(t.Context(), key).Err())
			locktest.Must(t, n.RPush(t.Context(), key, "x").Err())
		}
	}
	spoil(1)
	first, second := newSemaphore(t, locktest.Open(t, c.Addrs), 3), newSemaphore(t, locktest.Open(t, c.Addrs), 3)
	var work sync.WaitGroup
	for _, s := range []*semaphore.Semaphore{first, first, second, second} {
		work.Go(func() {
			for range 25 {
				lease, err := s.Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				_ = lease.Unlock(t.Context())
			}
		})
	}
	work.Wait()
	both, err := first.TryAcquire(t.Context(), 2)
	locktest.Must(t, err)
	if _, err := second.TryAcquire(t.Context(), 1); redlock.Reason(err) != "taken" {
		t.Errorf("two permits are held, and one is no lock: got %v, want taken", err)
	}
	locktest.Must(t, both.Unlock(t.Context()))
	spoil(2)
	spoil(3)
	for name, acquire := range map[string]func(context.Context, int) (*semaphore.Lease, error){"Acquire": first.Acquire, "TryAcquire": first.TryAcquire} {
		if _, err := acquire(t.Context(), 1); redlock.Reason(err) != "wrong_type" {
			t.Errorf("%s of permits that are no locks: got %v, want wrong_type", name, err)
		}
	}
}

func TestArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(nil))
	open := func(l *redlock.Locker, name string, permits int, opts ...redlock.LockOption) error {
		_, err := semaphore.New(l, name, permits, opts...)
		return err
	}
	s := newSemaphore(t, l, 2)
	acquire := func(ctx context.Context, n int) error {
		_, err := s.Acquire(ctx, n)
		return err
	}
	var none context.Context
	for name, err := range map[string]error{
		"no Locker":       open(nil, "s", 1),
		"no name":         open(l, "", 1),
		"a long name":     open(l, strings.Repeat("x", redlock.MaxResourceLength-3), 1),
		"a reserved name": open(l, "s~queue", 1), // with which no call could wait
		"no permits":      open(l, "s", 0),
		"too many":        open(l, "s", semaphore.MaxPermits+1),
		"WithReentry":     open(l, "s", 1, redlock.WithReentry()),
		"Shared":          open(l, "s", 1, redlock.Shared()),
		"a wrong option":  open(l, "s", 1, redlock.WithTTL(1)),
		"none wanted":     acquire(t.Context(), 0),
		"more than exist": acquire(t.Context(), 3),
		"no context":      acquire(none, 1),
		"no function":     s.Do(t.Context(), 1, nil),
		"Resize to 0":     s.Resize(0),
	} {
		if !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
		if strings.Contains(fmt.Sprint(err), "CheckResource") {
			t.Errorf("%s: got %v, want no function that was not called", name, err)
		}
	}
	if err := open(l, strings.Repeat("x", 600), 1); err == nil || !strings.Contains(err.Error(), "the name has 600 bytes: at most 507") {
		t.Errorf("a long name: got %v, want how long it may be", err)
	}
	if s.Permits() != 2 {
		t.Errorf("got %d permits, want those of before", s.Permits())
	}
	if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("no master answers: got %v, want ErrNoQuorum", err)
	}
}
