package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/virtual"
)

// virtualCluster has fakes in a bubble.
type virtualCluster struct {
	nodes []*virtualNode
	now   func() time.Duration
}

// StartVirtual makes n fakes. It must be called inside a testing/synctest bubble; now is the clock
// of the history.
func StartVirtual(n int, now func() time.Duration) Cluster {
	c := &virtualCluster{now: now}
	for i := range n {
		node := virtual.New(fmt.Sprintf("10.0.0.%d:6379", i+1))
		c.nodes = append(c.nodes, &virtualNode{Node: node, index: i, now: now})
	}
	return c
}

func (c *virtualCluster) Tier() Tier { return Virtual }

func (c *virtualCluster) Nodes() []Node {
	list := make([]Node, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n
	}
	return list
}

func (c *virtualCluster) Masters() []*redis.Options {
	list := make([]*redis.Options, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = &redis.Options{Addr: n.Addr(), Dialer: n.Dial, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10} // the default is too large for so many connections
	}
	return list
}

// Close ends the fakes, and waits for pending dials.
func (c *virtualCluster) Close() error {
	for _, n := range c.nodes {
		n.Node.Close()
	}
	time.Sleep(10 * time.Second)
	return nil
}

// virtualNode makes a fake a node.
type virtualNode struct {
	*virtual.Node
	index int
	now   func() time.Duration
	mark  []entry
	ppm   int
	away  time.Duration
}

// inside calls do with the server, if the server runs.
func (n *virtualNode) inside(do func(r *miniredis.Miniredis, clock time.Time)) {
	if n.Up() {
		n.Inside(do)
	}
}

func (n *virtualNode) Kill() error   { n.Node.Kill(); return nil }
func (n *virtualNode) Pause() error  { n.Hang(); return nil }
func (n *virtualNode) Resume() error { n.Node.Resume(); return nil }

func (n *virtualNode) Latency(request, reply time.Duration) {
	n.Node.Latency(request+n.away/2, reply+n.away/2)
}
func (n *virtualNode) Away(trip time.Duration) { n.away = trip; n.Latency(0, 0) }

func (n *virtualNode) Net(f masters.Fault) error { n.Node.Net(f); return nil }
func (n *virtualNode) Drip(time.Duration)        {}

func (n *virtualNode) Restart(d Data) error {
	switch d {
	case Kept:
		n.Node.Restart()
	case Empty:
		n.RestartEmpty()
	case Stale:
		n.RestartEmpty()
		n.inside(func(r *miniredis.Miniredis, _ time.Time) { load(r, n.mark) })
	}
	return nil
}

// Replace implements [Node]: a new run, with or without the data.
func (n *virtualNode) Replace(d Data) error { return n.Restart(d) }

func (n *virtualNode) Mark() error {
	n.inside(func(r *miniredis.Miniredis, _ time.Time) { n.mark = dump(r) })
	return nil
}

func (n *virtualNode) Do(_ context.Context, args ...any) error {
	switch what := strings.ToLower(fmt.Sprint(args...)); {
	case strings.HasPrefix(what, "flushall"):
		n.inside(func(r *miniredis.Miniredis, _ time.Time) { r.FlushAll() })
		return nil
	case strings.HasPrefix(what, "script"):
		n.ForgetScripts()
		return nil
	}
	return ErrUnable
}

func (n *virtualNode) Step(d time.Duration) error {
	n.RunClock(1+float64(n.ppm)/1e6, d)
	return nil
}

func (n *virtualNode) Drift(ppm int) error {
	n.ppm = ppm
	n.RunClock(1+float64(ppm)/1e6, 0)
	return nil
}

// entry is a key of a server, and its expiry by the server's clock.
type entry struct {
	key, value string
	fields     map[string]string
	ttl        time.Duration
	at         time.Time
}

func dump(r *miniredis.Miniredis) (list []entry) {
	for _, k := range r.Keys() {
		e := entry{key: k, ttl: r.TTL(k), at: time.Now()}
		switch r.Type(k) {
		case "string":
			e.value, _ = r.Get(k)
		case "hash":
			e.fields = make(map[string]string)
			fields, _ := r.HKeys(k)
			for _, f := range fields {
				e.fields[f] = r.HGet(k, f)
			}
		default:
			continue
		}
		list = append(list, e)
	}
	return list
}

func load(r *miniredis.Miniredis, list []entry) {
	for _, e := range list {
		left := e.ttl - time.Since(e.at)
		if e.ttl > 0 && left <= 0 {
			continue
		}
		for f, v := range e.fields {
			r.HSet(e.key, f, v)
		}
		if e.fields == nil {
			_ = r.Set(e.key, e.value)
		}
		if e.ttl > 0 {
			r.SetTTL(e.key, left)
		}
	}
}

// Look implements [Node].
func (n *virtualNode) Look(_ context.Context, prefix string, resources []string, rest bool) history.Look {
	l := history.Look{Node: n.index, At: n.now(), Done: n.now(), Keys: make(map[string]history.Key)}
	n.inside(func(r *miniredis.Miniredis, clock time.Time) {
		l.Up, l.Run = true, n.RunID()
		marker := make(map[string]string)
		for _, f := range []string{"born", "maxttl"} {
			marker[f] = r.HGet(prefix+"~guard", f)
		}
		quarantine(&l, marker, clock)
		for _, res := range resources {
			k, _ := r.Get(prefix + res)
			c, _ := r.Get(prefix + res + "~fence")
			readers, _ := r.SortedSet(prefix + res + "~readers")
			l.Keys[res] = lockKey(k, c, readers, clock)
		}
		if rest {
			l.Rest = unknownKeys(prefix, slices.DeleteFunc(r.Keys(), func(k string) bool { return !strings.HasPrefix(k, prefix) }))
		}
	})
	if rest && l.Up {
		l.Conns = slices.Repeat([]string{"of a client"}, n.Conns())
	}
	return l
}
