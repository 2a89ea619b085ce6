package servers_test

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// liar is a proxy in front of a master. It can replace a reply by other data.
type liar struct {
	net.Listener
	master string
	lie    atomic.Pointer[string]
	told   atomic.Int64
}

func newLiar(t testing.TB, master string) *liar {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	locktest.Must(t, err)
	l := &liar{Listener: listener, master: master}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go l.serve(client)
		}
	}()
	return l
}

func (l *liar) serve(client net.Conn) {
	server, err := net.Dial("tcp", l.master)
	if err != nil {
		_ = client.Close()
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	defer client.Close()
	defer server.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		reply := buf[:n]
		if lie := l.lie.Load(); lie != nil {
			reply = []byte(*lie)
			l.told.Add(1)
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// A master that violates the protocol in the handshake, in a reply or in a subscription is down. The
// process and the other masters go on.
//
// Source: ALGORITHM section 8, "Client side".
func TestMasterThatTalksGarbage(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 3)
	liars := make([]*liar, 3)
	addrs := make([]string, 3)
	for i, addr := range c.Addrs {
		liars[i] = newLiar(t, addr)
		addrs[i] = liars[i].Addr().String()
	}
	for name, lie := range map[string]string{
		"a length near 2^63":      "$9223372036854775800\r\n",
		"a length of terabytes":   "$2147483647000\r\n",
		"an array of that length": "*9223372036854775807\r\n",
		"no protocol":             "HTTP/1.1 400 Bad Request\r\n\r\n",
		"nothing but bytes":       string(make([]byte, 1<<15)),
		"another reply":           "+OK\r\n",
	} {
		t.Run(name, func(t *redistest.T) {
			l := locktest.Open(t, addrs, redlock.WithLogger(nil), redlock.WithMasterTimeout(500*time.Millisecond))
			c.Warm(t, l)
			holder := locktest.Open(t, c.Addrs, redlock.WithLogger(nil))
			lease := locktest.Lock(t, holder, "waited for")
			got := make(chan error, 1)
			go func() { // it waits, with a subscription
				waited, err := l.Lock(t.Context(), "waited for")
				if err == nil {
					err = waited.Unlock(t.Context())
				}
				got <- err
			}()
			redistest.Eventually(t, 5*time.Second, func() bool { return l.Stats().Waiting == 1 }, "a caller waits")
			liars[1].told.Store(0)
			liars[1].lie.Store(&lie)
			for range 5 {
				locktest.Unlock(t, locktest.Lock(t, l, "r"))
			}
			redistest.Eventually(t, 10*time.Second, func() bool { return liars[1].told.Load() > 3 }, "it has talked garbage")
			locktest.Unlock(t, lease)
			locktest.Must(t, <-got)
			for i := range liars { // and for all masters
				liars[i].lie.Store(&lie)
			}
			if _, err := l.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrNoQuorum) {
				t.Errorf("TryLock: got %v, want ErrNoQuorum", err)
			}
			for i := range liars {
				liars[i].lie.Store(nil)
			}
			redistest.Eventually(t, 10*time.Second, func() bool {
				lease, err := l.TryLock(t.Context(), "r")
				if err == nil {
					_ = lease.Unlock(t.Context())
				}
				return err == nil
			}, "all is well again")
		})
	}
}
