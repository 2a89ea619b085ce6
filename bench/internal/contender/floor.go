package contender

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	floorRelease = `if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0`
	floorExtend  = `if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0`
)

var floorTTLMillis = strconv.FormatInt(TTL.Milliseconds(), 10)

var (
	errFloorRefused = errors.New("floor: no quorum said yes")
	errFloorClosed  = errors.New("floor: closed")
)

// floor does the least that a quorum lock has to do: SET NX PX to every node, a
// quorum of replies, compare-and-delete, another quorum. Commands of all callers
// share one connection per node, as pipelines. It is not a usable lock: it judges no
// validity, does not wait, retry, renew, reconnect or undo, and waits for no slow node.
type floor struct {
	conns           []*floorConn
	extend, release string // digests of the scripts
}

func dialFloor(masters []string) (Locker, error) {
	f := &floor{}
	for _, addr := range masters {
		conn, err := f.dial(addr)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.conns = append(f.conns, conn)
	}
	return f, nil
}

func (f *floor) Lock(ctx context.Context, key string) (Lease, error) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	l := &floorLease{f, key, hex.EncodeToString(raw[:])}
	return l, f.poll(ctx, "SET", key, l.token, "NX", "PX", floorTTLMillis)
}

type floorLease struct {
	*floor
	key, token string
}

func (l *floorLease) Extend(ctx context.Context) error {
	return l.poll(ctx, "EVALSHA", l.extend, "1", l.key, l.token, floorTTLMillis)
}

func (l *floorLease) Unlock(ctx context.Context) error {
	return l.poll(ctx, "EVALSHA", l.release, "1", l.key, l.token)
}

// poll sends a command to all nodes and returns when a quorum of them has said yes,
// or when a quorum is out of reach.
func (f *floor) poll(ctx context.Context, args ...string) error {
	v := &floorVote{n: len(f.conns), decided: make(chan error, 1)}
	for _, conn := range f.conns {
		conn.send(v, args)
	}
	select {
	case err := <-v.decided:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *floor) Close() error {
	for _, conn := range f.conns {
		conn.close(errFloorClosed)
	}
	for _, conn := range f.conns {
		conn.goroutines.Wait()
	}
	return nil
}

// floorVote counts the nodes' answers to one command.
type floorVote struct {
	n       int
	decided chan error // receives the result once

	mu      sync.Mutex
	yes, no int // guarded by mu
}

func (v *floorVote) cast(yes bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	quorum := v.n/2 + 1
	if yes {
		if v.yes++; v.yes == quorum {
			v.decided <- nil
		}
	} else if v.no++; v.no == v.n-quorum+1 {
		v.decided <- errFloorRefused
	}
}

// floorConn is the connection to one node. One goroutine writes the requests that have
// come since its last write, another reads the replies. Both end when it is closed.
type floorConn struct {
	conn       net.Conn
	goroutines sync.WaitGroup
	wake       chan struct{} // holds one token: there is something to write
	closed     chan struct{}

	mu      sync.Mutex
	out     []byte       // guarded by mu: not written yet
	waiting []*floorVote // guarded by mu: no reply yet, oldest first
	err     error        // guarded by mu: why the connection is closed
}

// dial connects to a node and loads the scripts.
func (f *floor) dial(addr string) (*floorConn, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	f.extend, err = loadFloorScript(conn, r, floorExtend)
	if err == nil {
		f.release, err = loadFloorScript(conn, r, floorRelease)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l := &floorConn{conn: conn, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	l.goroutines.Go(l.write)
	l.goroutines.Go(func() { l.read(r) })
	return l, nil
}

func loadFloorScript(conn net.Conn, r *bufio.Reader, script string) (sha string, err error) {
	if _, err := conn.Write(appendCommand(nil, []string{"SCRIPT", "LOAD", script})); err != nil {
		return "", err
	}
	if line, err := r.ReadString('\n'); err != nil || line != "$40\r\n" {
		return "", fmt.Errorf("floor: script load: %q, %w", line, err)
	}
	raw := make([]byte, 42)
	_, err = io.ReadFull(r, raw)
	return string(raw[:40]), err
}

// appendCommand appends a command in the protocol's form: an array of bulk strings.
func appendCommand(b []byte, args []string) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(args)), 10)
	for _, a := range args {
		b = append(b, "\r\n$"...)
		b = strconv.AppendInt(b, int64(len(a)), 10)
		b = append(b, "\r\n"...)
		b = append(b, a...)
	}
	return append(b, "\r\n"...)
}

func (l *floorConn) send(v *floorVote, args []string) {
	l.mu.Lock()
	closed := l.err != nil
	if !closed {
		l.out = appendCommand(l.out, args)
		l.waiting = append(l.waiting, v)
	}
	l.mu.Unlock()
	if closed {
		v.cast(false)
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *floorConn) write() {
	var spare []byte
	for {
		select {
		case <-l.wake:
		case <-l.closed:
			return
		}
		l.mu.Lock()
		batch := l.out
		l.out = spare[:0]
		l.mu.Unlock()
		if _, err := l.conn.Write(batch); err != nil {
			l.close(err)
			return
		}
		spare = batch
	}
}

// read reads replies of one line: +OK or :1 is a yes, and anything else a no.
func (l *floorConn) read(r *bufio.Reader) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			l.close(err)
			return
		}
		yes := line[0] == '+' || line[0] == ':' && line[1] == '1'
		l.mu.Lock()
		if l.err != nil {
			l.mu.Unlock()
			return
		}
		v := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.mu.Unlock()
		v.cast(yes)
	}
}

// close breaks the connection, and answers no to all requests without a reply.
func (l *floorConn) close(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = reason
	close(l.closed)
	_ = l.conn.Close()
	for _, v := range l.waiting {
		v.cast(false)
	}
	l.waiting = nil
}
