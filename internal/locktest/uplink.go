package locktest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/virtual"
)

// Uplink connects one Locker to the nodes. When it is cut, no data passes any more, in either
// direction, and no connection ends because of that.
type Uplink struct {
	Dead   atomic.Bool
	Mute   atomic.Bool     // a connection on which the Locker subscribes is closed
	Behind []*virtual.Node // what the names of the nodes lead to, if not to these nodes
	DB     []int           // the number of the database at each

	mu    sync.Mutex
	conns []*cutConn
	lost  []string // names that lead nowhere
}

// Lose breaks the connections to the node of a name, and allows no others.
func (u *Uplink) Lose(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lost = append(u.lost, name)
	for _, c := range u.conns {
		if c.name == name {
			_ = c.Close()
		}
	}
}

// Reach ends what Lose began.
func (u *Uplink) Reach(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lost = slices.DeleteFunc(u.lost, func(n string) bool { return n == name })
}

func (u *Uplink) isLost(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Contains(u.lost, name)
}

// Deafen stops all data on the present subscriptions.
func (u *Uplink) Deafen() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		c.dead.Store(c.sub.Load())
	}
}

// ResetSubscriptions closes the present subscriptions.
func (u *Uplink) ResetSubscriptions() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		if c.sub.Load() {
			_ = c.Close()
		}
	}
}

// Lead makes the name at an index lead to another node.
func (u *Uplink) Lead(index int, name string, n *virtual.Node) {
	u.Lose(name)
	u.mu.Lock()
	u.Behind[index] = n
	u.mu.Unlock()
	u.Reach(name)
}

// dialer dials the node at an index, or the one to which its name leads.
func (u *Uplink) dialer(index int, n *virtual.Node) func(context.Context, string, string) (net.Conn, error) {
	name := n.Addr()
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if u.Dead.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if u.isLost(name) {
			return nil, errors.New("no route to host")
		}
		u.mu.Lock()
		if u.Behind != nil {
			n = u.Behind[index]
		}
		u.mu.Unlock()
		conn, err := n.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &cutConn{Conn: conn, up: u, name: name}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.conns = append(u.conns, c)
		return c, nil
	}
}

type cutConn struct {
	net.Conn
	up   *Uplink
	name string
	dead atomic.Bool
	sub  atomic.Bool // the Locker has subscribed on it
}

func (c *cutConn) isDead() bool { return c.dead.Load() || c.up.Dead.Load() }

func (c *cutConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.isDead() {
			return n, err
		}
	}
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.isDead() {
		return len(p), nil
	}
	if bytes.Contains(p, []byte("\r\nsubscribe\r\n")) {
		if c.up.Mute.Load() {
			_ = c.Close()
			return 0, net.ErrClosed
		}
		c.sub.Store(true)
	}
	return c.Conn.Write(p)
}

// LockerBy returns a Locker that has been warmed up, with an uplink of its own.
func LockerBy(b *Bubble, u *Uplink, opts ...redlock.Option) *redlock.Locker {
	b.T.Helper()
	l := ColdLockerBy(b, u, opts...)
	b.Warm(l)
	return l
}

// ColdLockerBy is LockerBy, without warming up.
func ColdLockerBy(b *Bubble, u *Uplink, opts ...redlock.Option) *redlock.Locker {
	b.T.Helper()
	masters := make([]*redis.Options, len(b.Nodes))
	for i, n := range b.Nodes {
		masters[i] = &redis.Options{Addr: n.Addr()}
		if u.DB != nil {
			masters[i].DB = u.DB[i]
		}
		masters[i].Dialer = u.dialer(i, n)
	}
	l, err := redlock.NewFromOptions(masters, opts...)
	if err != nil {
		b.T.Fatalf("NewFromOptions: got %v, want no error", err)
	}
	b.T.Cleanup(func() { _ = l.Close() })
	b.Vouch()
	return l
}
