package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/internal/redistest"
)

// kind is one of the contending libraries.
type kind struct {
	name string

	// lock waits for the resource, and returns a function that unlocks it.
	lock func(ctx context.Context, resource string) (unlock func(context.Context) error, err error)

	// try does not wait. taken reports whether an error says that the resource is taken.
	try   func(ctx context.Context, resource string) (unlock func(context.Context) error, err error)
	taken func(error) bool
}

func oursKind(t *testing.T, addrs []string, opts ...redlock.Option) kind {
	t.Helper()
	l, err := redlock.New(addrs, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters have their votes")
	handle := func(lease *redlock.Lease, err error) (func(context.Context) error, error) {
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
	return kind{
		name: "ours",
		lock: func(ctx context.Context, resource string) (func(context.Context) error, error) {
			return handle(l.Lock(ctx, resource))
		},
		try: func(ctx context.Context, resource string) (func(context.Context) error, error) {
			return handle(l.TryLock(ctx, resource))
		},
		taken: func(err error) bool { return errors.Is(err, redlock.ErrTaken) },
	}
}

func redsyncKind(t *testing.T, addrs []string) kind {
	t.Helper()
	// Its default delay of 50 to 250 ms would leave it few chances between the other kind's attempts.
	r := contender.NewRedsync(addrs, redis.Options{}, redsync.WithRetryDelay(2*time.Millisecond), redsync.WithTries(1<<20))
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	with := func(lock func(*redsync.Mutex, context.Context) error) func(context.Context, string) (func(context.Context) error, error) {
		return func(ctx context.Context, resource string) (func(context.Context) error, error) {
			m := r.Mutex(resource)
			if err := lock(m.Mutex, ctx); err != nil {
				return nil, err
			}
			return m.Unlock, nil
		}
	}
	return kind{
		name: "redsync",
		lock: with((*redsync.Mutex).LockContext),
		try:  with((*redsync.Mutex).TryLockContext),
		taken: func(err error) bool {
			var taken *redsync.ErrTaken
			return errors.As(err, &taken)
		},
	}
}

func TestOneAtATime(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, n))
			us, they := oursKind(t, addrs, redlock.WithKeyPrefix("")), redsyncKind(t, addrs)
			for _, order := range [][2]kind{{us, they}, {they, us}} {
				first, second := order[0], order[1]
				t.Run(first.name+" first", func(t *testing.T) { oneAtATime(t, first, second) })
			}
		})
	}
}

func oneAtATime(t *testing.T, first, second kind) {
	ctx := t.Context()
	const resource = "orders/42"
	for round := range 20 {
		unlock, err := first.try(ctx, resource)
		if err != nil {
			t.Fatalf("round %d: %s: got %v for a free resource", round, first.name, err)
		}
		if extra, err := second.try(ctx, resource); err == nil || !second.taken(err) {
			if err == nil {
				_ = extra(ctx)
			}
			t.Fatalf("round %d: %s while %s holds: got %v, want that it is taken", round, second.name, first.name, err)
		}
		if err := unlock(ctx); err != nil {
			t.Fatalf("round %d: %s: unlock: %v", round, first.name, err)
		}
		unlock, err = second.try(ctx, resource)
		if err != nil {
			t.Fatalf("round %d: %s after %s unlocked: got %v", round, second.name, first.name, err)
		}
		if err := unlock(ctx); err != nil {
			t.Fatalf("round %d: %s: unlock: %v", round, second.name, err)
		}
	}
}

// Many clients of both kinds work on a few resources with the same keys.
func TestExclusion(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, n))
			c := newChecker(redistest.Client(t, addrs[0]))
			enough := func() bool { return c.fewest("ours", "redsync") >= 100 }
			c.contend(t, enough, oursKind(t, addrs, redlock.WithKeyPrefix("")), redsyncKind(t, addrs))

			for pair, times := range c.overlaps {
				t.Errorf("%s came in while %s was inside, %d times", pair.came, pair.inside, times)
			}
			total := 0
			for _, resource := range contended {
				want := c.sections[section{resource, "ours"}] + c.sections[section{resource, "redsync"}]
				if got := c.count(t, resource); got != want {
					t.Errorf("%s: got a count of %d for %d critical sections", resource, got, want)
				}
				total += want
			}
			t.Logf("%d critical sections: %v", total, c.sections)
		})
	}
}

