package servers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/wire"
)

// metered is a proxy in front of a real server that counts the commands, and refuses all of them while
// the quota is used up, as a provider does.
type metered struct {
	net.Listener
	upstream string
	only     string // refuses commands with this text alone
	commands atomic.Int64
	refuses  atomic.Pointer[string]
	lies     atomic.Bool // the next command that it refuses is carried out all the same
}

func meter(t testing.TB, upstream string) *metered {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	locktest.Must(t, err)
	m := &metered{Listener: l, upstream: upstream}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { m.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return m
}

func (m *metered) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", m.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
	for in := bufio.NewReader(client); ; {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		m.commands.Add(1)
		why := m.refuses.Load()
		if why == nil || !strings.Contains(command, m.only) {
			_, _ = io.WriteString(server, command)
			continue
		}
		if m.lies.Swap(false) {
			m.carryOut(command)
		}
		_, _ = io.WriteString(client, *why+"\r\n")
	}
}

// carryOut sends a command to the server, and drops the reply.
func (m *metered) carryOut(command string) {
	c, err := net.Dial("tcp", m.upstream)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, command)
	_, _ = c.Read(make([]byte, 1))
}

// readCommand reads a command as it is on the wire.
func readCommand(in *bufio.Reader) (string, error) {
	var raw strings.Builder
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	raw.WriteString(line)
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	for range n {
		head, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		raw.WriteString(head)
		k, _ := strconv.Atoi(strings.TrimSpace(head[1:]))
		if _, err := io.CopyN(&raw, in, int64(k+2)); err != nil {
			return "", err
		}
	}
	return raw.String(), nil
}

// Nothing is asked more often because it is refused: after the first second a resource that is waited
// for costs a master 5 commands a second, and all resources together cost it 50. When the refusals end,
// the next attempt is granted.
//
// Source: ALGORITHM section 5, "Refusals".
func TestRefusedIsAskedSeldom(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	for _, test := range []struct {
		name       string
		refuse     func(ctx context.Context, c *redis.Client, m *metered) error
		heal       func(ctx context.Context, c *redis.Client, m *metered) error
		resources  []int // that callers wait for; the first in each run
		recognized string
	}{
		{"out of memory", func(ctx context.Context, c *redis.Client, _ *metered) error {
			return c.ConfigSet(ctx, "maxmemory", "1").Err()
		}, func(ctx context.Context, c *redis.Client, _ *metered) error {
			return c.ConfigSet(ctx, "maxmemory", "0").Err()
		}, []int{100, 1, 1000}, "OOM"},
		{"a provider's quota", func(_ context.Context, _ *redis.Client, m *metered) error {
			text := "-ERR max daily request limit exceeded. Limit: 10000, Usage: 10000."
			m.refuses.Store(&text)
			return nil
		}, func(_ context.Context, _ *redis.Client, m *metered) error {
			m.refuses.Store(nil)
			return nil
		}, []int{1, 100}, "limit exceeded"},
		{"a proxy's words", func(_ context.Context, _ *redis.Client, m *metered) error {
			text := "-upstream failure"
			m.refuses.Store(&text)
			return nil
		}, func(_ context.Context, _ *redis.Client, m *metered) error {
			m.refuses.Store(nil)
			return nil
		}, []int{1, 100}, "upstream failure"},
	} {
		for _, n := range test.resources[:redistest.Rounds(1, len(test.resources))] {
			t.Run(fmt.Sprintf("%s, %d callers", test.name, n), func(t *redistest.T) {
				t.Parallel()
				procs := locktest.Masters(t, 3)
				var clients []*redis.Client
				var meters []*metered
				var addrs []string
				for _, p := range procs {
					clients = append(clients, redistest.Client(t, p.Addr()))
					m := meter(t, p.Addr())
					meters, addrs = append(meters, m), append(addrs, m.Addr().String())
				}
				l := locktest.Open(t, addrs)
				locktest.ReachAll(t, l)
				for i := range procs {
					locktest.Must(t, test.refuse(t.Context(), clients[i], meters[i]))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				first := make(chan time.Time, n)
				var waiting sync.WaitGroup
				for i := range n {
					waiting.Go(func() {
						lease, err := l.Lock(ctx, fmt.Sprint("r", i))
						if err != nil {
							t.Errorf("Lock: got %v, want a lease", err)
							return
						}
						first <- time.Now()
						locktest.Unlock(t, lease)
					})
				}
				time.Sleep(time.Duration(redistest.Rounds(1500, 6000)) * time.Millisecond) // the list of masters is sent again after 5.2 s
				began := time.Now()
				var before []int64
				for _, m := range meters {
					before = append(before, m.commands.Load())
				}
				time.Sleep(2 * time.Second)
				for i, m := range meters {
					asked, took := m.commands.Load()-before[i], time.Since(began).Seconds()
					t.Logf("master %d: %.1f commands a second", i, float64(asked)/took)
					const more = 2 * 3 // the commands of an attempt at each end: the list, the request, a sample of the clock
					if most := min(5*n, 50); float64(asked) > float64(most)*took+more {
						t.Errorf("master %d had %d commands in %.1f s, want %d a second at most", i, asked, took, most)
					}
				}
				_, err := l.TryLock(ctx, "other")
				if err == nil || !strings.Contains(err.Error(), test.recognized) || !errors.Is(err, redlock.ErrNoQuorum) {
					t.Errorf("TryLock: got %v, want %q and %v", err, test.recognized, redlock.ErrNoQuorum)
				}
				healed := time.Now()
				for i := range procs {
					locktest.Must(t, test.heal(t.Context(), clients[i], meters[i]))
				}
				t.Logf("the first lease %v after the end", (<-first).Sub(healed))
				waiting.Wait()
				t.Logf("all leases %v after the end", time.Since(healed))
			})
		}
	}
}

// A proxy may answer by an error for a request that was carried out. The key is released all the same, when
// the proxy passes requests on again.
//
// Source: ALGORITHM section 5, "Refusals".
func TestRefusedAlthoughCarriedOut(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	procs := locktest.Masters(t, 3)
	var meters []*metered
	var addrs []string
	for _, p := range procs {
		m := meter(t, p.Addr())
		m.only = "\r\nredlock:r\r\n"
		meters, addrs = append(meters, m), append(addrs, m.Addr().String())
	}
	l := locktest.Open(t, addrs)
	locktest.ReachAll(t, l)
	time.Sleep(300 * time.Millisecond) // a reply on its way would come in behind an answer of the proxy
	text := "-upstream failure"
	for _, m := range meters {
		m.lies.Store(true)
		m.refuses.Store(&text)
	}
	_, err := l.TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrNoQuorum)
	var clients []*redis.Client
	keys := 0
	for _, p := range procs {
		c := redistest.Client(t, p.Addr())
		n, err := c.Exists(t.Context(), "redlock:r").Result()
		locktest.Must(t, err)
		clients, keys = append(clients, c), keys+int(n)
	}
	if keys < 2 {
		t.Fatalf("%d masters have carried the request out: the test shows nothing", keys)
	}
	for _, m := range meters {
		m.refuses.Store(nil)
	}
	for _, c := range clients {
		redistest.Eventually(t, 5*time.Second, func() bool { // half of the TTL
			n, err := c.Exists(t.Context(), "redlock:r").Result()
			return n == 0 && err == nil
		}, "the key is released")
	}
}

