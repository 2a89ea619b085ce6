package servers_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/redistest"
)

// server is a real master with all ways to connect to it.
type server struct {
	plain, withTLS, socket string
	clients                map[int]*redis.Client // by database
	identity               string
}

// column is one way to give the options of a master.
type column struct {
	name      string
	tls, unix bool
	db        int
	options   func(addr string) *redis.Options
	seen      string // in the server's list of clients
	alone     bool   // only one master can have such options
}

// columns are the options of NewFromOptions, each by itself, and those of whole clients.
func columns(t testing.TB, ca *authority, sentinelOf func(addr string) string) []column {
	issued, err := tls.X509KeyPair(ca.issue())
	locktest.Must(t, err)
	var mu sync.Mutex
	inUse := func(c *redis.Client) *redis.Options { // the client of a service, which is used as well
		mu.Lock()
		defer mu.Unlock()
		t.Cleanup(func() { _ = c.Close() })
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("the client of the service: %v", err)
		}
		return c.Options()
	}
	byTokens := func(option string) func(addr string) *redis.Options {
		return func(addr string) *redis.Options { return newTokens("app", "secret").as(option, addr) }
	}
	roots := &tls.Config{RootCAs: ca.pool()}
	return []column{
		{name: "Dialer", options: func(addr string) *redis.Options {
			return &redis.Options{Addr: addr, Dialer: (&net.Dialer{}).DialContext}
		}},
		{name: "TLSConfig", tls: true, options: func(addr string) *redis.Options { return &redis.Options{Addr: addr, TLSConfig: roots} }},
		{name: "TLSConfig with a client certificate", tls: true, options: func(addr string) *redis.Options {
			return &redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{issued}}}
		}},
		{name: "CredentialsProvider", options: byTokens("CredentialsProvider"), seen: " user=app "},
		{name: "CredentialsProviderContext", options: byTokens("CredentialsProviderContext"), seen: " user=app "},
		{name: "StreamingCredentialsProvider", options: byTokens("StreamingCredentialsProvider"), seen: " user=app "},
		{name: "Username and Password", seen: " user=app ", options: func(addr string) *redis.Options {
			return &redis.Options{Addr: addr, Username: "app", Password: "secret"}
		}},
		{name: "Username alone", seen: " user=open ", options: func(addr string) *redis.Options {
			return &redis.Options{Addr: addr, Username: "open"}
		}},
		{name: "Password alone", seen: " user=default ", options: func(addr string) *redis.Options {
			return &redis.Options{Addr: addr, Password: "any"} // the default user of these servers has none
		}},
		{name: "DB", db: 3, seen: " db=3 ", options: func(addr string) *redis.Options { return &redis.Options{Addr: addr, DB: 3} }},
		{name: "Network unix", unix: true, options: func(addr string) *redis.Options { return &redis.Options{Network: "unix", Addr: addr} }},
		{name: "ClientName", seen: " name=worker ", options: func(addr string) *redis.Options { return &redis.Options{Addr: addr, ClientName: "worker"} }},
		{name: "client.Options()", tls: true, db: 3, seen: " db=3 ", options: func(addr string) *redis.Options {
			return inUse(redis.NewClient(&redis.Options{Addr: addr, TLSConfig: roots, Username: "app", Password: "secret", DB: 3, ClientName: "service",
				DialTimeout: time.Second, PoolSize: 3, MaxRetries: 2})) // its dialer goes on for the second
		}},
		{name: "ParseURL", db: 3, seen: " user=app ", options: func(addr string) *redis.Options {
			o, err := redis.ParseURL("redis://app:secret@" + addr + "/3?client_name=service&dial_timeout=1s&max_retries=2")
			locktest.Must(t, err)
			return inUse(redis.NewClient(o))
		}},
		{name: "ParseURL with TLS", tls: true, seen: " user=app ", options: func(addr string) *redis.Options {
			o, err := redis.ParseURL("rediss://app:secret@" + addr + "?skip_verify=true&dial_timeout=1s")
			locktest.Must(t, err)
			return inUse(redis.NewClient(o))
		}},
		{name: "ParseFailoverURL", alone: true, db: 3, seen: " user=app ", options: func(addr string) *redis.Options {
			o, err := redis.ParseFailoverURL("redis://" + sentinelOf(addr) + "/3?master_name=m&dial_timeout=1s")
			locktest.Must(t, err)
			o.Username, o.Password = "app", "secret" // what a URL has is for Sentinel
			return inUse(redis.NewFailoverClient(o))
		}},
	}
}

