package bench

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// late is a proxy in front of one node. It can be told to deliver one request late, even if
// the client has closed the connection by then, as a network may. Unlike a masters.Proxy it
// can pick the second request, holds it until the test lets it go, and tells when the node
// has answered it.
type late struct {
	ln       net.Listener
	upstream string
	closing  chan struct{}
	links    sync.WaitGroup

	mu   sync.Mutex
	held *held             // the order that waits for its request, if any; guarded by mu
	open map[net.Conn]bool // nil when closed; guarded by mu
}

// held is an order to hold a request, and then that request.
type held struct {
	key  []byte
	skip int // requests to let through first; guarded by late.mu
	d    time.Duration

	caught   chan struct{} // closed when the request has arrived
	deliver  chan struct{} // the test closes it: the request may go on once d is over
	answered chan struct{} // closed when the node has answered it
}

func newLate(t *testing.T, upstream string) *late {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &late{ln: ln, upstream: upstream, closing: make(chan struct{}), open: map[net.Conn]bool{}}
	p.links.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the address that clients connect to.
func (p *late) Addr() string { return p.ln.Addr().String() }

// hold holds the nth of the requests that name key for d, or until the test closes deliver if
// that is later. Earlier and later requests pass, except those after it on the same
// connection.
func (p *late) hold(key string, nth int, d time.Duration) *held {
	h := &held{
		key: []byte(key), skip: nth - 1, d: d,
		caught: make(chan struct{}), deliver: make(chan struct{}), answered: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = h
	return h
}

// let passes on everything that is not held by now.
func (p *late) let() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = nil
}

// catch returns the order that holds this request, or nil.
func (p *late) catch(request []byte) *held {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held
	if h == nil || !bytes.Contains(request, h.key) {
		return nil
	}
	if h.skip > 0 {
		h.skip--
		return nil
	}
	p.held = nil
	close(h.caught)
	return h
}

// wait returns false if the proxy is closed before the request may go on.
func (p *late) wait(h *held) bool {
	timer := time.NewTimer(h.d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.closing:
		return false
	}
	select {
	case <-h.deliver:
		return true
	case <-p.closing:
		return false
	}
}

func (p *late) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.open != nil {
			p.open[client], p.open[server] = true, true
			p.links.Go(func() { p.link(client, server) })
		} else {
			_, _ = client.Close(), server.Close()
		}
		p.mu.Unlock()
	}
}

// link carries one connection. It ends when the server has hung up, which the server does
// once it has read all that the client sent.
func (p *late) link(client, server net.Conn) {
	var sent sync.Mutex
	var expected *held // delivered and not answered; guarded by sent
	p.links.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := client.Read(buf)
			if n > 0 {
				if h := p.catch(buf[:n]); h != nil {
					if !p.wait(h) {
						return
					}
					sent.Lock()
					expected = h
					sent.Unlock()
				}
				_, _ = server.Write(buf[:n])
			}
			if err != nil {
				_ = server.(*net.TCPConn).CloseWrite()
				return
			}
		}
	})
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			_, _ = client.Write(buf[:n]) // the client may have left
			sent.Lock()
			if expected != nil {
				close(expected.answered)
				expected = nil
			}
			sent.Unlock()
		}
		if err != nil {
			break
		}
	}
	_, _ = client.Close(), server.Close()
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mu.Unlock()
}

func (p *late) close() {
	_ = p.ln.Close()
	close(p.closing)
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.open = nil
	p.mu.Unlock()
	p.links.Wait()
}
