package servers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/redlockdebug"
)

// printed checks all that was printed of something.
type printed struct {
	t    testing.TB
	mu   sync.Mutex
	told map[string]bool
}

func (p *printed) text(producer, text string) {
	p.t.Helper()
	leak := locktest.Leaks(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if leak != "" && !p.told[producer] {
		p.told[producer] = true
		p.t.Errorf("%s prints %s", producer, leak)
	}
}

// value prints a value in each way in which programs print.
func (p *printed) value(producer string, v any) {
	p.t.Helper()
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		p.text(producer+" in "+format, fmt.Sprintf(format, v))
	}
	if text, err := json.Marshal(v); err == nil { // functions have no JSON
		p.text(producer+" in JSON", string(text))
	}
	for name, handler := range handlers() {
		var b bytes.Buffer
		slog.New(handler(&b)).Info("text", "value", v)
		p.text(producer+" in "+name, b.String())
	}
}

func handlers() map[string]func(*bytes.Buffer) slog.Handler {
	return map[string]func(*bytes.Buffer) slog.Handler{
		"slog's text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"slog's JSON": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	}
}

// all uses a Locker in all ways, prints what comes of it, and closes it. The Locker itself is printed
// when nothing in it changes any more.
func (p *printed) all(l *redlock.Locker) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	_, err := l.TryLock(ctx, "r") // no master grants it
	p.value("TryLock", err)
	waiting, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	_, err = l.Lock(waiting, "r")
	stop()
	p.value("Lock", err)
	p.value("WhyWaiting", inside.Of(l).WhyWaiting("r"))
	_, err = l.Adopt(ctx, locktest.Handle("r", "AAAAAAAAAAAAAAAAAAAAAA;label", 1))
	p.value("Adopt", err)
	p.value("Bootstrap", admin.Bootstrap(ctx, l))
	report, err := admin.Check(ctx, l)
	p.value("Check", report)
	p.value("the error of Check", err)
	in, err := admin.Inspect(ctx, l, "r")
	p.value("Inspect", in)
	p.value("the error of Inspect", err)
	for in, err := range admin.List(ctx, l) {
		p.value("List", in)
		p.value("the error of List", err)
	}
	in, err = admin.Break(ctx, l, "r")
	p.value("Break", in)
	p.value("the error of Break", err)
	p.value("Stats", l.Stats())
	settings, _ := inside.Of(l).Settings()
	p.value("Settings", settings)
	for _, query := range []string{"", "?format=json"} {
		w := httptest.NewRecorder()
		redlockdebug.Handler(l).ServeHTTP(w, httptest.NewRequest("GET", "/"+query, nil))
		p.text("redlockdebug"+query, w.Body.String())
	}
	p.text("expvar", redlockdebug.Var(l).String())
	p.value("Close", l.Close())
	p.value("the Locker", l)
}

// watched returns options for a Locker whose events and log are checked. close checks the log.
func (p *printed) watched() (opts []redlock.Option, end func()) {
	var text, asJSON locktest.Buffer
	level := &slog.HandlerOptions{Level: slog.LevelDebug - 4}
	log := slog.New(slog.NewMultiHandler(slog.NewTextHandler(&text, level), slog.NewJSONHandler(&asJSON, level)))
	opts = []redlock.Option{
		redlock.WithLogger(log), redlock.WithTrustedDisk(),
		redlock.WithObserver(func(e redlock.Event) { p.value("event "+e.Kind.String(), e) }),
		redlock.WithTracer(func(context.Context, string, string) func(*redlock.Lease, error) {
			return func(_ *redlock.Lease, err error) { p.value("the tracer's error", err) }
		}),
	}
	return opts, func() {
		p.text("the log", text.String())
		p.text("the log in JSON", asJSON.String())
		if text.String() == "" {
			p.t.Error("nothing was logged")
		}
	}
}

// ways are the ways to give a password.
func ways(addrs []string) map[string]func(opts ...redlock.Option) (*redlock.Locker, error) {
	urls := make([]string, len(addrs))
	for i, addr := range addrs {
		urls[i] = "redis://default:" + locktest.Secret + "@" + addr
	}
	fromOptions := func(set func(*redis.Options)) func(opts ...redlock.Option) (*redlock.Locker, error) {
		return func(opts ...redlock.Option) (*redlock.Locker, error) {
			var list []*redis.Options
			for _, addr := range addrs {
				o := &redis.Options{Addr: addr}
				set(o)
				list = append(list, o)
			}
			return redlock.NewFromOptions(list, opts...)
		}
	}
	return map[string]func(opts ...redlock.Option) (*redlock.Locker, error){
		"URL":     func(opts ...redlock.Option) (*redlock.Locker, error) { return redlock.New(urls, opts...) },
		"options": fromOptions(func(o *redis.Options) { o.Password = locktest.Secret }),
		"provider": fromOptions(func(o *redis.Options) {
			o.CredentialsProvider = func() (string, string) { return "default", locktest.Secret }
		}),
		"provider with a context": fromOptions(func(o *redis.Options) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "default", locktest.Secret, nil }
		}),
	}
}