// says is in the error of a Locker all of whose masters are in that trouble.
var says = [troubles]string{
	refuses: "connection refused", hangsAtDial: "timeout", hangsInTLS: "timeout", hangsAfter: "timeout",
	answersError: "LOADING", closes: "closed the new connection at ",
}

// cell is one case of the matrix: one way to give options, in one trouble, of one master or of all.
type cell struct {
	t       testing.TB
	number  int
	column  column
	trouble trouble
	all     bool
	servers []*server
	ca      *authority
}

func (c *cell) String() string {
	return fmt.Sprintf("%s, %v, on %s", c.column.name, c.trouble, map[bool]string{false: "one master", true: "all"}[c.all])
}

// notApplicable returns why there is no such case, or "".
func (c *cell) notApplicable() string {
	switch {
	case c.trouble == hangsInTLS && !c.column.tls:
		return "no TLS"
	case c.trouble == hangsAtDial && c.column.unix:
		return "a dial of a socket does not hang"
	case c.trouble == hangsAtDial && !canBeDeaf:
		return "only on Linux"
	case c.all && c.column.alone:
		return "all such options have one address, which New refuses"
	}
	return ""
}

func (c *cell) errorf(format string, args ...any) {
	c.t.Errorf("%v: %s", c, fmt.Sprintf(format, args...))
}

// eventually reports whether cond becomes true.
func (c *cell) eventually(what string, cond func() bool) bool {
	for began := time.Now(); !cond(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			c.errorf("not within a minute: %s", what)
			return false
		}
	}
	return true
}

