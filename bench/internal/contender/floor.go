package contender

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/resp"
)

var (
	floorRelease = redis.NewScript(`if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0`)
	floorExtend  = redis.NewScript(`if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0`)

	floorTTLMillis = strconv.FormatInt(TTL.Milliseconds(), 10)

	errFloorRefused = errors.New("floor: no quorum said yes")
	errFloorClosed  = errors.New("floor: closed")
)

// floor does the least that a quorum lock has to do: SET NX PX to every node, a
// quorum of replies, compare-and-delete, another quorum. Commands of all callers
// share one connection per node, as pipelines. It is not a usable lock: it judges no
// validity, does not wait, retry, renew, reconnect or undo, and waits for no slow node.
type floor struct{ conns []*floorConn }

func dialFloor(ctx context.Context, masters []string) (Locker, error) {
	f := &floor{}
	for _, addr := range masters {
		c := redis.NewClient(&redis.Options{Addr: addr})
		err := errors.Join(floorExtend.Load(ctx, c).Err(), floorRelease.Load(ctx, c).Err(), c.Close())
		var conn *floorConn
		if err == nil {
			conn, err = dialFloorConn(addr)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.conns = append(f.conns, conn)
	}
	return f, nil
}

func (f *floor) Lock(ctx context.Context, key string) (Lease, error) {
	l := &floorLease{f, key, rand.Text()}
	return l, f.poll(ctx, "SET", key, l.token, "NX", "PX", floorTTLMillis)
}

type floorLease struct {
	*floor
	key, token string
}

func (l *floorLease) Extend(ctx context.Context) error {
	return l.poll(ctx, "EVALSHA", floorExtend.Hash(), "1", l.key, l.token, floorTTLMillis)
}

func (l *floorLease) Unlock(ctx context.Context) error {
	return l.poll(ctx, "EVALSHA", floorRelease.Hash(), "1", l.key, l.token)
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

// dialFloorConn connects to a node that has the scripts.
func dialFloorConn(addr string) (*floorConn, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	l := &floorConn{conn: conn, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	l.goroutines.Go(l.write)
	l.goroutines.Go(l.read)
	return l, nil
}

func (l *floorConn) send(v *floorVote, args []string) {
	l.mu.Lock()
	closed := l.err != nil
	if !closed {
		l.out = resp.AppendCommand(l.out, len(args))
		for _, a := range args {
			l.out = resp.AppendString(l.out, a)
		}
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
func (l *floorConn) read() {
	r := bufio.NewReader(l.conn)
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
