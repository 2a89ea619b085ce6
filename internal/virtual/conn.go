package virtual

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock/internal/fault"
)

// conn is one connection: the client's pipe, the server's pipe, and the data under way
// between them. What the client sent before it closed still arrives.
type conn struct {
	node        *Node
	wire, inner net.Conn
	up, down    way
	once        sync.Once
	dead        chan struct{}
	swallowed   bool // guarded by node.wire: nothing arrives any more
}

// way is one direction of a connection.
type way struct {
	mu     sync.Mutex
	chunks []chunk
	wake   chan struct{}
}

type chunk struct {
	data []byte // nil: the end
	due  time.Time
}

// serve carries data between two pipes.
func (n *Node) serve(wire, inner net.Conn) {
	c := &conn{node: n, wire: wire, inner: inner, dead: make(chan struct{})}
	c.up.wake, c.down.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	n.conns[c] = true
	go c.collect(&c.up, wire, func() (time.Duration, bool) {
		return n.there, !c.swallowed && n.fault != fault.Blackhole && n.fault != fault.LoseRequests
	})
	go c.collect(&c.down, inner, func() (time.Duration, bool) {
		return n.back, !c.swallowed && n.fault != fault.Blackhole && n.fault != fault.LoseReplies
	})
	go c.deliver(&c.up, inner, true)
	go c.deliver(&c.down, wire, false)
}

// cut ends the connection at once, with all data under way.
func (c *conn) cut() {
	c.once.Do(func() { close(c.dead) })
	_ = c.wire.Close()
	_ = c.inner.Close()
}

// collect takes what one end writes and puts it on the way, unless it is lost.
func (c *conn) collect(w *way, from net.Conn, fate func() (latency time.Duration, arrives bool)) {
	buf := make([]byte, 4<<10)
	for {
		k, err := from.Read(buf)
		next := chunk{data: slices.Clone(buf[:k])}
		if err != nil {
			next.data = nil
		}
		c.node.wire.Lock()
		latency, arrives := fate()
		c.node.wire.Unlock()
		if arrives || err != nil {
			next.due = time.Now().Add(latency)
			w.mu.Lock()
			w.chunks = append(w.chunks, next)
			w.mu.Unlock()
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver hands the data under way to the other end, in order.
func (c *conn) deliver(w *way, to net.Conn, isRequest bool) {
	for {
		next := w.next()
		if next == nil {
			select {
			case <-w.wake:
				continue
			case <-c.dead:
				return
			}
		}
		if !c.until(next.due) || isRequest && !c.runs() {
			return
		}
		if next.data == nil {
			_ = to.Close()
			if isRequest { // the client has left: replies that are on their way back are dropped
				c.forget()
				c.cut()
			}
			return
		}
		if isRequest {
			c.node.mu.Lock()
			c.node.tickLocked()
			c.node.mu.Unlock()
		}
		_, _ = to.Write(next.data) // fails if the other end is closed: then the data is lost
	}
}

func (w *way) next() *chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.chunks) == 0 {
		return nil
	}
	first := w.chunks[0]
	w.chunks = w.chunks[1:]
	return &first
}

func (c *conn) until(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.dead:
		return false
	}
}

// runs waits while the process is stopped.
func (c *conn) runs() bool {
	for {
		c.node.mu.Lock()
		hung := c.node.hung
		c.node.mu.Unlock()
		if hung == nil {
			return true
		}
		select {
		case <-hung:
		case <-c.dead:
			return false
		}
	}
}

// forget removes a connection that its client has ended.
func (c *conn) forget() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	delete(c.node.conns, c)
}

// SwallowConns makes the present connections lose all data, like a network device that has
// forgotten them. New connections work.
func (n *Node) SwallowConns() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wire.Lock()
	defer n.wire.Unlock()
	for c := range n.conns {
		c.swallowed = true
	}
}
