package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

const (
	// hung is the read timeout of redsync's clients where a node hangs. The default of 5 s is how
	// long redsync's calls take then. A shorter one saves time and changes nothing else.
	hung = time.Second

	// settled is how long a key must stay where it should not be to count as an orphan.
	settled = time.Second

	// patience bounds how long tests wait. No test waits that long unless it fails.
	patience = 20 * time.Second
)

// TestFailures plays known failures of quorum locks, each scenario once with redsync and
// once with this library, which must pass them all. If redsync passes a scenario that it
// should fail, the scenario has lost its meaning, and the test fails, too.
func TestFailures(outer *testing.T) {
	t := redistest.Timed(outer)
	const ttl = 8 * time.Second // redsync's default
	failFast := redsync.WithFailFast(true)
	for _, s := range []scenario{
		{
			name:  "one node of five hangs",
			ttl:   ttl,
			conns: redis.Options{ReadTimeout: hung},
			play:  hungNode, fails: 3,
		},
		{
			name:    "one node of five hangs, fail fast",
			ttl:     ttl,
			conns:   redis.Options{ReadTimeout: hung},
			redsync: []redsync.Option{failFast},
			play:    hungNode,
		},
		{
			name:    "attempts that fail without any fault",
			ttl:     ttl,
			redsync: []redsync.Option{failFast},
			play:    failedAttempts, fails: 1,
		},
		{
			name:  "deadline while a node hangs",
			ttl:   30 * time.Second,
			conns: redis.Options{ReadTimeout: hung},
			play:  deadline, fails: 3,
		},
		{
			name:    "acquire comes after the release",
			ttl:     ttl,
			redsync: []redsync.Option{failFast},
			play:    lateAcquire(300 * time.Millisecond), fails: 1,
		},
		{
			name:  "acquire comes after its time-out and the release",
			ttl:   ttl,
			conns: redis.Options{ContextTimeoutEnabled: true},
			play:  lateAcquire(700 * time.Millisecond), fails: 1,
		},
		{
			name: "extend after another holder",
			ttl:  2 * time.Second,
			play: lapsed,
		},
		{
			name:    "extend after another holder, set on extend",
			ttl:     2 * time.Second,
			redsync: []redsync.Option{redsync.WithSetNXOnExtend()},
			play:    lapsed, fails: 1,
		},
		{
			name: "node restarts empty under a bare quorum",
			ttl:  ttl,
			play: restart, fails: 1,
		},
	} {
		t.Run(s.name, func(t *redistest.T) {
			t.Run("redsync", func(t *redistest.T) {
				seen := s.run(t, s.dialRedsync)
				switch {
				case len(seen) != s.fails:
					t.Errorf("got %d failures %q, want %d: is the scenario any good?", len(seen), seen, s.fails)
				case s.fails == 0:
					t.Log("redsync passes this too: it proves nothing about redsync")
				}
				for _, failure := range seen {
					t.Log("redsync: " + failure)
				}
			})
			t.Run("ours", func(t *redistest.T) {
				for _, failure := range s.run(t, s.dialOurs) {
					t.Error(failure)
				}
			})
		})
	}
}

// scenario is a sequence of events, and the setup of the libraries for it.
type scenario struct {
	name    string
	ttl     time.Duration
	conns   redis.Options    // for redsync's clients
	redsync []redsync.Option // besides the TTL
	play    func(*stage)
	fails   int // number of different failures that redsync shows; 0: it passes, too
}

// stage plays a scenario with one of the libraries.
type stage struct {
	testing.TB
	ttl   time.Duration
	dial  func(t testing.TB, addrs []string) client
	nodes []*masters.Process
	peek  []*redis.Client // one for each node, bypassing all proxies
	warm  int             // warm-ups so far
	seen  []string        // the failures
}

func (s scenario) run(t testing.TB, dial func(testing.TB, []string) client) (seen []string) {
	st := &stage{TB: t, ttl: s.ttl, dial: dial}
	s.play(st)
	return st.seen
}

// client is one process that uses a library.
type client interface {
	lock(ctx context.Context, resource string) (lease, error)
	try(ctx context.Context, resource string) (lease, error)
}

// lease is held by a client. Only Extend renews it, as in redsync.
type lease interface {
	Extend(ctx context.Context) error
	Unlock(ctx context.Context) error
	Validity() time.Duration
}

func (s scenario) dialOurs(t testing.TB, addrs []string) client {
	t.Helper()
	return oursClient{newLocker(t, addrs,
		redlock.WithTTL(s.ttl), redlock.WithMaxTTL(s.ttl), redlock.WithKeyPrefix(""), redlock.WithoutRenewal())}
}

type oursClient struct{ *redlock.Locker }

func (c oursClient) lock(ctx context.Context, resource string) (lease, error) {
	return c.Lock(ctx, resource)
}

func (c oursClient) try(ctx context.Context, resource string) (lease, error) {
	return c.TryLock(ctx, resource)
}