// A refusal that no waiting ends, ends Lock at once, whatever the server's words. The error says which
// command it is about.
//
// Source: ALGORITHM section 5, "Refusals".
func TestRefusedForGood(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	type refusal struct {
		name string
		args []string // of the servers
		path string   // of the URLs
		says string   // instead of the reply to EVAL and EVALSHA
		word string
		text string // in the error
	}
	var list []refusal
	for _, c := range node.Commands {
		if c.Need == node.ForLocks && c.Name != "DEL" { // without which no server starts
			list = append(list, refusal{name: c.Name + " renamed", args: []string{"--rename-command", c.Name, "x" + c.Name}, word: "unsupported", text: c.Name})
		}
	}
	for _, says := range []string{
		"ERR command eval not support for your account", "ERR unknown command 'evalsha'", "command not supported", "ERR EVAL is disabled",
		"ERR This instance does not run Lua", "FORBIDDEN scripts are not allowed here",
	} {
		list = append(list, refusal{name: says, says: says, word: "unsupported", text: says})
	}
	list = append(list, refusal{name: "a database that the server lacks", path: "/99", word: "unsupported", text: "out of range"},
		refusal{name: "protected mode", says: "DENIED Redis is running in protected mode because it is", word: "permission", text: "protected mode"})
	for _, test := range list {
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			var urls []string
			for _, p := range redistest.Masters(t, 3, test.args...) {
				addr := p.Addr()
				if test.says != "" {
					m := meter(t, addr)
					m.only, addr = "EVAL", m.Addr().String()
					text := "-" + test.says
					m.refuses.Store(&text)
				}
				urls = append(urls, "redis://"+addr+test.path)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := locktest.Open(t, urls).Lock(ctx, "r")
			if !errors.Is(err, redlock.ErrMasterSetup) || redlock.Reason(err) != test.word || !strings.Contains(strings.ToUpper(err.Error()), strings.ToUpper(test.text)) {
				t.Errorf("got %v, reason %q; want %q and %q in its text", err, redlock.Reason(err), test.word, test.text)
			}
		})
	}
}

// After SCRIPT FLUSH another client has loaded the script of a batch, and not that of a join. A call that joins costs no vote.
//
// Source: ALGORITHM section 8, "Agreement".
func TestFlushedScripts(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	nodes := redistest.Masters(t, 3)
	l, err := redlock.New(redistest.Addrs(nodes), redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithLogger(nil))
	locktest.Must(t, err)
	defer l.Close()
	first, err := l.Lock(t.Context(), "r")
	locktest.Must(t, err)
	locktest.Must(t, first.Unlock(t.Context()))
	for range 5 {
		lease, err := l.TryLock(t.Context(), "r")
		locktest.Must(t, err)
		locktest.Must(t, lease.Unlock(t.Context()))
		for _, node := range nodes {
			c := redistest.Client(t, node.Addr())
			locktest.Must(t, errors.Join(c.ScriptFlush(t.Context()).Err(), c.ScriptLoad(t.Context(), wire.Requests.Source).Err()))
		}
		time.Sleep(100 * time.Millisecond) // a join is due: the TTL is the largest
	}
}
