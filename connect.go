package redlock

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// This file makes a lane's connections, one after the other.

// connect opens the lane's next connection and finds out which server it leads to, and
// what time it is there, before it carries anything else.
//
// Source: ALGORITHM section 8, "Client side".
func (n *lane) connect() error {
	ctx, cancel := context.WithTimeout(n.quit, n.opt.DialTimeout)
	defer cancel()
	// The lane dials, not the client: that would log each failure, and go on
	// dialling on its own.
	conn, err := dialer(&n.opt)(ctx, n.opt.Network, n.opt.Addr)
	if err != nil {
		n.roster.lost(n.index)
		return err
	}
	opt := n.opt
	opt.Dialer = dialOnce(conn)
	client := redis.NewClient(&opt)
	found, err := n.inspect(ctx, client)
	if err != nil {
		_ = client.Close()
		_ = conn.Close() // in case the client never took it
		return err
	}
	n.audited(found)
	n.client, n.conn = client, client.Conn()
	return nil
}

// readClock asks for the node's time.
func (n *lane) readClock(ctx context.Context, conn redis.Cmdable) error {
	sent := n.moment()
	t, err := conn.Time(ctx).Result()
	if err == nil {
		n.observeClock(t.UnixMicro(), sent, n.now())
	}
	return nodeFailure(err)
}

// dialer is the caller's dialer, or one that heeds its context, with TLS too.
func dialer(o *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	switch {
	case o.Dialer != nil:
		return o.Dialer
	case o.TLSConfig != nil:
		return (&tls.Dialer{Config: o.TLSConfig}).DialContext
	}
	return redis.NewDialer(o)
}

// dialOnce is a dialer that gives out conn, and after that only connections that
// are broken: the client must not get a second one unnoticed.
func dialOnce(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	var dialed atomic.Bool
	return func(context.Context, string, string) (net.Conn, error) {
		if dialed.Swap(true) {
			return brokenConn{conn}, nil
		}
		return conn, nil
	}
}

// brokenConn fails every transfer. An error of the dialer would do the same, but the
// client logs those.
type brokenConn struct{ net.Conn }

var errBroken = errors.New("connection was closed by the node")

func (brokenConn) Read([]byte) (int, error)  { return 0, errBroken }
func (brokenConn) Write([]byte) (int, error) { return 0, errBroken }

func (n *lane) hangUp() {
	if n.client != nil {
		_ = n.conn.Close() // neither has anything to say: the connection is given up
		_ = n.client.Close()
		n.client, n.conn = nil, nil
	}
}
