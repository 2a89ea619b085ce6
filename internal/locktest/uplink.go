package locktest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/virtual"
)

// Uplink connects one Locker to the nodes. When it is cut, no data passes any more, in either
// direction, and no connection ends because of that.
type Uplink struct {
	Dead atomic.Bool
	Mute atomic.Bool // a connection on which the Locker subscribes is closed

	mu   sync.Mutex
	subs []*cutConn // connections on which the Locker has subscribed
}

// Deafen stops all data on the present subscriptions.
func (u *Uplink) Deafen() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.subs {
		c.dead.Store(true)
	}
}

// ResetSubscriptions closes the present subscriptions.
func (u *Uplink) ResetSubscriptions() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.subs {
		_ = c.Close()
	}
	u.subs = nil
}

func (u *Uplink) dialer(n *virtual.Node) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if u.Dead.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := n.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, up: u}, nil
	}
}

type cutConn struct {
	net.Conn
	up   *Uplink
	dead atomic.Bool
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
		c.up.mu.Lock()
		c.up.subs = append(c.up.subs, c)
		c.up.mu.Unlock()
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
		masters[i] = &redis.Options{Addr: n.Addr(), Dialer: u.dialer(n)}
	}
	l, err := redlock.NewFromOptions(masters, opts...)
	if err != nil {
		b.T.Fatalf("NewFromOptions: got %v, want no error", err)
	}
	b.T.Cleanup(func() { _ = l.Close() })
	b.Vouch()
	return l
}
