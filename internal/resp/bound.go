package resp

import "net"

// Bound returns a connection that fails before a reply out of bounds reaches its reader. The
// client library does not check lengths: such a reply would make it panic or run out of memory.
func Bound(conn net.Conn) net.Conn { return &boundConn{Conn: conn} }

type boundConn struct {
	net.Conn
	check check
}

func (c *boundConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bad := c.check.next(p[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

// check follows replies as they arrive, in pieces of any size, and looks at each head.
type check struct {
	line  []byte  // the part of a head that has arrived
	skip  int64   // bytes of a string that have not arrived yet, its end included
	open  []int64 // elements that have not arrived yet, of each array that has begun
	room  [128]byte
	stack [MaxDepth + 1]int64
}

func (c *check) next(p []byte) error {
	if c.line == nil {
		c.line, c.open = c.room[:0], c.stack[:0]
	}
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, int64(len(p)))
			c.skip -= n
			p = p[n:]
			continue
		}
		b := p[0]
		p = p[1:]
		if b != '\n' {
			if len(c.line) == MaxLine {
				return protocolError("a line of more than %d bytes", MaxLine)
			}
			c.line = append(c.line, b)
			continue
		}
		if err := c.head(); err != nil {
			return err
		}
		c.line = c.line[:0]
	}
	return nil
}

// head checks a line that is complete.
func (c *check) head() error {
	if len(c.line) < 2 || c.line[len(c.line)-1] != '\r' {
		return protocolError("a line of %d bytes that is too long or does not end in CR LF", len(c.line))
	}
	kind, text := Kind(c.line[0]), c.line[1:len(c.line)-1]
	if len(c.open) > 0 {
		c.open[len(c.open)-1]--
	}
	switch kind {
	case Status, Failure:
	case Number:
		if _, ok := parseInt(text); !ok {
			return protocolError("%q is no number", text)
		}
	case Bulk:
		n, ok := parseInt(text)
		if !ok || n < -1 || n > MaxBulk {
			return protocolError("%q is no length, or one above %d", text, MaxBulk)
		}
		if n >= 0 {
			c.skip = n + 2
		}
	case Array:
		n, ok := parseInt(text)
		if !ok || n < -1 || n > MaxArray || len(c.open) == MaxDepth {
			return protocolError("%q is no length, or one above %d, or in arrays %d deep", text, MaxArray, len(c.open))
		}
		if n > 0 {
			c.open = append(c.open, n)
			return nil
		}
	default:
		return protocolError("a reply that begins with %q", byte(kind))
	}
	for len(c.open) > 0 && c.open[len(c.open)-1] == 0 {
		c.open = c.open[:len(c.open)-1]
	}
	return nil
}