// Control: with different keys the two kinds do not exclude each other, though each excludes
// itself. The checker must see that.
func TestCheckerSeesOverlaps(t *testing.T) {
	addrs := redistest.Addrs(redistest.Masters(t, 3))
	c := newChecker(redistest.Client(t, addrs[0]))
	oursIn, redsyncIn := overlap{came: "ours", inside: "redsync"}, overlap{came: "redsync", inside: "ours"}
	seen := func() bool { return c.overlapped(oursIn) && c.overlapped(redsyncIn) && c.lostUpdates(t) }
	c.contend(t, seen, oursKind(t, addrs), redsyncKind(t, addrs))

	if !seen() {
		t.Error("the checker did not see the overlaps, or the count was right in spite of them")
	}
	for pair, times := range c.overlaps {
		if pair.came == pair.inside {
			t.Errorf("%s came in while %s was inside, %d times", pair.came, pair.inside, times)
		}
	}
	t.Logf("overlaps: %v in sections: %v", c.overlaps, c.sections)
}

var contended = []string{"a", "b", "c"}

const (
	contenderEach = 12               // goroutines of each kind
	contendWithin = 60 * time.Second // a run that takes longer has failed
)

// checker knows which clients are inside which critical section.
type checker struct {
	redis *redis.Client // where each resource has a plain count of its sections

	mu       sync.Mutex
	inside   map[section]int // number of clients inside; guarded by mu, like the fields below
	sections map[section]int // number of sections so far
	overlaps map[overlap]int
}

type section struct{ resource, kind string }

// overlap is a kind that came in, and a kind that was inside by then.
type overlap struct{ came, inside string }

func newChecker(client *redis.Client) *checker {
	return &checker{
		redis:    client,
		inside:   map[section]int{},
		sections: map[section]int{},
		overlaps: map[overlap]int{},
	}
}

func (c *checker) enter(resource, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, n := range c.inside {
		if s.resource == resource && n > 0 {
			c.overlaps[overlap{came: kind, inside: s.kind}]++
		}
	}
	c.inside[section{resource, kind}]++
}

func (c *checker) leave(resource, kind string, done int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside[section{resource, kind}]--
	c.sections[section{resource, kind}] += done
}

// work is a critical section: it increments the count of the resource in two steps, which
// only the lock makes atomic.
func (c *checker) work(ctx context.Context, resource, kind string) error {
	c.enter(resource, kind)
	done := 0
	defer func() { c.leave(resource, kind, done) }()
	n, err := c.redis.Get(ctx, countKey(resource)).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if err := c.redis.Set(ctx, countKey(resource), n+1, 0).Err(); err != nil {
		return err
	}
	done = 1
	return nil
}

func countKey(resource string) string { return "count:" + resource }

func (c *checker) count(t *testing.T, resource string) int {
	t.Helper()
	n, err := c.redis.Get(context.WithoutCancel(t.Context()), countKey(resource)).Int()
	if err != nil {
		t.Errorf("count of %s: %v", resource, err)
	}
	return n
}

// lostUpdates reports whether some count is smaller than the number of its sections.
func (c *checker) lostUpdates(t *testing.T) bool {
	t.Helper()
	c.mu.Lock()
	sections := maps.Clone(c.sections)
	c.mu.Unlock()
	for _, resource := range contended {
		done := sections[section{resource, "ours"}] + sections[section{resource, "redsync"}]
		if done > 0 && c.count(t, resource) < done {
			return true
		}
	}
	return false
}

func (c *checker) overlapped(o overlap) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overlaps[o] > 0
}

// fewest returns the smallest number of sections that a kind has had on a resource.
func (c *checker) fewest(kinds ...string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	fewest := -1
	for _, kind := range kinds {
		for _, resource := range contended {
			if n := c.sections[section{resource, kind}]; fewest < 0 || n < fewest {
				fewest = n
			}
		}
	}
	return fewest
}

// contend lets many goroutines of each kind take turns until enough returns true.
func (c *checker) contend(t *testing.T, enough func() bool, kinds ...kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), contendWithin)
	defer cancel()
	visitors, ctx := errgroup.WithContext(ctx)
	stop := make(chan struct{})
	for _, k := range kinds {
		for i := range contenderEach {
			visitors.Go(func() error {
				for round := i; ; round++ {
					select {
					case <-stop:
						return nil
					default:
					}
					if err := c.visit(ctx, k, contended[round%len(contended)]); err != nil {
						return err
					}
				}
			})
		}
	}
	for ctx.Err() == nil && !enough() {
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	if err := visitors.Wait(); err != nil {
		t.Errorf("stopped by: %v (sections so far: %v)", err, c.sections)
	}
}

func (c *checker) visit(ctx context.Context, k kind, resource string) error {
	unlock, err := k.lock(ctx, resource)
	if err != nil {
		return fmt.Errorf("%s: lock %s: %w", k.name, resource, err)
	}
	err = c.work(ctx, resource, k.name)
	if e := unlock(ctx); e != nil && !errors.Is(e, redlock.ErrNoQuorum) { // that release is repeated: the machine is busy
		err = errors.Join(err, fmt.Errorf("%s: unlock %s: %w", k.name, resource, e))
	}
	return err
}
