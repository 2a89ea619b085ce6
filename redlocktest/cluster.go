package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/virtual"
)

// Cluster has independent masters, which know nothing of each other. [Start] makes a Cluster. It
// ends with the test.
type Cluster struct {
	t       testing.TB
	masters []*Master
	started time.Time

	mu      sync.Mutex
	dialing int           // dials under way
	open    map[*conn]any // connections that clients have
}

// nets counts the clusters: each has a network of its own.
var nets atomic.Uint32

// Start makes n masters without data. They have their votes, so that the first lock does not
// wait. The masters, and the Lockers of [Cluster.Locker], end with the test. The test fails if n
// is less than 1 or more than 254, or if another Locker for the masters is still open at its end.
//
// Call Start inside a testing/synctest bubble if the test has one: the masters then live in the
// time of the bubble.
func Start(t testing.TB, n int) *Cluster {
	t.Helper()
	const perNet = 254
	if n < 1 || n > perNet {
		t.Fatalf("redlocktest: Start(t, %d): there must be from 1 to %d masters", n, perNet)
	}
	net := nets.Add(1) - 1
	c := &Cluster{t: t, started: time.Now(), open: make(map[*conn]any)}
	for i := range n {
		m := &Master{t: t, name: fmt.Sprintf("master %d", i), node: virtual.New(fmt.Sprintf("10.%d.%d.%d:6379", net>>8&255, net&255, i+1))}
		m.vouch()
		c.masters = append(c.masters, m)
	}
	t.Cleanup(c.close)
	return c
}

// Masters returns all masters, in the order of [Cluster.Options].
func (c *Cluster) Masters() []*Master { return slices.Clone(c.masters) }

// Options returns the argument for [redlock.NewFromOptions], for a program that makes its own
// Locker. The program must close that Locker before the test ends. Inside a bubble its clock is that of the
// bubble, unless the program gives another one.
//
// The masters have votes under the default key prefix in database 0. With another
// [redlock.WithKeyPrefix] or database, call Bootstrap of package admin once.
func (c *Cluster) Options() []*redis.Options {
	list := make([]*redis.Options, len(c.masters))
	for i, m := range c.masters {
		list[i] = &redis.Options{Addr: m.Addr(), Dialer: c.dialer(m)}
	}
	return list
}

// Locker returns a new Locker for all masters, which stands for another process. Its warnings go to the test's output, unless opts have another logger. It
// is closed when the test ends. Options that cannot work fail the test.
func (c *Cluster) Locker(opts ...redlock.Option) *redlock.Locker {
	c.t.Helper()
	if i := slices.Index(opts, nil); i >= 0 { // New would count the options below
		c.t.Fatalf("redlocktest: Locker: option %d is nil", i+1)
	}
	logger := redlock.WithLogger(slog.New(slog.NewTextHandler(c.t.Output(), nil)))
	l, err := redlock.NewFromOptions(c.Options(), append([]redlock.Option{logger}, opts...)...)
	if err != nil {
		c.t.Fatalf("redlocktest: Locker: %v", err)
	}
	c.t.Cleanup(func() { _ = l.Close() }) // fails if the test has left masters down
	return l
}

// Holder returns the token (see [redlock.Lease.Token]) whose key is on a quorum of the masters, or
// "" if there is none. It is for exclusive leases: readers have no such key of their own. No fault
// hides the keys: a master that hangs, or cannot be reached, has its keys. A master that was killed
// has none. Holder uses the default key prefix and database 0; for others use Inspect of package admin.
func (c *Cluster) Holder(resource string) string {
	votes := make(map[string]int)
	for _, m := range c.masters {
		if token := m.Token(resource); token != "" {
			votes[token]++
		}
	}
	for token, n := range votes {
		if n > len(c.masters)/2 {
			return token
		}
	}
	return ""
}

// dialer connects to a master.
func (c *Cluster) dialer(m *Master) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if time.Now().Before(c.started.Add(-time.Hour)) { // a bubble's time begins in the year 2000
			c.t.Error("redlocktest: the masters are used inside a synctest bubble, but Start was called outside of it")
			return nil, errors.New("redlocktest: made outside of the bubble")
		}
		c.mu.Lock()
		c.dialing++
		c.mu.Unlock()
		inner, err := m.node.Dial(ctx, network, addr)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dialing--
		if err != nil {
			return nil, err
		}
		connection := &conn{Conn: inner, of: c}
		c.open[connection] = nil
		return connection, nil
	}
}

// conn is a connection that a client has until it closes it.
type conn struct {
	net.Conn
	of *Cluster
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close ends the masters. It runs after the Lockers have been closed.
func (c *Cluster) close() {
	left := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.dialing + len(c.open)
	}
	for patience := time.Now().Add(closeWithin); left() > 0 && time.Now().Before(patience); {
		time.Sleep(time.Millisecond)
	}
	if n := left(); n > 0 {
		c.t.Errorf("redlocktest: %d connections to the masters are in use at the end of the test: close every Locker before", n)
	}
	for _, m := range c.masters {
		m.node.Close()
	}
}

// closeWithin is how long a Locker that has been closed may need to let go.
const closeWithin = 2 * time.Second