func (s scenario) dialRedsync(t testing.TB, addrs []string) client {
	t.Helper()
	r := contender.NewRedsync(addrs, s.conns, append([]redsync.Option{redsync.WithExpiry(s.ttl)}, s.redsync...)...)
	t.Cleanup(func() { _ = r.Close() })
	return redsyncClient{r}
}

type redsyncClient struct{ *contender.Redsync }

func (c redsyncClient) lock(ctx context.Context, resource string) (lease, error) {
	m := c.Mutex(resource)
	return redsyncLease{m}, m.LockContext(ctx)
}

func (c redsyncClient) try(ctx context.Context, resource string) (lease, error) {
	m := c.Mutex(resource)
	return redsyncLease{m}, m.TryLockContext(ctx)
}

type redsyncLease struct{ contender.RedsyncLease }

func (l redsyncLease) Validity() time.Duration { return time.Until(l.Until()) }

// start starts the nodes.
func (s *stage) start(n int) {
	s.Helper()
	s.nodes = redistest.Masters(s.TB, n)
	for _, node := range s.nodes {
		s.peek = append(s.peek, redistest.Client(s.TB, node.Addr()))
	}
}

// addrs returns the addresses of the nodes, or of the proxies in front of the first nodes.
func (s *stage) addrs(front ...*masters.Proxy) []string {
	return append(redistest.Addrs(front), redistest.Addrs(s.nodes[len(front):])...)
}