// run connects, waits for a lock with a subscription, gets into trouble, and out of it.
func (c *cell) run() {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	prefix := fmt.Sprintf("cell%d:", c.number)
	gates := make([]*gate, len(c.servers))
	options, direct := make([]*redis.Options, len(gates)), make([]*redis.Options, len(gates))
	for i, s := range c.servers {
		gates[i] = c.gate(s)
		if options[i] = (&redis.Options{Addr: gates[i].addr, DB: c.column.db}); i == 0 || !c.column.alone {
			options[i] = c.column.options(gates[i].addr)
		}
		direct[i] = &redis.Options{Network: options[i].Network, Addr: options[i].Addr, DB: c.column.db, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", s.plain)
		}}
		if err := s.clients[c.column.db].HSet(ctx, prefix+"~guard", "run", s.identity, "born", 0, "maxttl", 50).Err(); err != nil { // it votes
			c.errorf("%v", err)
			return
		}
	}
	open := func(options []*redis.Options) *redlock.Locker {
		l, err := redlock.NewFromOptions(options, redlock.WithKeyPrefix(prefix), redlock.WithLogger(nil), redlock.WithMasterTimeout(500*time.Millisecond))
		if err != nil {
			c.errorf("NewFromOptions: %v", err)
		}
		return l
	}
	l, holder := open(options), open(direct)
	if l == nil || holder == nil {
		return
	}
	defer func() {
		if err := l.Close(); err != nil {
			c.errorf("Close: %v", err)
		}
		_ = holder.Close()
	}()
	unlock := func(lease *redlock.Lease) error {
		if err := lease.Unlock(ctx); !errors.Is(err, redlock.ErrNoQuorum) { // on a busy machine masters answer late
			return err
		}
		return nil
	}
	works := func() bool {
		lease, err := l.TryLock(ctx, "r")
		return err == nil && unlock(lease) == nil
	}
	up := func() bool {
		for _, m := range l.Stats().Masters {
			if m.State != redlock.MasterUp {
				return false
			}
		}
		return true
	}
	if !c.eventually("well: it works", func() bool { return works() && up() }) {
		return
	}
	// The master in trouble, and the name of a resource whose queue it keeps.
	bad, resource := 0, "busy0"
	for i := 1; locktest.QueueNodeOf(l, resource) != bad; i++ {
		resource = fmt.Sprint("busy", i)
	}
	held, err := holder.Lock(ctx, resource)
	if err != nil {
		c.errorf("the holder: %v", err)
		return
	}
	waited := make(chan error, 1)
	go func() {
		lease, err := l.Lock(ctx, resource)
		if err == nil {
			err = unlock(lease)
		}
		waited <- err
	}()
	defer func() { // it gets the lock, by and by
		if err := unlock(held); err != nil {
			c.errorf("Unlock of the holder: %v", err)
		}
		if err := <-waited; err != nil {
			c.errorf("the waiter: %v", err)
		}
	}()
	if !c.eventually("well: both connections, as the server lists them", func() bool { return c.connected(gates[bad], bad) }) || c.trouble == well {
		return
	}

	for i, g := range gates {
		if i == bad || c.all {
			g.set(c.trouble)
		}
	}
	if c.all {
		c.eventually("the error says "+says[c.trouble], func() bool {
			_, err := l.TryLock(ctx, "r")
			return err != nil && strings.Contains(err.Error(), says[c.trouble])
		})
	} else {
		c.eventually("the master is down because it says "+says[c.trouble], func() bool {
			lease, err := l.Lock(ctx, "r")
			if err == nil {
				err = unlock(lease)
			}
			if err != nil {
				c.errorf("with one master in trouble: %v", err)
			}
			m := l.Stats().Masters[bad]
			return m.State == redlock.MasterDown && strings.Contains(m.Err.Error(), says[c.trouble])
		})
	}
	if c.trouble != refuses && c.trouble != hangsAtDial {
		c.eventually("the connections of requests and of the subscription have met it", func() bool { return gates[bad].meets() >= 4 })
	}
	select {
	case err := <-waited:
		c.errorf("the waiter returned: %v", err)
		waited <- err
	default:
	}

	for _, g := range gates {
		if g.now != well {
			g.set(well)
		}
	}
	c.eventually("it comes back: it works, and all masters are up", func() bool { return works() && up() })
	c.eventually("it comes back: both connections, as the server lists them", func() bool { return c.connected(gates[bad], bad) })
}

func (c *cell) gate(s *server) *gate {
	network, upstream := "tcp", s.plain
	var config *tls.Config
	port, err := masters.FreePort()
	locktest.Must(c.t, err)
	listen := fmt.Sprint("127.0.0.1:", port)
	switch {
	case c.column.tls:
		own, err := tls.X509KeyPair(c.ca.issue())
		locktest.Must(c.t, err)
		upstream, config = s.withTLS, &tls.Config{Certificates: []tls.Certificate{own}}
	case c.column.unix:
		network, upstream, listen = "unix", s.socket, filepath.Join(filepath.Dir(s.socket), fmt.Sprint(c.number))
	}
	return newGate(c.t, network, listen, upstream, config)
}

// connected reports whether the server lists both connections of a Locker, each as it should be. By a
// socket the server does not know its clients apart.
func (c *cell) connected(g *gate, i int) bool {
	requests, subscriptions := 0, 0
	for line := range strings.Lines(c.servers[i].clients[0].ClientList(c.t.Context()).Val()) {
		_, addr, _ := strings.Cut(line, " addr=")
		addr, _, _ = strings.Cut(addr, " ")
		switch {
		case !g.knows(addr) && !c.column.unix, !strings.Contains(line, c.column.seen):
		case strings.Contains(line, " sub=0 "):
			requests++
		default:
			subscriptions++
		}
	}
	return requests >= 1 && subscriptions >= 1
}