// No control character that a client or a master has written, and no password, is in what the library
// prints: in errors, in the log, in events, in what package admin and redlockdebug show.
func TestPrinted(outer *testing.T) {
	t := redistest.Timed(outer)
	clientLog := locktest.RedisLog(t)
	t.Run("all", func(t *redistest.T) {
		for name, lie := range locktest.Lies() {
			for _, way := range []string{"URL", "options", "provider", "provider with a context"} {
				if way != "URL" && lie.Step != "auth" {
					continue // the password is sent there
				}
				t.Run(name+", password by "+way, func(t *redistest.T) {
					t.Parallel()
					masters, addrs := locktest.Hostile(t, 3)
					for _, m := range masters {
						m.Tell(lie)
					}
					p := &printed{t: t, told: make(map[string]bool)}
					redistest.Eventually(t, 30*time.Second, func() bool {
						opts, end := p.watched()
						l, err := ways(addrs)[way](opts...)
						locktest.Must(t, err)
						p.all(l)
						end()
						told := masters[0].Told() + masters[1].Told() + masters[2].Told()
						return lie.Step == "" || lie.Step == "subscribe" || told > 0 // see TestPrintedOfASubscription
					}, "the master comes to lie")
				})
			}
		}
	})
	p := &printed{t: t, told: make(map[string]bool)}
	p.text("the client library", clientLog.String())
}

// A master that cannot call a waiting process is in a warning after two seconds.
func TestPrintedOfASubscription(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.TakesSeconds(t)
	masters, addrs := locktest.Hostile(t, 1)
	masters[0].Tell(locktest.Lie{Step: "subscribe", Busy: true, Reply: "-ERR " + strings.ReplaceAll(locktest.Mark, "\n", "") + locktest.Secret + "\r\n"})
	p := &printed{t: t, told: make(map[string]bool)}
	opts, end := p.watched()
	var warned sync.WaitGroup
	warned.Add(1)
	once := sync.OnceFunc(warned.Done)
	opts = append(opts, redlock.WithObserver(func(e redlock.Event) {
		if e.Kind == redlock.EventWarning && strings.Contains(e.Err.Error(), "subscription") {
			once()
		}
	}))
	l, err := ways(addrs)["options"](opts...)
	locktest.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() { warned.Wait(); cancel() }()
	_, err = l.Lock(ctx, "r")
	p.value("Lock", err)
	if ctx.Err() != context.Canceled {
		t.Error("got no warning of the subscription")
		once()
	}
	locktest.Must(t, l.Close())
	end()
}

// Errors that are no reply keep what they match: those of a dialer and of TLS.
func TestPrintedOfConnections(t *testing.T) {
	ca := newAuthority(t)
	name := "masters\x1b[31m\u202e.test"
	ca.cert.Subject.CommonName = name
	certPEM, keyPEM := ca.issue()
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	locktest.Must(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	locktest.Must(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = conn.(*tls.Conn).Handshake(); _ = conn.Close() }()
		}
	}()
	custom := fmt.Errorf("%s, of %s: %w", locktest.Mark, locktest.Secret, syscall.EHOSTUNREACH)
	for what, o := range map[string]*redis.Options{
		"a dialer":                      {Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, custom }},
		"a certificate for other names": {Addr: listener.Addr().String(), TLSConfig: &tls.Config{RootCAs: ca.pool(), ServerName: name}},
		"an unknown authority":          {Addr: listener.Addr().String(), TLSConfig: &tls.Config{ServerName: "masters.test"}},
	} {
		t.Run(what, func(t *testing.T) {
			o.Password = locktest.Secret
			p := &printed{t: t, told: make(map[string]bool)}
			opts, end := p.watched()
			l, err := redlock.NewFromOptions([]*redis.Options{o}, append(opts, redlock.WithMasterTimeout(2*time.Second))...)
			locktest.Must(t, err)
			_, err = l.TryLock(t.Context(), "r")
			var certificate *tls.CertificateVerificationError
			if !errors.Is(err, syscall.EHOSTUNREACH) && !errors.As(err, &certificate) {
				t.Errorf("TryLock: got %v, want what the connection met", err)
			}
			p.all(l)
			end()
		})
	}
}

