package masters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialWithin   = 5 * time.Second // connecting to the upstream server
	listenWithin = time.Second     // taking the port again after Refuse
)

// Proxy stands in front of a server and does to its TCP connections what a network
// can do. Use [NewProxy]; the zero value does not work. All methods are safe for
// concurrent use.
//
// A client that connects while the server is down is accepted and then reset. Bytes move
// in chunks. A chunk is the result of one read: in practice one command, pipeline or
// reply. Chunks of one connection and direction never overtake each other. Held chunks
// are kept in memory, without a bound.
//
// Only bytes are lost: the end of a connection is handed on while bytes are lost. In a
// black hole it waits like everything else.
type Proxy struct {
	addr string
	port int

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // accept loop and links

	ctl sync.Mutex // held for the whole of a Set, Retarget, ResetAll or Close

	mu       sync.Mutex // guards what follows; never held while waiting
	upstream string
	fault    Fault
	changed  chan struct{} // closed and replaced when fault changes
	delay    [2]time.Duration
	drip     time.Duration // for each byte
	hold     *hold
	lose     bool // the next reply, from LoseNextReply
	ln       *net.TCPListener
	lnDone   chan struct{} // closed when ln's accept loop has ended
	links    map[*link]struct{}

	held, lost atomic.Int64
}

// hold is an armed HoldNextRequest.
type hold struct {
	match []byte
	d     time.Duration
}

// ProxyStats counts what a [Proxy] has seen since it was made.
type ProxyStats struct {
	Held int64 // chunks caught by HoldNextRequest
	Lost int64 // chunks dropped, either way
}

// NewProxy returns a proxy on a free port of 127.0.0.1 that passes everything on
// to the server at upstream. The caller closes it.
func NewProxy(upstream string) (*Proxy, error) {
	ln, err := listen()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		addr:     ln.Addr().String(),
		port:     ln.Addr().(*net.TCPAddr).Port,
		upstream: upstream,
		changed:  make(chan struct{}),
		links:    make(map[*link]struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.serve(ln)
	return p, nil
}

// Addr returns the address that clients connect to. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Set replaces the present fault by f; [Pass] heals. A chunk is lost if the fault is in
// force when it comes in or when it would go out. Latency and armed holds and losses stay
// as they are.
//
// Only leaving [Refuse] can fail, if another process has taken the port: the proxy then
// goes on refusing. After Close the error is [ErrClosed].
func (p *Proxy) Set(f Fault) error {
	p.ctl.Lock()
	defer p.ctl.Unlock()
	if p.ctx.Err() != nil {
		return ErrClosed
	}
	if f != Refuse && !p.listening() {
		ln, err := p.relisten()
		if err != nil {
			return err
		}
		defer p.serve(ln) // with the new fault in force
	}
	p.mu.Lock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if f == Refuse {
		p.stopListening()
		p.resetLinks()
	}
	return nil
}

// Latency delays each chunk by request on its way to the server and by reply on its way
// back, from the next chunk on. It is a pure delay: several chunks can be under way at a
// time.
func (p *Proxy) Latency(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{requests: request, replies: reply}
}

// Drip makes bytes come one by one, both ways, with a pause after each; 0 ends that.
// Chunks that wait when it begins or ends are handed on as they were.
func (p *Proxy) Drip(perByte time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drip = perByte
}

// HoldNextRequest arms the proxy to hold the first request chunk that contains match for d
// longer than the latency, and then to deliver it, even if its client has closed the
// connection by then. Later chunks of that connection wait behind it; other connections
// are not affected. A new call replaces a hold that has not caught a chunk.
func (p *Proxy) HoldNextRequest(match []byte, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = &hold{match: bytes.Clone(match), d: d}
}

// LoseNextReply drops the next reply chunk, whatever its connection: the replies to a
// client's handshake count, too.
func (p *Proxy) LoseNextReply() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = true
}

