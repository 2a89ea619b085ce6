package servers_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// nameServer answers every question with 127.0.0.1, each after a time.
func nameServer(t *testing.T, after time.Duration) string {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	locktest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for {
			q := make([]byte, 512)
			k, from, err := conn.ReadFrom(q)
			if err != nil {
				return
			}
			end := 12
			for q[end] != 0 {
				end += int(q[end]) + 1
			}
			end += 5 // of the question
			isIPv4 := q[end-3] == 1
			reply := append([]byte(nil), q[:min(end, k)]...)
			reply[2], reply[3] = 0x81, 0x80
			copy(reply[6:12], make([]byte, 6))
			if isIPv4 {
				reply[7] = 1
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
			}
			time.AfterFunc(after, func() { _, _ = conn.WriteTo(reply, from) })
		}
	}()
	return conn.LocalAddr().String()
}

// A name server that takes longer than a connection may take does not keep a client from its masters, and the error of a
// call says that it is waited for.
func TestSlowNameServer(outer *testing.T) {
	t := redistest.Timed(outer)
	server, before := nameServer(outer, 1500*time.Millisecond), net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server)
	}}
	outer.Cleanup(func() { net.DefaultResolver = before })
	var names []string
	for i, m := range redistest.Masters(t, 3) {
		_, port, err := net.SplitHostPort(m.Addr())
		locktest.Must(t, err)
		names = append(names, string(rune('a'+i))+".masters.test.:"+port)
	}
	l, err := redlock.New(names, redlock.WithoutRestartGuard())
	locktest.Must(t, err)
	defer l.Close()
	if _, err := l.TryLock(t.Context(), "r"); err == nil || !strings.Contains(err.Error(), "name server") {
		t.Errorf("the first TryLock: got %v, want the name server named", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := l.Lock(ctx, "r")
	locktest.Must(t, err)
	locktest.Must(t, lease.Unlock(ctx))
}
