package locktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// Cluster has N real masters, and a client for each to look at its keys.
type Cluster struct {
	Procs []*masters.Process
	Nodes []*redis.Client
	Addrs []string
}

// Start returns n masters that have their votes.
func Start(t testing.TB, n int) *Cluster {
	t.Helper()
	return NewCluster(t, redistest.Masters(t, n))
}

// NewCluster returns new masters that have their votes.
func NewCluster(t testing.TB, procs []*masters.Process) *Cluster {
	t.Helper()
	c := clusterOf(t, procs)
	Bootstrap(t, c.Addrs)
	Vouch(t, c.Nodes...)
	return c
}

// StartNew returns n masters that have no vote.
func StartNew(t testing.TB, n int, args ...string) *Cluster {
	t.Helper()
	return clusterOf(t, redistest.Masters(t, n, args...))
}

// StartFor returns n masters that have their votes for clients with that largest TTL.
func StartFor(t testing.TB, maxTTL time.Duration, n int, args ...string) *Cluster {
	t.Helper()
	c := StartNew(t, n, args...)
	ttl := min(maxTTL, 10*time.Second)
	Bootstrap(t, c.Addrs, redlock.WithTTL(ttl), redlock.WithMaxTTL(maxTTL), redlock.WithMasterTimeout(ttl/4))
	return c
}

func clusterOf(t testing.TB, procs []*masters.Process) *Cluster {
	c := &Cluster{Procs: procs, Addrs: redistest.Addrs(procs)}
	for _, a := range c.Addrs {
		c.Nodes = append(c.Nodes, redistest.Client(t, a))
	}
	return c
}

// Holders returns the value of key on each node; "" if the node lacks it or is down.
func (c *Cluster) Holders(key string) []string {
	var held []string
	for _, n := range c.Nodes {
		held = append(held, n.Get(context.Background(), key).Val())
	}
	return held
}

// Count returns on how many nodes key is set.
func (c *Cluster) Count(key string) int {
	n := 0
	for _, v := range c.Holders(key) {
		if v != "" {
			n++
		}
	}
	return n
}

// Empty waits until no node has key any more.
func (c *Cluster) Empty(t testing.TB, key string) {
	t.Helper()
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count(key) == 0 }, "no node holds "+key)
}

// Restart kills a master and starts it again, with the data that is on its disk.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	Must(t, c.Procs[i].Restart())
	redistest.Eventually(t, 10*time.Second, func() bool { return c.Nodes[i].Ping(context.Background()).Err() == nil }, "the node answers")
}

// Fill waits until all masters hold the key of a lease that is not shared: under load an
// acquire can miss one, or find the key of an attempt before it.
func (c *Cluster) Fill(t testing.TB, lease *redlock.Lease) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, func() bool {
		_ = lease.Extend(t.Context()) // not always in time
		for _, v := range c.Holders(redlock.DefaultKeyPrefix + lease.Resource()) {
			if !strings.HasPrefix(v, lease.Token()+"|") {
				return false
			}
		}
		return true
	}, "all nodes hold the key")
}

// Warm makes the Locker connect to all nodes.
func (c *Cluster) Warm(t testing.TB, l *redlock.Locker) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, func() bool { // a quarantine may have to end
		lease := Lock(t, l, "warm")
		n := c.Count("redlock:warm")
		Unlock(t, lease)
		return n == len(c.Nodes)
	}, "all nodes take part")
	c.Empty(t, "redlock:warm")
}

// ReachAll makes each Locker reach all masters.
func ReachAll(t testing.TB, lockers ...*redlock.Locker) {
	t.Helper()
	for _, l := range lockers {
		Must(t, l.Do(t.Context(), "reach", func(context.Context, *redlock.Lease) error { return nil }))
		redistest.Eventually(t, 5*time.Second, func() bool {
			return !slices.ContainsFunc(l.Stats().Masters, func(n redlock.MasterStats) bool { return n.State != redlock.MasterUp })
		}, "all masters are reached")
	}
}

// Lock takes a lease, and waits for it for up to 20 s.
func Lock(t testing.TB, l *redlock.Locker, resource string, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := l.Lock(ctx, resource, opts...)
	Must(t, err)
	return lease
}

// Unlock gives a lease back. On a busy machine no quorum may confirm that in time; then a second
// call waits for the releases that are repeated.
func Unlock(t testing.TB, lease *redlock.Lease) {
	t.Helper()
	err := lease.Unlock(t.Context())
	if errors.Is(err, redlock.ErrNoQuorum) {
		err = lease.Unlock(t.Context())
	}
	Must(t, err)
}

// Proxied is a cluster that the Locker under test reaches through proxies.
type Proxied struct {
	*Cluster
	Proxies []*masters.Proxy
	Via     []string
}

// StartProxied returns n masters that have their votes, each behind a proxy.
func StartProxied(t testing.TB, n int) *Proxied {
	c := Start(t, n)
	p := &Proxied{Cluster: c, Proxies: redistest.Proxied(t, c.Procs)}
	p.Via = redistest.Addrs(p.Proxies)
	return p
}

// Set makes some of the proxies, or all of them, fail in that way.
func (p *Proxied) Set(t testing.TB, f masters.Fault, which ...int) {
	t.Helper()
	if len(which) == 0 {
		for i := range p.Proxies {
			which = append(which, i)
		}
	}
	for _, i := range which {
		Must(t, p.Proxies[i].Set(f))
	}
}

// OnDisk makes masters write everything to disk before they answer. With "everysec" they defer
// that while another write is under way, and a kill loses it.
var OnDisk = []string{"--appendonly", "yes", "--appendfsync", "always"}