// client makes a client that has used each node before.
func (s *stage) client(addrs []string) client {
	s.Helper()
	c := s.dial(s.TB, addrs)
	used := make([]bool, len(s.peek))
	for end := time.Now().Add(patience); slices.Contains(used, false); s.warm++ {
		if time.Now().After(end) {
			s.Fatalf("not within %v: every node is used: got %v", patience, used)
		}
		resource := fmt.Sprint("warm-up/", s.warm)
		l, err := c.lock(s.Context(), resource)
		s.must(err)
		// A client that fails fast may never ask the last nodes.
		for end := time.Now().Add(50 * time.Millisecond); slices.Contains(used, false) && time.Now().Before(end); {
			for i, at := range s.peek {
				used[i] = used[i] || at.Exists(s.Context(), resource).Val() == 1
			}
		}
		_ = l.Unlock(s.Context()) // only a warm-up
	}
	return c
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// saw records a failure of the library.
func (s *stage) saw(format string, args ...any) {
	s.seen = append(s.seen, fmt.Sprintf(format, args...))
}

// take gives the resource to another holder on some nodes, for ever if d is 0.
func (s *stage) take(resource string, d time.Duration, nodes ...int) {
	s.Helper()
	for _, i := range nodes {
		s.must(s.peek[i].Set(s.Context(), resource, "another holder", d).Err())
	}
}

func (s *stage) free(resource string, nodes ...int) {
	s.Helper()
	for _, i := range nodes {
		s.must(s.peek[i].Del(s.Context(), resource).Err())
	}
}

// orphans looks for keys of resources that no client holds or wants, and returns how long
// they will block. Keys that are about to go are given time.
func (s *stage) orphans(resources []string, nodes ...int) (left []time.Duration) {
	s.Helper()
	for _, i := range nodes { // the ping returns after the node has executed earlier requests
		s.must(s.peek[i].Ping(s.Context()).Err())
	}
	for end := time.Now().Add(settled); ; time.Sleep(5 * time.Millisecond) {
		left = nil
		for _, i := range nodes {
			for _, resource := range resources {
				d, err := s.peek[i].PTTL(s.Context(), resource).Result()
				s.must(err)
				if d > 0 {
					left = append(left, d.Round(100*time.Millisecond))
				}
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// intrude lets another client try to lock a held resource.
func (s *stage) intrude(c client, resource string, holder lease) {
	s.Helper()
	var last error
	for range 20 { // more than once, as the client may have to reconnect
		other, err := c.try(s.Context(), resource)
		if err == nil {
			if mine, theirs := holder.Validity(), other.Validity(); mine > 0 && theirs > 0 {
				s.saw("two holders, one for another %v and one for %v", mine.Round(time.Millisecond), theirs.Round(time.Millisecond))
			}
			break
		}
		last = err
		time.Sleep(20 * time.Millisecond) // the pause between attempts
	}
	if holder.Validity() <= 0 {
		s.Fatal("the lease ran out: the machine is too slow for this")
	}
	if last != nil {
		s.Logf("the other client: %v", last)
	}
}

// timed returns how long call took.
func timed(call func() error) (time.Duration, error) {
	start := time.Now()
	err := call()
	return time.Since(start).Round(time.Millisecond), err
}

// One node hangs for good. No call needs it, so none may wait for it.
func hungNode(s *stage) {
	s.start(5)
	c := s.client(s.addrs())
	s.must(s.nodes[0].Pause())
	var l lease
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"Lock", func() (err error) { l, err = c.lock(s.Context(), "r"); return err }},
		{"Extend", func() error { return l.Extend(s.Context()) }},
		{"Unlock", func() error { return l.Unlock(s.Context()) }},
	} {
		took, err := timed(call.do)
		s.must(err)
		s.Logf("%s took %v", call.name, took)
		if took >= hung {
			s.saw("%s took %v, as it waited for the node that hangs", call.name, took)
		}
	}
}

// Three nodes of five are taken, so that every attempt fails. No node is broken. Many
// callers make sure that fresh connections are in use, too.
func failedAttempts(s *stage) {
	const callers, each, rounds = 16, 5, 15
	s.start(5)
	c := s.client(s.addrs())
	var resources []string
	for i := range callers {
		resources = append(resources, fmt.Sprint("r", i))
		s.take(resources[i], 0, 0, 1, 2)
	}
	for round := 1; round <= rounds; round++ {
		var wg sync.WaitGroup
		for _, resource := range resources {
			wg.Go(func() {
				for range each {
					if _, err := c.try(s.Context(), resource); err == nil {
						s.Errorf("%s: got a lock without a quorum", resource)
					}
				}
			})
		}
		wg.Wait()
		if found := s.orphans(resources, 3, 4); len(found) > 0 {
			s.saw("%d orphans after %d attempts, for another %v", len(found), round*callers*each, found[0])
			return
		}
	}
	s.Logf("no orphan after %d attempts", rounds*callers*each)
}

// Two nodes grant, two are taken and one hangs when the caller's context ends.
func deadline(s *stage) {
	s.start(5)
	c := s.client(s.addrs())
	s.take("r", 0, 2, 3)
	s.must(s.nodes[4].Pause())
	ctx, cancel := context.WithTimeout(s.Context(), 200*time.Millisecond)
	defer cancel()
	took, err := timed(func() error { _, err := c.lock(ctx, "r"); return err })
	if err == nil {
		s.Fatal("got a lock without a quorum")
	}
	s.Logf("Lock took %v: %v", took, err)
	if took >= hung {
		s.saw("Lock took %v of the 200ms it had", took)
	}
	if found := s.orphans([]string{"r"}, 0, 1); len(found) > 0 {
		s.saw("%d orphans on healthy nodes, for another %v", len(found), found)
	}
	s.must(s.nodes[4].Resume())
	if found := s.orphans([]string{"r"}, 4); len(found) > 0 {
		s.saw("%d orphan on the node that is back, for another %v", len(found), found)
	}
}

// One node gets the acquire late, after the lock was released.
func lateAcquire(by time.Duration) func(*stage) {
	return func(s *stage) {
		s.start(5)
		front := redistest.Proxied(s.TB, s.nodes[:1])[0]
		c := s.client(s.addrs(front))
		for round, played := 0, 0; played < 3; round++ {
			if round == 200 {
				s.Fatal("the node is not asked")
			}
			resource, before := fmt.Sprintf("late/%d/", round), front.Stats().Held
			front.HoldNextRequest([]byte(resource), by)
			asked := time.Now()
			l, err := c.lock(s.Context(), resource)
			s.must(err)
			// A client that fails fast may not have asked the node.
			for end := time.Now().Add(50 * time.Millisecond); front.Stats().Held == before && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			caught := front.Stats().Held > before
			front.HoldNextRequest(nil, 0)
			s.must(l.Unlock(s.Context()))
			if !caught {
				continue
			}
			played++
			time.Sleep(time.Until(asked.Add(by + 50*time.Millisecond))) // the acquire is delivered
			if found := s.orphans([]string{resource}, 0, 1, 2, 3, 4); len(found) > 0 {
				s.saw("%d orphan after %d times Lock and Unlock, for another %v", len(found), played, found[0])
				return
			}
		}
	}
}

// A lease runs out, another client gets the resource, and then the first client extends.
func lapsed(s *stage) {
	s.start(3)
	first, second := s.client(s.addrs()), s.client(s.addrs())
	l, err := first.lock(s.Context(), "r")
	s.must(err)
	other, err := second.lock(s.Context(), "r") // waits until the first lease has run out
	s.must(err)
	s.must(other.Unlock(s.Context()))
	if err := l.Extend(s.Context()); err == nil {
		s.saw("Extend was successful after another client had the resource, and gives %v", l.Validity().Round(time.Millisecond))
	} else {
		s.Logf("Extend: %v", err)
	}
}

// Three nodes of five hold a lock. One of them crashes and comes back empty. It must not
// make a quorum for another client together with the two other nodes.
func restart(s *stage) {
	s.start(5)
	first, second := s.client(s.addrs()), s.client(s.addrs())
	s.take("r", 0, 3, 4)
	l, err := first.lock(s.Context(), "r")
	s.must(err)
	s.free("r", 3, 4)
	s.must(s.nodes[2].Restart())
	s.intrude(second, "r", l)
}