// Each option of NewFromOptions is run against real servers in each trouble, for both connections of a
// Locker. One master in trouble is not noticed by callers. Of all masters, the error says what it is.
// Unless tests that take long run, one column is in each trouble, and each other one in one.
func TestOptionsMatrix(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	ca := newAuthority(t)
	servers := make([]*server, 3)
	for i := range servers {
		dir, err := os.MkdirTemp("", "redlock") // a short path
		locktest.Must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		s := &server{socket: filepath.Join(dir, "s"), clients: make(map[int]*redis.Client)}
		p, withTLS := ca.master("--tls-auth-clients", "optional", "--unixsocket", s.socket)
		s.plain, s.withTLS = p.Addr(), withTLS
		for _, db := range []int{0, 3} {
			s.clients[db] = redis.NewClient(&redis.Options{Addr: s.plain, DB: db})
			t.Cleanup(func() { _ = s.clients[db].Close() })
		}
		for user, password := range map[string]string{"app": ">secret", "open": "nopass"} {
			locktest.Must(t, s.clients[0].Do(t.Context(), "acl", "setuser", user, "on", password, "~*", "&*", "+@all").Err())
		}
		s.identity = node.ParseInfo(s.clients[0].Info(t.Context()).Val()).Identity()
		servers[i] = s
	}

	const connections = 2 // that of requests and the subscription: each cell runs both
	var cells, skipped int
	reasons := make(map[string]int)
	var running sync.WaitGroup
	room := make(chan struct{}, 32)
	for i, col := range columns(t, ca, func(addr string) string { return startSentinel(t, addr) }) {
		for tr := well; tr < troubles; tr++ {
			if tr != trouble(i)%troubles && i != 1 && !redistest.Once() {
				continue
			}
			for _, all := range []bool{false, true} {
				c := &cell{t: t, number: cells + skipped, column: col, trouble: tr, all: all, servers: servers, ca: ca}
				if why := c.notApplicable(); why != "" {
					skipped++
					reasons[why] += connections
					continue
				}
				cells++
				room <- struct{}{}
				running.Go(func() {
					defer func() { <-room }()
					c.run()
				})
			}
		}
	}
	running.Wait()
	t.Logf("%d cells, each in trouble and back; %d not applicable: %v", cells*connections, skipped*connections, reasons)
	redistest.Eventually(t, 10*time.Second, func() bool { // a dialer of go-redis with TLS goes on for a second
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		return !strings.Contains(all.String(), "redlock/internal/node.")
	}, "no goroutine of the library is left")
}

// All failover clients have one address. A list can have one of them; more need addresses of their own.
func TestFailoverClientsHaveOneAddress(t *testing.T) {
	o := &redis.Options{Addr: "FailoverClient", Dialer: (&net.Dialer{}).DialContext}
	if _, err := redlock.NewFromOptions([]*redis.Options{o, o, o}); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

// The address of a Sentinel is a mistake that no waiting ends, and the error says what it is.
func TestSentinelIsNoMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	addr := startSentinel(t, redistest.Addrs(redistest.Masters(t, 1))[0])
	for _, url := range []string{"redis://" + addr, "redis://" + addr + "/3"} {
		locker, err := redlock.New([]string{url})
		locktest.Must(t, err)
		_, err = locker.Lock(t.Context(), "a")
		if !errors.Is(err, redlock.ErrMasterSetup) || !strings.Contains(err.Error(), "Sentinel") {
			t.Errorf("%s: got %v, want ErrMasterSetup and the word Sentinel", url, err)
		}
		locktest.Must(t, locker.Close())
	}
}

// startSentinel starts a Sentinel that knows a master as "m", and returns its address.
func startSentinel(t testing.TB, master string) string {
	t.Helper()
	binary, err := masters.LookPath()
	locktest.Must(t, err)
	port, err := masters.FreePort()
	locktest.Must(t, err)
	host, masterPort, err := net.SplitHostPort(master)
	locktest.Must(t, err)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	locktest.Must(t, os.WriteFile(file, fmt.Appendf(nil, "bind 127.0.0.1\nport %d\nsentinel monitor m %s %s 1\n", port, host, masterPort), 0o600))
	cmd := exec.Command(binary, file, "--sentinel")
	locktest.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr := fmt.Sprint("127.0.0.1:", port)
	c := redistest.Client(t, addr)
	for began := time.Now(); c.Ping(t.Context()).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Errorf("Sentinel on %s does not answer", addr)
			break
		}
	}
	return addr
}
