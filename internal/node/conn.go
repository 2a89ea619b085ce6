package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file makes a node's connections, one after the other. The client library dials,
// authenticates and selects the database. After that the node writes and reads by itself.

// link is one connection.
type link struct {
	conn   net.Conn
	client *redis.Client // whose one connection conn is
	sticky *redis.Conn
	in     *resp.Reader
	out    []byte // scratch space of what is written

	server string                // identity of the server at the other end, "" if that is not known
	knows  map[*wire.Script]bool // which scripts the server has run
	fresh  bool                  // nothing was sent yet but by the handshake
	heard  clock.Instant         // when something was last received
	joined clock.Instant         // when the list of masters was last sent; Start if the node has not taken it
	armed  clock.Instant         // when the reader looks at the time; never if it does not
}

func (l *link) close() {
	_ = l.conn.Close() // errors do not matter: the connection is given up
	_ = l.sticky.Close()
	_ = l.client.Close()
}

// appendScript appends the call of a script: by its source the first time, and by its hash after
// that.
func (l *link) appendScript(b []byte, s *wire.Script) []byte {
	if l.knows[s] {
		return resp.AppendString(resp.AppendString(b, "EVALSHA"), s.Hash)
	}
	l.knows[s] = true
	return resp.AppendString(resp.AppendString(b, "EVAL"), s.Source)
}

// connect opens the node's next connection. It asks the server for its identity and its time
// before the connection carries any request.
//
// Source: ALGORITHM section 8, "Client side".
func (n *Node) connect(out *outcomes) {
	ctx, cancel := context.WithTimeout(n.set.quit, n.opt.DialTimeout)
	defer cancel()
	l, err := n.open(ctx)
	if err == nil {
		err = n.greet(ctx, l, out)
		if err != nil {
			l.close()
		}
	}
	if IsTimeout(err) {
		err = ErrNoConnection // which of its steps took too long makes no difference
	}
	now := n.now()
	n.mu.Lock()
	if err != nil {
		n.goDownLocked(err, now, out)
	} else {
		n.link = l
		n.comeUpLocked(now, out)
		n.set.running.Go(func() error { n.read(l); return nil })
	}
	n.mu.Unlock()
	out.tell(n, n.now())
}

// open dials, and lets the client library do the handshake. The library does not dial, because it
// would log each failure and go on dialling.
func (n *Node) open(ctx context.Context) (*link, error) {
	conn, err := dialWithin(ctx, &n.opt)
	if err != nil {
		n.set.ids.lost(n.index)
		return nil, err
	}
	opt := n.opt
	opt.Dialer = DialOnce(resp.Bound(conn))
	client := redis.NewClient(&opt)
	sticky := client.Conn()
	// TIME goes first because on a new connection the errors of the handshake are its own.
	if err := sticky.Time(ctx).Err(); err != nil {
		_ = sticky.Close()
		_ = client.Close()
		_ = conn.Close()
		return nil, nodeFailure(err)
	}
	now := n.now()
	l := &link{
		conn: conn, client: client, sticky: sticky,
		knows: make(map[*wire.Script]bool), fresh: true, heard: now, joined: clock.Start, armed: clock.Never,
	}
	l.in = resp.NewReader(arrivals{n, l})
	return l, nil
}

// greet asks the server at the other end of a connection for its identity.
func (n *Node) greet(ctx context.Context, l *link, out *outcomes) error {
	reply, _, _, err := n.exchangeAlone(ctx, l, infoTask())
	if err != nil {
		return err
	}
	a := &Audit{MarkerErr: ErrGuardOff}
	if a.Info, a.InfoErr, err = readInfo(reply); err != nil {
		return err
	}
	if err := a.Info.usable(); err != nil {
		return err
	}
	if n.conf.Trusted {
		reply, _, _, err := n.exchangeAlone(ctx, l, diskTask())
		if err != nil {
			return err
		}
		a.Info.Disk = readDisk(reply)
	}
	if err := n.set.ids.enroll(n.index, a.Info.RunID); err != nil {
		return err
	}
	n.mu.Lock()
	n.identifyLocked(l, a.Info)
	n.mu.Unlock()
	began := n.now()
	if n.guard.on {
		reply, sent, received, err := n.exchangeAlone(ctx, l, n.markerTask(wire.Look, Marker{}))
		if err != nil {
			return err
		}
		n.mu.Lock()
		a.Marker, a.MarkerErr = n.readMarker(reply, sent, received, out)
		n.mu.Unlock()
		if a.MarkerErr == ErrStale {
			return ErrStale
		}
	}
	a.RoundTrip = n.now().Sub(began)
	if a.MarkerErr != nil { // without the marker's reply, the node's clock is still needed
		reply, sent, received, err := n.exchangeAlone(ctx, l, n.sampleTask())
		if err != nil {
			return err
		}
		micros, err := readTime(reply)
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.observeLocked(micros, sent, received, out)
		n.mu.Unlock()
		a.RoundTrip = n.now().Sub(began)
	}
	n.mu.Lock()
	n.standLocked(func(s *Standing) { s.Hash = a.hashed(n.addr) })
	n.mu.Unlock()
	n.audited(a, out)
	return nil
}

// audited keeps an audit and reports it.
func (n *Node) audited(a *Audit, out *outcomes) {
	a.Void = n.standing.Load().Void(n.now(), false)
	before := n.audit.Swap(a)
	out.after(func() { n.conf.Events.Audited(n, before, a) })
}

