package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/masters"
)

// box is the environment of a real server: a process or a container.
type box interface {
	Addr() string
	Kill() error
	Pause() error
	Resume() error
	Close() error

	restart(Data) error
	marked(*redis.Client) error
	another(context.Context) (box, error)
	step(time.Duration) error
	drift(ppm int) error
}

// realCluster has servers behind proxies.
type realCluster struct {
	tier  Tier
	nodes []*realNode
}

// startReal starts n servers, each behind a proxy.
func startReal(tier Tier, n int, start func() (box, error)) (Cluster, error) {
	c := &realCluster{tier: tier, nodes: make([]*realNode, n)}
	var g errgroup.Group
	for i := range c.nodes {
		g.Go(func() error {
			b, err := start()
			if err != nil {
				return err
			}
			c.nodes[i], err = newRealNode(i, b)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *realCluster) Tier() Tier { return c.tier }

func (c *realCluster) Nodes() []Node {
	list := make([]Node, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n
	}
	return list
}

func (c *realCluster) Masters() []*redis.Options {
	list := make([]*redis.Options, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = &redis.Options{Addr: n.proxy.Addr()}
	}
	return list
}

func (c *realCluster) Close() error {
	var g errgroup.Group
	for _, n := range c.nodes {
		if n != nil {
			g.Go(n.close)
		}
	}
	return g.Wait()
}

// realNode is one server behind its proxy.
type realNode struct {
	index int
	proxy *masters.Proxy
	away  time.Duration // set before any client connects

	mu    sync.RWMutex // guards the fields below, which change when the server is replaced
	box   box
	admin *redis.Client
}

func newRealNode(index int, b box) (*realNode, error) {
	proxy, err := masters.NewProxy(b.Addr())
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &realNode{index: index, proxy: proxy, box: b, admin: adminOf(b.Addr())}, nil
}

// adminName distinguishes our own connections from those of clients.
const adminName = "chaos-admin"

// adminOf returns a client that bypasses the proxy. It keeps one connection open, so that
// it stays connected where maxclients is low.
func adminOf(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MaxRetries: 1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second,
		ContextTimeoutEnabled: true, DisableIdentity: true, ClientName: adminName, Dialer: dialAdmin,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// dialAdmin names a connection at once: a pool that gets it too late for the call that asked may
// keep it without having said anything. A server that refuses, for example in a script, is asked
// again by the client.
func dialAdmin(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, err = fmt.Fprintf(conn, "CLIENT SETNAME %s\r\n", adminName)
	for reply := []byte{0}; err == nil && reply[0] != '\n'; {
		_, err = conn.Read(reply)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, conn.SetDeadline(time.Time{})
}

func (n *realNode) close() error {
	n.proxy.Close()
	return errors.Join(n.admin.Close(), n.box.Close())
}

func (n *realNode) server() (box, *redis.Client) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.box, n.admin
}

func (n *realNode) Kill() error          { b, _ := n.server(); return b.Kill() }
func (n *realNode) Restart(d Data) error { b, _ := n.server(); return b.restart(d) }
func (n *realNode) Pause() error         { b, _ := n.server(); return b.Pause() }
func (n *realNode) Resume() error        { b, _ := n.server(); return b.Resume() }
func (n *realNode) Mark() error          { b, admin := n.server(); return b.marked(admin) }

func (n *realNode) Step(d time.Duration) error { b, _ := n.server(); return b.step(d) }
func (n *realNode) Drift(ppm int) error        { b, _ := n.server(); return b.drift(ppm) }

func (n *realNode) Net(f masters.Fault) error { return n.proxy.Set(f) }
func (n *realNode) Latency(request, reply time.Duration) {
	n.proxy.Latency(request+n.away/2, reply+n.away/2)
}
func (n *realNode) Away(trip time.Duration)    { n.away = trip; n.Latency(0, 0) }
func (n *realNode) Drip(perByte time.Duration) { n.proxy.Drip(perByte) }
func (n *realNode) Reset()                     { n.proxy.ResetAll() }
func (n *realNode) Do(ctx context.Context, a ...any) error {
	_, admin := n.server()
	for patience := time.Now().Add(2 * time.Second); ; {
		err := admin.Do(ctx, a...).Err()
		if !errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil || time.Now().After(patience) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // the port of a recreated container is published a little later
	}
}

// Replace implements [Node].
func (n *realNode) Replace(d Data) error {
	old, oldAdmin := n.server()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	next, err := old.another(ctx)
	if err != nil {
		return err
	}
	admin := adminOf(next.Addr())
	if d == Kept {
		err = follow(ctx, admin, old.Addr())
	}
	if err == nil {
		err = n.proxy.Retarget(next.Addr())
	}
	if err != nil {
		return errors.Join(err, admin.Close(), next.Close())
	}
	n.mu.Lock()
	n.box, n.admin = next, admin
	n.mu.Unlock()
	return errors.Join(oldAdmin.Close(), old.Close())
}

// follow makes a server a replica of another, and a master again once it has all data.
func follow(ctx context.Context, admin *redis.Client, of string) error {
	host, port, err := net.SplitHostPort(of)
	if err != nil {
		return err
	}
	if err := admin.Do(ctx, "replicaof", host, port).Err(); err != nil {
		return err
	}
	for {
		info, err := admin.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "master_link_status:up") {
			return admin.Do(ctx, "replicaof", "no", "one").Err()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("replica of %s: %w", of, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Look implements [Node].
func (n *realNode) Look(ctx context.Context, prefix string, resources []string, rest bool) history.Look {
	_, admin := n.server()
	l := history.Look{Node: n.index, At: Now(), Keys: make(map[string]history.Key)}
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var clock *redis.TimeCmd
	var marker *redis.MapStringStringCmd
	keys, counters := make([]*redis.StringCmd, len(resources)), make([]*redis.StringCmd, len(resources))
	readers := make([]*redis.ZSliceCmd, len(resources))
	var others *redis.StringSliceCmd
	var clients *redis.StringCmd
	_, err := admin.TxPipelined(ctx, func(p redis.Pipeliner) error {
		clock, marker = p.Time(ctx), p.HGetAll(ctx, prefix+"~guard")
		for i, r := range resources {
			keys[i], counters[i] = p.Get(ctx, prefix+r), p.Get(ctx, prefix+r+"~fence")
			readers[i] = p.ZRangeWithScores(ctx, prefix+r+"~readers", 0, -1)
		}
		if rest {
			others, clients = p.Keys(ctx, prefix+"*"), p.ClientList(ctx)
		}
		return nil
	})
	l.Done = Now()
	if err != nil && !errors.Is(err, redis.Nil) {
		return l
	}
	l.Up, l.Run = true, marker.Val()["run"]
	quarantine(&l, marker.Val(), clock.Val())
	for i, r := range resources {
		ends := make(map[string]float64)
		for _, z := range readers[i].Val() {
			ends[z.Member.(string)] = z.Score
		}
		l.Keys[r] = lockKey(keys[i].Val(), counters[i].Val(), ends, clock.Val())
	}
	if rest {
		l.Rest = unknownKeys(prefix, others.Val())
		for line := range strings.Lines(clients.Val()) {
			if !strings.Contains(line, " name="+adminName+" ") {
				l.Conns = append(l.Conns, strings.TrimSpace(line))
			}
		}
	}
	return l
}

// quarantine fills in what the marker says of the quarantine.
func quarantine(l *history.Look, marker map[string]string, clock time.Time) {
	born, err := strconv.ParseInt(marker["born"], 10, 64)
	if err != nil && marker["born"] != "" { // the quarantine has not begun
		born = clock.UnixMilli()
	}
	longest, _ := strconv.ParseFloat(marker["maxttl"], 64)
	whole := int64(math.Ceil(longest*(1+2*redlock.DefaultDrift))) + 100
	age := clock.UnixMilli() - born
	l.Born = born
	l.Left = time.Duration(max(0, min(whole-age, whole))) * time.Millisecond
}

// sign is the value of a key that readers have.
const sign = "~readers|0"

// lockKey returns what a node has of a lock. readers has the end of each reader's life, in ms.
func lockKey(value, counter string, readers map[string]float64, clock time.Time) (k history.Key) {
	id, c, _ := strings.Cut(value, "|")
	k.ID = id
	if value == sign {
		k.ID = ""
		for id, ends := range readers {
			if ends > float64(clock.UnixMilli()) {
				k.ID, k.Readers = sign, append(k.Readers, id)
			}
		}
	}
	k.C, _ = strconv.ParseInt(c, 10, 64)
	k.Counter, _ = strconv.ParseInt(counter, 10, 64)
	return k
}

// unknownKeys returns the keys that should not exist when nothing is locked.
func unknownKeys(prefix string, all []string) (list []string) {
	for _, k := range all {
		if !strings.HasSuffix(k, "~fence") && !strings.HasSuffix(k, "~adopted") && k != prefix+"~guard" {
			list = append(list, k)
		}
	}
	return list
}
