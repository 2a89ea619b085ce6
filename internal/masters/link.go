package masters

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// link is one client connection with its connection to the server. Per direction
// a goroutine reads into a queue and another empties it, each chunk at its time.
//
// It ends when the server's end of stream has reached the client, or by a reset. If the
// client leaves, what it sent is still delivered. Then the server is told and ends its side.
type link struct {
	p      *Proxy
	ctx    context.Context // ends when the connections are closed
	cancel context.CancelFunc
	done   chan struct{} // closed when all goroutines have ended

	client *net.TCPConn
	server *net.TCPConn // nil until connected; guarded by p.mu
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	l := &link{p: p, client: client, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	return l
}

// lingerLocked makes closing send a reset instead of an orderly end.
func (l *link) lingerLocked() {
	_ = l.client.SetLinger(0)
	if l.server != nil {
		_ = l.server.SetLinger(0)
	}
}

func (l *link) closeLocked() {
	l.cancel()
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// run carries the link's traffic until it ends.
func (l *link) run(upstream string) {
	defer close(l.done)
	defer func() {
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.closeLocked()
		delete(l.p.links, l)
	}()
	if !l.connect(upstream) {
		return
	}
	req := newLane(l, requests, l.client, l.server)
	rep := newLane(l, replies, l.server, l.client)
	var wg sync.WaitGroup
	wg.Go(req.read)
	wg.Go(req.write)
	wg.Go(rep.read)
	wg.Go(func() {
		rep.write()
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.closeLocked() // the server has ended, or the link was reset
	})
	wg.Wait()
}

// connect dials the server; if that fails the client is reset.
func (l *link) connect(upstream string) bool {
	d := net.Dialer{Timeout: dialWithin}
	conn, err := d.DialContext(l.ctx, "tcp", upstream)
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if err != nil {
		l.lingerLocked()
		return false
	}
	l.server = conn.(*net.TCPConn)
	if l.ctx.Err() != nil { // reset while dialling
		l.lingerLocked()
		return false
	}
	return true
}

// lane is one direction of a link: a queue of chunks, each with the time from
// which it may leave.
type lane struct {
	link     *link
	dir      direction
	src, dst *net.TCPConn

	mu     sync.Mutex
	queue  []chunk
	filled chan struct{} // holds one item when queue has grown
}

// chunk has the data of one read, or marks the end of the stream if data is nil.
type chunk struct {
	data []byte
	due  time.Time
}

func newLane(l *link, dir direction, src, dst *net.TCPConn) *lane {
	return &lane{link: l, dir: dir, src: src, dst: dst, filled: make(chan struct{}, 1)}
}

// read moves chunks from the source into the queue until the source ends. A
// reset counts as an end: what was read before it has left its sender.
func (l *lane) read() {
	p := l.link.p
	buf := make([]byte, 32<<10)
	for {
		n, err := l.src.Read(buf)
		if n > 0 {
			if due, ok := p.admit(l.dir, buf[:n]); ok {
				l.push(chunk{bytes.Clone(buf[:n]), due})
			}
		}
		if err != nil {
			l.push(chunk{nil, time.Now().Add(p.latency(l.dir))})
			return
		}
	}
}

func (l *lane) push(c chunk) {
	l.mu.Lock()
	l.queue = append(l.queue, c)
	l.mu.Unlock()
	select {
	case l.filled <- struct{}{}:
	default:
	}
}

// pop waits for the oldest chunk; ok is false when the link has ended.
func (l *lane) pop() (c chunk, ok bool) {
	for {
		l.mu.Lock()
		if len(l.queue) > 0 {
			c, l.queue = l.queue[0], l.queue[1:]
			l.mu.Unlock()
			return c, true
		}
		l.mu.Unlock()
		select {
		case <-l.filled:
		case <-l.link.ctx.Done():
			return chunk{}, false
		}
	}
}

// write hands the queue's chunks on to the destination, each when it is due and
// no black hole is in the way.
func (l *lane) write() {
	p := l.link.p
	gone := false // the destination takes no more data: the rest is dropped
	for {
		c, ok := l.pop()
		if !ok || !l.waitUntil(c.due) {
			return
		}
		fault, ok := l.waitPassable()
		switch {
		case !ok:
			return
		case c.data == nil:
			_ = l.dst.CloseWrite()
			return
		case loses(fault, l.dir):
			p.lost.Add(1)
		case !gone:
			gone = l.hand(c.data) != nil
		}
	}
}

// hand writes a chunk, byte by byte if the proxy drips.
func (l *lane) hand(data []byte) error {
	for ; len(data) > 0; data = data[1:] {
		pause := l.link.p.dripping()
		if pause <= 0 {
			_, err := l.dst.Write(data)
			return err
		}
		if _, err := l.dst.Write(data[:1]); err != nil || !l.waitUntil(time.Now().Add(pause)) {
			return err
		}
	}
	return nil
}

// waitUntil returns at t, or with false when the link has ended.
func (l *lane) waitUntil(t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.link.ctx.Done():
		return false
	}
}

// waitPassable returns the fault in force as soon as it lets chunks through, or
// false when the link has ended. What a black hole held must not slip out when
// Refuse takes its place: the link is about to be reset.
func (l *lane) waitPassable() (Fault, bool) {
	for {
		fault, changed := l.link.p.current()
		if fault != Blackhole && fault != Refuse {
			return fault, true
		}
		select {
		case <-changed:
		case <-l.link.ctx.Done():
			return fault, false
		}
	}
}
