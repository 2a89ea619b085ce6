// Package resp writes and reads the Redis protocol, version 2, as far as a lock needs it:
// commands of byte strings, and replies of bounded size and depth.
//
// A reply that is out of bounds or malformed is an error of the connection, because the bytes
// after it have no meaning. Nothing that a server sends makes a reader panic, or allocate more
// than the bounds.
//
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
package resp

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/d0720281/redlock/internal/wire"
)

// The bounds of a reply. The reply to a batch has three numbers for each of 256 requests. A
// section of INFO has a few kB.
const (
	MaxBulk  = 1 << 20 // bytes in a string
	MaxLine  = 1 << 12 // bytes in a status or a number; a longer error is cut
	MaxArray = 1 << 12 // elements of an array
	MaxDepth = 4       // arrays in arrays
	MaxError = 500     // bytes that are shown of an error
)

// ErrProtocol is matched by the error of a reply that is malformed or out of bounds.
var ErrProtocol = errors.New("reply breaks the protocol")

// AppendCommand appends the head of a command of n arguments, its name included.
func AppendCommand(b []byte, n int) []byte { return appendHead(b, '*', n) }

// AppendString appends an argument.
func AppendString(b []byte, s string) []byte {
	b = appendHead(b, '$', len(s))
	b = append(b, s...)
	return append(b, '\r', '\n')
}

// AppendInt appends an argument that is a number.
func AppendInt(b []byte, v int64) []byte { return AppendJoined(b, "", "", v, "") }

// AppendJoined appends one argument: a text, a separator, a number, and a text behind it.
func AppendJoined(b []byte, s, separator string, v int64, behind string) []byte {
	var room [20]byte
	digits := strconv.AppendInt(room[:0], v, 10)
	b = appendHead(b, '$', len(s)+len(separator)+len(digits)+len(behind))
	b = append(b, s...)
	b = append(b, separator...)
	b = append(b, digits...)
	b = append(b, behind...)
	return append(b, '\r', '\n')
}

