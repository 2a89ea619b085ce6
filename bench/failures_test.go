package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

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

// The claims of the README's table about redsync. If one of the scenarios does not show its failures after an update, the table
// is wrong. What this library does in them is tested beside it: test/lock has each.
func TestFailures(outer *testing.T) {
	t := redistest.Timed(outer)
	failFast := redsync.WithFailFast(true)
	for _, s := range []scenario{
		{name: "one node of five hangs", conns: redis.Options{ReadTimeout: hung}, play: hungNode, fails: 3},
		{name: "deadline while a node hangs", conns: redis.Options{ReadTimeout: hung}, play: deadline, fails: 3},
		{name: "acquire comes after the release", redsync: []redsync.Option{failFast}, play: lateAcquire, fails: 1},
		{name: "node restarts empty under a bare quorum", play: restart, fails: 1},
	} {
		t.Run(s.name, func(t *redistest.T) {
			st := &stage{TB: t, of: s}
			s.play(st)
			if len(st.seen) != s.fails {
				t.Errorf("got %d failures %q, want %d", len(st.seen), st.seen, s.fails)
			}
			t.Log(strings.Join(st.seen, "; "))
		})
	}
}

// scenario is a sequence of events, and how redsync is set up for it.
type scenario struct {
	name    string
	conns   redis.Options
	redsync []redsync.Option
	play    func(*stage)
	fails   int // number of different failures
}

// stage plays a scenario.
type stage struct {
	testing.TB
	of    scenario
	nodes []*masters.Process
	peek  []*redis.Client // one for each node, bypassing all proxies
	warm  int             // warm-ups so far
	seen  []string        // the failures
}

// client is one process that uses redsync.
type client struct{ *contender.Redsync }

func (c client) lock(ctx context.Context, resource string) (contender.RedsyncLease, error) {
	m := c.Mutex(resource)
	return m, m.LockContext(ctx)
}

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
	c := client{contender.NewRedsync(addrs, s.of.conns, append([]redsync.Option{redsync.WithExpiry(30 * time.Second)}, s.of.redsync...)...)}
	s.Cleanup(func() { _ = c.Close() })
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

// saw records a failure.
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
	var l contender.RedsyncLease
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
func lateAcquire(s *stage) {
	const by = 300 * time.Millisecond
	s.start(5)
	front := redistest.Proxied(s.TB, s.nodes[:1])[0]
	c := s.client(s.addrs(front))
	for round := range 200 {
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
		time.Sleep(time.Until(asked.Add(by + 50*time.Millisecond))) // the acquire is delivered
		if found := s.orphans([]string{resource}, 0, 1, 2, 3, 4); len(found) > 0 {
			s.saw("%d orphan after Lock and Unlock, for another %v", len(found), found[0])
			return
		}
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
	for range 20 { // more than once, as the client may have to reconnect
		if other := second.Mutex("r"); other.TryLockContext(s.Context()) == nil {
			s.saw("two holders, one for another %v and one for %v", time.Until(l.Until()), time.Until(other.Until()))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
