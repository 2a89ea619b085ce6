package chaos

import (
	"bytes"
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

// This file makes processes unequal: no master can call some of them.

// muted returns options by which a client cannot subscribe: the connection on which it does is
// closed.
func muted(list []*redis.Options) []*redis.Options {
	quiet := make([]*redis.Options, len(list))
	for i, o := range list {
		opt, dial := *o, o.Dialer
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return muteConn{conn}, nil
		}
		quiet[i] = &opt
	}
	return quiet
}

type muteConn struct{ net.Conn }

func (c muteConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\r\nsubscribe\r\n")) {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}
