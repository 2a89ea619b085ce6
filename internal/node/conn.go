package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file makes a node's connections, one after the other. The dialer is that of the options or of
// the client library. The node then writes and reads by itself, because the client library would
// log failures, repeat commands, and lose what a server says before it closes.

// link is one connection.
type link struct {
	conn  net.Conn
	in    *resp.Reader
	out   []byte // scratch space of what is written
	login credentials

	server string                // identity of the server at the other end, "" if that is not known
	knows  map[*wire.Script]bool // which scripts the server has run
	fresh  bool                  // nothing was sent yet but by the handshake
	heard  clock.Instant         // when something was last received
	proof  string                // that the node has taken what this client stands for; "" if the client has to join
	joined clock.Instant         // when this client last joined
	view   int64                 // which servers it knew then: see Set.view
	told   int64                 // the largest TTL with which it has joined, ms

	quarantine time.Duration // for which it knew then that a node has no vote
	armed      clock.Instant // when the reader looks at the time; never if it does not
	missed     time.Duration // by how much the reader's last look at a timeout came too late; 0 if it did not
}

func (l *link) close() { _ = l.conn.Close() } // an error does not matter: the connection is given up

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
	var l *link
	login, err := within(n, func(ctx context.Context) (credentials, error) { return n.provider.credentials(ctx, n.set.quit) })
	if err == nil {
		n.sent.Store(&login.password)
		var addrs []string
		n.looking.Store(true)
		addrs, err = lookUp(n.set.quit, &n.opt)
		n.looking.Store(false)
		if err == nil {
			l, err = within(n, func(ctx context.Context) (*link, error) { return n.open(ctx, addrs, login, out) })
		}
		if err = nodeFailure(hinted(err)); IsTimeout(err) {
			err = ErrNoConnection // which of its steps took too long makes no difference
		}
	}
	err = n.printable(err)
	now := n.now()
	n.mu.Lock()
	if err != nil {
		if s := n.provider.stream; s != nil && errors.Is(err, reason.Permission) {
			s.renew.Store(true)
		}
		n.goDownLocked(err, now, out)
	} else {
		n.link = l
		n.linked.Store(true)
		if s := n.provider.stream; s != nil {
			s.renewLocked()
		}
		n.comeUpLocked(now, out)
		n.set.running.Go(func() error { n.read(l); return nil })
	}
	n.mu.Unlock()
	out.tell(n, n.now())
}

// within calls a step of connecting, which ends after the time for dialling, or with the Set.
func within[T any](n *Node, step func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(n.set.quit, n.opt.DialTimeout)
	defer cancel()
	return step(ctx)
}