func infoTask() *task {
	return &task{replies: 1, write: func(_ *Node, _ *link, _ int64, b []byte) []byte {
		return resp.AppendString(resp.AppendCommand(b, 1), "INFO")
	}}
}

// readTime reads the reply of TIME, in microseconds.
func readTime(reply any) (micros int64, err error) {
	if refused, ok := reply.(resp.Error); ok {
		return 0, nodeFailure(refused)
	}
	values, _ := reply.([]any)
	if len(values) != 2 {
		return 0, ErrBadReply
	}
	var parts [2]int64
	for i, v := range values {
		text, ok := v.(string)
		if !ok || len(text) == 0 || len(text) > 12 {
			return 0, ErrBadReply
		}
		for _, c := range text {
			if c < '0' || c > '9' {
				return 0, ErrBadReply
			}
			parts[i] = parts[i]*10 + int64(c-'0')
		}
	}
	if micros = parts[0]*1_000_000 + parts[1]; !clockwatch.Plausible(micros) {
		return 0, ErrBadReply
	}
	return micros, nil
}

// exchangeAlone runs a task with one reply on a connection that nothing else uses yet.
func (n *Node) exchangeAlone(ctx context.Context, l *link, t *task) (reply any, sent clockwatch.Moment, received clock.Instant, err error) {
	deadline := time.Now().Add(n.conf.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := l.conn.SetDeadline(deadline); err != nil {
		return nil, sent, 0, err
	}
	defer func() { _ = l.conn.SetDeadline(time.Time{}) }() // as above
	now := n.now()
	sent = n.set.watch.Moment(now)
	median := n.set.watch.Median(sent)
	if _, err := l.conn.Write(t.write(n, l, median, nil)); err != nil {
		return nil, sent, 0, err
	}
	reply, err = l.in.Value()
	return reply, sent, n.now(), err
}

// identifyLocked remembers which server the node is connected to. If it is another server than
// before, it discards the samples of that server's clock.
func (n *Node) identifyLocked(l *link, info Info) {
	l.server = info.Identity()
	run := l.server
	if run == "" {
		run = wire.UnknownRun
	}
	if n.guard.run != "" {
		run = n.conf.Rules.Run(n.guard.run, run)
	}
	if run != n.guard.run && !(n.conf.Trusted && n.guard.run != "") { // or what was trusted is that clock, too
		n.suspect = false
		n.standLocked(func(s *Standing) { s.void = nil })
		n.set.watch.Forget(n.index)
	}
	// Writes from before a restart are on disk only if the server was durable before it, too.
	before := n.guard.run == "" || n.guard.durable
	n.guard.run, n.guard.durable = run, info.durable()
	n.guard.trusted = n.conf.Trusted && n.guard.durable && before
}

// dialWithin dials until ctx ends. A dialer that does not return then is left behind: that of a
// go-redis client with TLS does not.
func dialWithin(ctx context.Context, o *redis.Options) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := Dialer(o)(ctx, o.Network, o.Addr)
		if err == nil && conn == nil {
			err = errors.New("the dialer returned no connection")
		}
		dialed <- result{conn, err}
	}()
	select {
	case r := <-dialed:
		return r.conn, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-dialed:
		return r.conn, r.err
	case <-time.After(lateDial):
	}
	go func() {
		if r := <-dialed; r.conn != nil {
			_ = r.conn.Close()
		}
	}()
	return nil, context.Cause(ctx)
}

// lateDial is how long a dialer may take to return after its context has ended.
const lateDial = 100 * time.Millisecond

// Dialer returns the caller's dialer, or a dialer that returns when its context ends, with TLS,
// too.
func Dialer(o *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	switch {
	case o.Dialer != nil:
		return o.Dialer
	case o.TLSConfig != nil:
		return (&tls.Dialer{Config: o.TLSConfig}).DialContext
	}
	return redis.NewDialer(o)
}

// DialOnce returns a dialer that returns conn once, and after that only dead connections: the
// client library must not connect again unnoticed.
func DialOnce(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	var dialed atomic.Bool
	return func(context.Context, string, string) (net.Conn, error) {
		if dialed.Swap(true) {
			return deadConn{conn}, nil
		}
		return conn, nil
	}
}

// deadConn fails every transfer. An error of the dialer would do the same, but the client
// library logs those.
type deadConn struct{ net.Conn }

var errDead = errors.New("connection was closed by the master")

func (deadConn) Read([]byte) (int, error)  { return 0, errDead }
func (deadConn) Write([]byte) (int, error) { return 0, errDead }

// lockProfile sets the options of the client library for a lock: one connection, no repeated
// command or dial, a bound on every exchange, and nothing on the wire beside the requests. By
// default a hung master would take 5 s for each command, and a repeated SET NX would meet its
// own key.
func lockProfile(o *redis.Options, timeout time.Duration) {
	o.Protocol = 2
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = 4 * timeout // several round trips with TLS; no caller waits for it
	o.ReadTimeout = timeout
	o.WriteTimeout = timeout
	o.ContextTimeoutEnabled = true
	o.PoolSize = 1
	o.PipelinePoolSize = -1 // pipelines use the one connection
	o.ConnMaxIdleTime = -1
	o.ConnMaxLifetime = 0
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
