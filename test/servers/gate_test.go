package servers_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// trouble names the fault that a gate injects into connections.
type trouble int

const (
	well trouble = iota
	refuses
	hangsAtDial
	hangsInTLS // without TLS there is no such case
	hangsAfter // the dial, and the TLS handshake if there is one
	answersError
	closes
	troubles
)

func (tr trouble) String() string {
	return [...]string{"well", "refuses", "hangs at dial", "hangs in the TLS handshake", "hangs after it", "answers an error", "closes at once"}[tr]
}

// gate stands in front of a real server. In trouble it ends the connections that are there.
type gate struct {
	t        testing.TB
	network  string
	addr     string
	upstream string      // of the same network
	tls      *tls.Config // nil if the server has no TLS; the gate needs it to answer by itself

	mu    sync.Mutex
	now   trouble
	end   io.Closer // of the listener
	conns map[net.Conn]bool
	met   int             // connections accepted in this trouble
	local map[string]bool // addresses from which the server sees the clients
}

func newGate(t testing.TB, network, listen, upstream string, config *tls.Config) *gate {
	t.Helper()
	g := &gate{t: t, network: network, addr: listen, upstream: upstream, tls: config, conns: make(map[net.Conn]bool), local: make(map[string]bool)}
	g.set(well)
	t.Cleanup(func() { g.set(refuses) })
	return g
}

func (g *gate) set(tr trouble) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end != nil {
		_ = g.end.Close()
		g.end = nil
	}
	for conn := range g.conns {
		_ = conn.Close()
		delete(g.conns, conn)
	}
	g.now, g.met = tr, 0
	switch tr {
	case refuses:
	case hangsAtDial:
		ln, err := again(func() (io.Closer, error) { return listenDeaf(g.addr) })
		if err != nil {
			g.t.Error(err)
			return
		}
		g.end = ln
	default:
		if g.network == "unix" {
			_ = os.Remove(g.addr)
		}
		ln, err := again(func() (net.Listener, error) { return net.Listen(g.network, g.addr) })
		if err != nil {
			g.t.Error(err)
			return
		}
		if u, ok := ln.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // so that it refuses
		}
		g.end, g.addr = ln, ln.Addr().String()
		go g.accept(ln)
	}
}

// again repeats what takes an address that was given up a moment ago. A process that is being
// started may have it until it executes its program.
func again[T any](take func() (T, error)) (v T, err error) {
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		if v, err = take(); err == nil {
			break
		}
	}
	return v, err
}

// meets returns how many connections have come in this trouble.
func (g *gate) meets() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.met
}

func (g *gate) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		if g.end != ln {
			_ = conn.Close()
			g.mu.Unlock()
			return
		}
		g.met++
		g.conns[conn] = true
		go g.serve(conn, g.now)
		g.mu.Unlock()
	}
}

func (g *gate) serve(conn net.Conn, tr trouble) {
	defer conn.Close()
	if tr == closes {
		return
	}
	if tr == well {
		g.pass(conn)
		return
	}
	if g.tls != nil && tr != hangsInTLS {
		conn = tls.Server(conn, g.tls)
	}
	buf := make([]byte, 1<<10)
	for {
		if tr == hangsInTLS {
			_, _ = io.Copy(io.Discard, conn)
		}
		if _, err := conn.Read(buf); err != nil {
			return
		}
		if tr == answersError {
			_, _ = conn.Write([]byte("-LOADING Redis is loading the dataset in memory\r\n"))
		}
	}
}

func (g *gate) pass(client net.Conn) {
	server, err := net.Dial(g.network, g.upstream)
	if err != nil {
		return
	}
	g.mu.Lock()
	if !g.conns[client] {
		g.mu.Unlock()
		_ = server.Close()
		return
	}
	g.local[server.LocalAddr().String()] = true
	g.conns[server] = true
	g.mu.Unlock()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = server.Close()
}

// knows reports whether the server sees a client of this gate at that address.
func (g *gate) knows(addr string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.local[addr]
}