// Real masters: what a hostile client writes into them, an ACL user with an odd name, and a server
// whose AUTH has another name, which repeats the password.
func TestPrintedOfRealMasters(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	odd := "u\x1b[31m\u202e\u009b"
	for _, n := range c.Nodes {
		lists := fmt.Sprintf("%d 10.0.0.1:1 10.0.0.2:1%s\tlabel%s", time.Now().UnixMilli(), locktest.Mark[:5]+"\u202e", locktest.Mark[:5])
		locktest.Must(t, n.HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "lists", lists).Err())
		locktest.Must(t, n.Set(t.Context(), redlock.DefaultKeyPrefix+"r", locktest.Mark, time.Minute).Err())
		locktest.Must(t, n.Set(t.Context(), redlock.DefaultKeyPrefix+locktest.Mark, "AAAAAAAAAAAAAAAAAAAAAA;"+locktest.Mark+"|64", time.Minute).Err())
		locktest.Must(t, n.ZAdd(t.Context(), redlock.DefaultKeyPrefix+"r~queue", redis.Z{Score: 1, Member: locktest.Mark}).Err())
		locktest.Must(t, n.Do(t.Context(), "ACL", "SETUSER", odd, "on", ">"+locktest.Secret, "~*", "+info", "+time", "+ping").Err())
	}
	renamed := redistest.Addrs(redistest.Masters(t, 1, "--rename-command", "HELLO", "HALLO", "--rename-command", "AUTH", "LOGIN"))
	withUser := func(addrs []string, user string) (list []*redis.Options) {
		for _, addr := range addrs {
			list = append(list, &redis.Options{Addr: addr, Username: user, Password: locktest.Secret})
		}
		return list
	}
	for what, list := range map[string][]*redis.Options{
		"what a client has written": withUser(c.Addrs, ""),
		"a user with an odd name":   withUser(c.Addrs, odd),
		"AUTH by another name":      withUser(renamed, "default"),
	} {
		if what == "what a client has written" {
			for _, o := range list {
				o.Password = ""
			}
		}
		t.Run(what, func(t *redistest.T) {
			p := &printed{t: t, told: make(map[string]bool)}
			opts, end := p.watched()
			l, err := redlock.NewFromOptions(list, opts...)
			locktest.Must(t, err)
			p.all(l)
			end()
		})
	}
}

// Whatever a server replies, and whatever error a dialer returns: their texts are printable in the
// errors of calls.
func FuzzPrinted(f *testing.F) {
	f.Add(strings.ReplaceAll(locktest.Mark, "\n", "")+locktest.Secret, locktest.Mark)
	f.Add("ERR unknown command 'AUTH', with args beginning with: '"+locktest.Secret+"'", "held by\u202e")
	f.Fuzz(func(t *testing.T, text, resource string) {
		if strings.Contains(resource, locktest.Secret) {
			t.Skip() // it is the caller's
		}
		var refused error
		in := resp.NewReader(strings.NewReader("-" + text + "\r\n"))
		in.Hide = func(text string) string { return strings.ReplaceAll(text, locktest.Secret, "***") }
		if v, err := in.Value(); err != nil {
			refused = err
		} else {
			refused = v.(error)
		}
		other := errors.New(strings.ReplaceAll(text, locktest.Secret, ""))
		if strings.Contains(other.Error(), locktest.Secret) {
			t.Skip() // two halves
		}
		e := &redlock.QuorumError{Op: "lock", Resource: resource, Need: 1, Total: 2, Reasons: []error{redlock.ErrNotAcquired, other}, Masters: []*redlock.MasterError{
			{Master: "a:1", Op: "acquire", Err: refused}, {Master: "b:1", Op: "acquire", Err: other},
		}}
		p := &printed{t: t, told: make(map[string]bool)}
		p.value("a QuorumError", e)
		for _, m := range e.Masters {
			p.text("a MasterError", m.Error())
		}
		if most := len("redlock: acquire on a:1: ") + resp.MaxError; len(e.Masters[0].Error()) > most {
			t.Errorf("got %d bytes, want at most %d: %v", len(e.Masters[0].Error()), most, e.Masters[0])
		}
	})
}

// Control: each part of what must not be printed is found where it is printed as it is.
func TestLeaksAreFound(t *testing.T) {
	for _, part := range []string{"\x1b", "\a", "\r", "\nFORGED", "\u202e", "\u009b", "\xff", "\x00", locktest.Secret} {
		if !strings.Contains(locktest.Mark+locktest.Secret, part) {
			t.Errorf("%q is not marked", part)
		}
		for _, text := range []string{part, "some text\n" + part + " and more\n"} {
			if locktest.Leaks(text) == "" {
				t.Errorf("%q: got nothing, want it to be found", text)
			}
		}
	}
	if leak := locktest.Leaks("größe 東京\n\tline \\x1b\n\ufffd"); leak != "" {
		t.Errorf("got %s, want nothing to be found", leak)
	}
}