// open dials, logs in and greets.
func (n *Node) open(ctx context.Context, addrs []string, login credentials, out *outcomes) (*link, error) {
	conn, err := dialWithin(ctx, &n.opt, addrs)
	if err != nil {
		n.set.ids.lost(n.index)
		return nil, err
	}
	l := &link{
		conn: conn, login: login,
		knows: make(map[*wire.Script]bool), fresh: true, armed: clock.Never,
	}
	l.in = resp.NewReader(arrivals{n, l})
	l.in.Hide = n.withoutPassword
	err = logIn(ctx, conn, l.in, login, &n.opt, n.conf.Timeout)
	if err == nil {
		l.heard = n.now()
		err = n.greet(ctx, l, out)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// logIn authenticates a new connection, selects the database and names the connection. The last
// command is needed by every connection, so that each server has something to answer.
func logIn(ctx context.Context, conn net.Conn, in *resp.Reader, login credentials, o *redis.Options, timeout time.Duration) error {
	var b []byte
	var names []string
	if login != (credentials{}) {
		b, names = login.append(b), append(names, "AUTH")
	}
	if o.DB != 0 {
		b, names = appendWords(b, "select", strconv.Itoa(o.DB)), append(names, "SELECT")
	}
	if o.ClientName != "" {
		b, names = appendWords(b, "client", "setname", o.ClientName), append(names, "CLIENT SETNAME")
	}
	b, names = appendWords(b, "time"), append(names, "TIME")
	_, err := converse(ctx, conn, in, timeout, b, names, func(name string, reply any) error {
		refused, ok := reply.(resp.Error)
		switch {
		case !ok, name == "AUTH" && authRefused(refused) == nil:
			return nil
		case name == "AUTH" && lasting(refused) != nil: // in whatever words
			return &Marked{reason.Permission, firstSentence(refused)}
		}
		return firstSentence(refused)
	})
	return err
}

// firstSentence cuts the advice that a server in protected mode gives: 900 bytes.
func firstSentence(err resp.Error) resp.Error {
	if first, _, long := strings.Cut(string(err), ". "); long {
		return resp.Error(first)
	}
	return err
}

func appendWords(b []byte, words ...string) []byte {
	b = resp.AppendCommand(b, len(words))
	for _, w := range words {
		b = resp.AppendString(b, w)
	}
	return b
}

// converse sends commands on a connection that nothing else uses, and returns the replies. accept
// returns an error for a reply behind which no other is awaited.
func converse(ctx context.Context, conn net.Conn, in *resp.Reader, timeout time.Duration, b []byte, names []string, accept func(name string, reply any) error) ([]any, error) {
	deadline := time.Now().Add(timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	defer func() { _ = conn.SetDeadline(time.Time{}) }() // fails on a connection that is closed
	_, unsent := conn.Write(b)
	replies := make([]any, 0, len(names))
	for _, name := range names {
		// If the write failed, too: a server that closes at once may have said why.
		reply, err := in.Value()
		switch {
		case err == nil:
			err = accept(name, reply)
		case unsent != nil && IsTimeout(err):
			err = hungUp(name, unsent)
		default:
			err = hungUp(name, err)
		}
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// HangUp is the error of a server that ends a new connection instead of answering.
type HangUp struct {
	What string // it did not answer: a command, or the TLS handshake
	Err  error
}

func (e *HangUp) Error() string {
	how := e.Err
	if code := syscall.Errno(0); errors.As(e.Err, &code) {
		how = code // without the ports, which differ each time
	}
	return fmt.Sprintf("the server closed the new connection at %s: %v", e.What, how)
}
func (e *HangUp) Unwrap() error { return e.Err }

// hungUp returns an error of a new connection as a HangUp, if it is one.
func hungUp(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return &HangUp{what, err}
	}
	return err
}

// greet asks the server at the other end of a connection for its identity.
func (n *Node) greet(ctx context.Context, l *link, out *outcomes) error {
	told := n.exchangeAlone(ctx, l, "INFO", infoTask())
	if told.err != nil {
		return told.err
	}
	a := &Audit{MarkerErr: ErrGuardOff}
	var err error
	if a.Info, a.InfoErr, err = readInfo(told.values); err != nil {
		return err
	}
	if err := a.Info.usable(); err != nil {
		return err
	}
	probed := n.exchangeAlone(ctx, l, "EVAL", n.probeTask())
	if probed.err != nil {
		return probed.err
	}
	if a.Lacks, err = readProbe(probed.values); err != nil {
		return err
	}
	if n.conf.Trusted {
		told := n.exchangeAlone(ctx, l, "CONFIG GET", diskTask())
		if told.err != nil {
			return told.err
		}
		a.Info.Disk = readDisk(told.values[0])
	}
	if err := n.set.ids.enroll(n.index, a.Info.RunID); err != nil {
		return err
	}
	n.mu.Lock()
	n.identifyLocked(l, a.Info)
	n.mu.Unlock()
	began := n.now()
	if n.guard.on {
		told := n.exchangeAlone(ctx, l, "EVAL", n.markerTask(wire.Look, Marker{}))
		if told.err != nil {
			return told.err
		}
		n.mu.Lock()
		a.Marker, a.MarkerErr = n.readMarker(told.values[0], told.sent, told.received, out)
		n.mu.Unlock()
		if a.MarkerErr == ErrStale {
			return ErrStale
		}
	}
	a.RoundTrip = n.now().Sub(began)
	if a.MarkerErr != nil { // without the marker's reply, the node's clock is still needed
		told := n.exchangeAlone(ctx, l, "TIME", n.sampleTask())
		if told.err != nil {
			return told.err
		}
		micros, err := readTime(told.values[0])
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.observeLocked(micros, told.sent, told.received, out)
		n.mu.Unlock()
		a.RoundTrip = n.now().Sub(began)
	}
	n.mu.Lock()
	n.standLocked(func(s *Standing) { s.Hash = a.hashed(n.addr) })
	n.seeLocked(a.Marker.was)
	n.answeredLocked(n.now())
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

// readTime reads the reply of TIME, in microseconds.
func readTime(reply any) (micros int64, err error) {
	var parts [2]string
	if _, err := scan(reply, &parts[0], &parts[1]); err != nil {
		return 0, err
	}
	seconds, err0 := strconv.ParseUint(parts[0], 10, 40)
	rest, err1 := strconv.ParseUint(parts[1], 10, 40)
	if micros = int64(seconds*1_000_000 + rest); err0 != nil || err1 != nil || !clockwatch.Plausible(micros) {
		return 0, ErrBadReply
	}
	return micros, nil
}

// exchangeAlone runs a task on a connection that nothing else uses yet. name is that of its command.
func (n *Node) exchangeAlone(ctx context.Context, l *link, name string, t *task) (a answers) {
	a.sent = n.set.watch.Moment(n.now())
	b := t.write(n, l, n.set.watch.Median(a.sent), nil)
	a.values, a.err = converse(ctx, l.conn, l.in, n.conf.Timeout, b, slices.Repeat([]string{name}, t.replies), func(string, any) error { return nil })
	a.received = n.now()
	return a
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
		if run = n.conf.Rules.Run(n.guard.run, run); isSame(n.guard.run, run) {
			run = n.guard.run
		} else {
			n.former = clock.Instant(n.heard.Load())
		}
	}
	if run != n.guard.run && !(n.conf.Trusted && n.guard.run != "") { // or what was trusted is that clock, too
		n.enterLocked(replaced)
		n.set.watch.Forget(n.index)
	}
	// Writes from before a restart are on disk only if the server was durable before it, too.
	before := n.guard.run == "" || n.guard.durable
	n.guard.run, n.guard.durable = run, info.durable()
	n.guard.trusted = n.conf.Trusted && n.guard.durable && before
}

// lookupTime bounds how long name servers may take, beside the time for a connection: they retry after 5 s.
const lookupTime = 6 * time.Second

// lookUp returns the addresses to dial, one after the other: those of the host's name. A dialer of the caller gets the name.
func lookUp(ctx context.Context, o *redis.Options) ([]string, error) {
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil || o.Dialer != nil || o.Network == "unix" || net.ParseIP(host) != nil {
		return []string{o.Addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip"+strings.TrimPrefix(o.Network, "tcp"), host)
	switch {
	case IsTimeout(err):
		return nil, fmt.Errorf("%w: %w", ErrNoConnection, ErrLookup)
	case err != nil:
		return nil, &net.OpError{Op: "dial", Net: o.Network, Err: err}
	}
	addrs := make([]string, len(ips))
	for i, ip := range ips {
		addrs[i] = net.JoinHostPort(ip.Unmap().String(), port)
	}
	return addrs, nil
}

// dialWithin dials some addresses, one after the other, until ctx ends. A dialer that does not return then is left behind:
// that of a go-redis client with TLS does not.
func dialWithin(ctx context.Context, o *redis.Options, addrs []string) (net.Conn, error) {
	var first error
	for i, addr := range addrs {
		one, cancel := ctx, context.CancelFunc(func() {})
		if end, limited := ctx.Deadline(); limited && i < len(addrs)-1 {
			one, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addrs)-i))
		}
		conn, err := dialOne(one, o, addr)
		cancel()
		if err == nil {
			return conn, nil
		}
		first = cmp.Or(first, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

func dialOne(ctx context.Context, o *redis.Options, addr string) (net.Conn, error) {
	dial, name := dialer(o)
	dialling := callOutside(name, func() (net.Conn, error) {
		conn, err := dial(ctx, o.Network, addr)
		switch v := reflect.ValueOf(conn); {
		case speaksForOthers(err):
			return nil, errors.New(err.Error())
		case err != nil && o.TLSConfig != nil:
			return nil, hungUp("the TLS handshake", err)
		case err != nil:
			return nil, err // conn may hold a nil pointer
		case conn == nil, v.Kind() == reflect.Pointer && v.IsNil():
			return nil, errors.New("the dialer returned no connection")
		}
		return conn, nil
	})
	r, returned := dialling.await(ctx)
	if !returned {
		dialling.leave(func(conn net.Conn) { _ = conn.Close() })
		return nil, context.Cause(ctx)
	}
	return r.value, r.err
}

// speaksForOthers reports whether an error of a dialer matches what is not for a dialer to say: that the context of
// a caller has ended, an error of this library, as of a tunnel that takes locks itself, or a word of redlock.Reason.
func speaksForOthers(err error) bool {
	if err == nil {
		return false
	}
	if _, hasWord := err.(interface{ Reason() string }); hasWord || err == context.Canceled || strings.HasPrefix(err.Error(), "redlock: ") {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return speaksForOthers(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), speaksForOthers)
	}
	return errors.Is(err, context.Canceled)
}

// dialer returns the caller's dialer, or a dialer that returns when its context ends, with TLS,
// too. option is the name of the option whose code it runs.
func dialer(o *redis.Options) (dial func(ctx context.Context, network, addr string) (net.Conn, error), option string) {
	switch {
	case o.Dialer != nil:
		return o.Dialer, "Dialer"
	case o.TLSConfig != nil:
		conf := o.TLSConfig
		if host, _, err := net.SplitHostPort(o.Addr); err == nil && conf.ServerName == "" {
			conf = conf.Clone()
			conf.ServerName = host // and not the address that is dialled
		}
		return (&tls.Dialer{Config: conf}).DialContext, "TLSConfig"
	}
	return redis.NewDialer(o), "dialer"
}