func appendHead(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

// Error is an error that the server replied. Use [NewError].
type Error string

// NewError returns the error of a text of the server: printable, of bounded length, and without the
// arguments of the command. A server that does not know a command repeats these at the end. They
// can be a script or a password.
func NewError(text string) Error {
	text, _, _ = strings.Cut(text, ", with args beginning with")
	return Error(wire.Excerpt(strings.TrimSpace(text), MaxError))
}

func (e Error) Error() string { return string(e) }

// RedisError marks the error as the reply of a server, for the client library's redis.Error.
func (e Error) RedisError() {}

// Kind is the first byte of a reply.
type Kind byte

// The kinds of replies.
const (
	Status  Kind = '+'
	Failure Kind = '-'
	Number  Kind = ':'
	Bulk    Kind = '$'
	Array   Kind = '*'
)

// Reader reads replies. It buffers the bytes that arrive. After an error of Value it cannot go on.
type Reader struct {
	Hide func(text string) string // what the text of an error must not have, a password, is taken out of it; nil: nothing

	from io.Reader
	buf  []byte
	r, w int // bounds of the unread bytes in buf
}

// NewReader returns a Reader.
func NewReader(from io.Reader) *Reader { return &Reader{from: from, buf: make([]byte, 4<<10)} }

// Buffered reports whether there are bytes that have arrived and were not read.
func (r *Reader) Buffered() bool { return r.w > r.r }

// Wait returns when bytes have arrived.
func (r *Reader) Wait() error {
	if r.Buffered() {
		return nil
	}
	return r.fill()
}

// fill reads more into the buffer, which grows if it has to.
func (r *Reader) fill() error {
	if r.r > 0 {
		copy(r.buf, r.buf[r.r:r.w])
		r.w -= r.r
		r.r = 0
	}
	if r.w == len(r.buf) {
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	n, err := r.from.Read(r.buf[r.w:])
	r.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// line returns the next line without its end, valid until the next call.
func (r *Reader) line() ([]byte, error) {
	for from := r.r; ; {
		for i := from; i < r.w; i++ {
			if r.buf[i] != '\n' {
				continue
			}
			line := r.buf[r.r:i]
			r.r = i + 1
			if len(line) < 2 || len(line) > mostOf(line) || line[len(line)-1] != '\r' {
				return nil, protocolError("a line of %d bytes that is too long or does not end in CR LF", len(line))
			}
			return line[:min(len(line)-1, MaxLine)], nil
		}
		if most := mostOf(r.buf[r.r:r.w]); r.w-r.r > most {
			return nil, protocolError("a line of more than %d bytes", most)
		}
		scanned := r.w - r.r
		if err := r.fill(); err != nil {
			return nil, err
		}
		from = r.r + scanned
	}
}

// mostOf returns how long a line may be, from its beginning. An error may quote a whole command, and
// is cut.
func mostOf(line []byte) int {
	if len(line) > 0 && Kind(line[0]) == Failure {
		return MaxBulk
	}
	return MaxLine
}

// bulk returns n bytes, valid until the next call.
func (r *Reader) bulk(n int) ([]byte, error) {
	for r.w-r.r < n+2 {
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	b := r.buf[r.r : r.r+n]
	end := r.buf[r.r+n : r.r+n+2]
	r.r += n + 2
	if end[0] != '\r' || end[1] != '\n' {
		return nil, protocolError("a string that goes on behind its length")
	}
	return b, nil
}

// Head is the first line of a reply: a kind, and a number, a length or a text. A null reply has
// the length -1.
type Head struct {
	Kind Kind
	N    int64  // of Number, Bulk and Array
	Text []byte // of Status and Failure, valid until the next call
}

// Head reads the first line of a reply.
func (r *Reader) Head() (h Head, err error) {
	line, err := r.line()
	if err != nil {
		return h, err
	}
	h.Kind, h.Text = Kind(line[0]), line[1:]
	switch h.Kind {
	case Status, Failure:
		return h, nil
	case Number:
		n, ok := parseInt(h.Text)
		if !ok {
			return h, protocolError("%.40q is no number", h.Text)
		}
		h.N = n
		return h, nil
	case Bulk, Array:
		most := int64(MaxBulk)
		if h.Kind == Array {
			most = MaxArray
		}
		n, ok := parseInt(h.Text)
		if !ok || n < -1 || n > most {
			return h, protocolError("%.40q is no length, or one above %d", h.Text, most)
		}
		h.N = n
		return h, nil
	}
	return h, protocolError("a reply that begins with %q", line[0])
}

// String reads the bytes of a string whose head was read; "" if it is null.
func (r *Reader) String(h Head) (string, error) {
	if h.N < 0 {
		return "", nil
	}
	b, err := r.bulk(int(h.N))
	return string(b), err
}

// Value reads a whole reply: an int64, a string, nil, an [Error], or a []any of these.
func (r *Reader) Value() (any, error) { return r.value(0) }

func (r *Reader) value(depth int) (any, error) {
	h, err := r.Head()
	if err != nil {
		return nil, err
	}
	switch h.Kind {
	case Status:
		return string(h.Text), nil
	case Failure:
		return r.Error(string(h.Text)), nil
	case Number:
		return h.N, nil
	}
	switch {
	case h.N < 0:
		return nil, nil
	case h.Kind == Bulk:
		return r.String(h)
	case depth == MaxDepth:
		return nil, protocolError("arrays %d deep", depth+1)
	}
	list := make([]any, 0, min(h.N, 64))
	for range h.N {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// Error is [NewError] for a text that the Reader has read.
func (r *Reader) Error(text string) Error {
	if r.Hide != nil {
		text = r.Hide(text)
	}
	return NewError(text)
}

// parseInt reads a decimal int64.
func parseInt(b []byte) (n int64, ok bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		v, err := strconv.ParseInt(string(b), 10, 64)
		return v, err == nil
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}