// Retarget points the proxy at another server, as a fail-over behind one address
// does: present connections are reset and new connections go to upstream.
func (p *Proxy) Retarget(upstream string) error {
	p.ctl.Lock()
	defer p.ctl.Unlock()
	if p.ctx.Err() != nil {
		return ErrClosed
	}
	p.mu.Lock()
	p.upstream = upstream
	p.mu.Unlock()
	p.resetLinks()
	return nil
}

// ResetAll breaks every present connection with a TCP reset, on both sides, and
// drops the chunks held for it. New connections are accepted.
func (p *Proxy) ResetAll() {
	p.ctl.Lock()
	defer p.ctl.Unlock()
	p.resetLinks()
}

// Stats returns the counts so far.
func (p *Proxy) Stats() ProxyStats {
	return ProxyStats{Held: p.held.Load(), Lost: p.lost.Load()}
}

// Close resets all connections, stops listening and returns when every goroutine
// of the proxy has ended. Closing again does nothing.
func (p *Proxy) Close() {
	p.ctl.Lock()
	defer p.ctl.Unlock()
	p.stopListening()
	p.resetLinks()
	p.cancel()
	p.wg.Wait()
}

func (p *Proxy) listening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ln != nil
}

// relisten takes the port again.
func (p *Proxy) relisten() (*net.TCPListener, error) {
	deadline := time.Now().Add(listenWithin)
	for {
		ln, err := listenOn(p.port)
		if err == nil {
			return ln, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("masters: proxy: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// serve starts accepting from ln.
func (p *Proxy) serve(ln *net.TCPListener) {
	done := make(chan struct{})
	p.mu.Lock()
	p.ln, p.lnDone = ln, done
	p.mu.Unlock()
	p.wg.Go(func() {
		defer close(done)
		p.accept(ln)
	})
}

// stopListening closes the listener. Its socket closes with the accept loop, so
// connections are refused only after the loop has ended.
func (p *Proxy) stopListening() {
	p.mu.Lock()
	ln, done := p.ln, p.lnDone
	p.ln, p.lnDone = nil, nil
	p.mu.Unlock()
	if ln != nil {
		_ = ln.Close()
		<-done
	}
}

func (p *Proxy) accept(ln *net.TCPListener) {
	for {
		client, err := ln.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for example: others may free some
			time.Sleep(5 * time.Millisecond)
			continue
		}
		p.mu.Lock()
		if p.ln != ln { // closed since, perhaps after the resets
			p.mu.Unlock()
			_ = client.SetLinger(0)
			_ = client.Close()
			continue
		}
		l := newLink(p, client)
		p.links[l] = struct{}{}
		upstream := p.upstream
		p.wg.Go(func() { l.run(upstream) })
		p.mu.Unlock()
	}
}

// resetLinks breaks all present connections and waits until they are gone.
func (p *Proxy) resetLinks() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
		l.lingerLocked() // all of them before the first is closed, else one end
		// could see the other's orderly end before its own reset
	}
	for _, l := range links {
		l.closeLocked()
	}
	p.mu.Unlock()
	for _, l := range links {
		<-l.done
	}
}

// admit decides what happens to an incoming chunk: when it is due to leave, or that it is
// lost.
func (p *Proxy) admit(d direction, chunk []byte) (due time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := loses(p.fault, d)
	if !lost && d == replies && p.lose {
		p.lose, lost = false, true
	}
	if lost {
		p.lost.Add(1)
		return time.Time{}, false
	}
	due = time.Now().Add(p.delay[d])
	if d == requests && p.hold != nil && bytes.Contains(chunk, p.hold.match) {
		due = due.Add(p.hold.d)
		p.hold = nil
		p.held.Add(1)
	}
	return due, true
}

// current returns the fault in force, and a channel that is closed when it changes.
func (p *Proxy) current() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) latency(d direction) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay[d]
}

func (p *Proxy) dripping() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drip
}
