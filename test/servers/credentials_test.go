package servers_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// tokens has credentials that change: by its methods it is each of the three providers.
type tokens struct {
	mu        sync.Mutex
	now       auth.Credentials
	listeners []auth.CredentialsListener
	subscribe atomic.Int64 // calls of Subscribe
}

func newTokens(user, password string) *tokens {
	return &tokens{now: auth.NewBasicCredentials(user, password)}
}

func (p *tokens) get() (user, password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.BasicAuth()
}

func (p *tokens) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	p.subscribe.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, l)
	return p.now, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.listeners = slices.DeleteFunc(p.listeners, func(other auth.CredentialsListener) bool { return other == l })
		return nil
	}, nil
}

func (p *tokens) rotate(user, password string) {
	p.mu.Lock()
	p.now = auth.NewBasicCredentials(user, password)
	now, listeners := p.now, slices.Clone(p.listeners)
	p.mu.Unlock()
	for _, l := range listeners {
		l.OnNext(now)
	}
}

// as returns options of a client that takes its credentials from the provider, by one of the options.
func (p *tokens) as(option, addr string) *redis.Options {
	o := &redis.Options{Addr: addr}
	switch option {
	case "CredentialsProvider":
		o.CredentialsProvider = p.get
	case "CredentialsProviderContext":
		o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
			user, password = p.get()
			return user, password, nil
		}
	case "StreamingCredentialsProvider":
		o.StreamingCredentialsProvider = p
	}
	return o
}

var providers = []string{"CredentialsProvider", "CredentialsProviderContext", "StreamingCredentialsProvider"}

var clientOf = regexp.MustCompile(`(?m)^id=(\d+) .* sub=(\d+) .* user=(\w+) `)

// connections returns the ids of the connections of some users, by "user requests" or "user subscription".
func connections(t testing.TB, c *locktest.Cluster) []map[string]string {
	t.Helper()
	all := make([]map[string]string, len(c.Nodes))
	for i, n := range c.Nodes {
		all[i] = make(map[string]string)
		for _, m := range clientOf.FindAllStringSubmatch(n.ClientList(t.Context()).Val(), -1) {
			kind := "requests"
			if m[2] != "0" {
				kind = "subscription"
			}
			if m[3] != "default" {
				all[i][m[3]+" "+kind] = m[1]
			}
		}
	}
	return all
}

// The password of a user changes under load, and later its name, while leases are held: no lease is
// lost and no call fails. A streaming provider's credentials reach the connection that is there. The
// other providers are asked at the next connection.
func TestCredentialsChangeUnderLoad(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	for _, option := range providers {
		t.Run(option, func(t *redistest.T) {
			t.Parallel()
			c := locktest.Start(t, 3)
			onAll := func(args ...any) {
				t.Helper()
				for _, n := range c.Nodes {
					locktest.Must(t, n.Do(t.Context(), args...).Err())
				}
			}
			onAll("acl", "setuser", "app", "on", ">old", "~*", "&*", "+@all")
			provider := newTokens("app", "old")
			var masters []*redis.Options
			for _, a := range c.Addrs {
				masters = append(masters, provider.as(option, a))
			}
			var lost atomic.Int64
			l, err := redlock.NewFromOptions(masters, redlock.WithLogger(nil), redlock.WithTTL(2*time.Second), redlock.WithMasterTimeout(500*time.Millisecond), // renewed every 0.7 s
				locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost))
			locktest.Must(t, err)
			defer func() { locktest.Must(t, l.Close()) }()
			redistest.Eventually(t, 10*time.Second, func() bool {
				lease, err := l.TryLock(t.Context(), "warm")
				return err == nil && lease.Unlock(t.Context()) == nil
			}, "it connects")
			var held []*redlock.Lease
			for i := range 20 {
				held = append(held, locktest.Lock(t, l, fmt.Sprint("held", i)))
			}
			var calls, failed atomic.Int64
			var load sync.WaitGroup
			stop := make(chan struct{})
			for i := range 8 { // two callers a name: they wait for each other
				load.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(2 * time.Millisecond): // other tests run beside this one
						}
						calls.Add(1)
						lease, err := l.Lock(t.Context(), fmt.Sprint("r", i/2))
						if err == nil {
							err = lease.Unlock(t.Context())
						}
						if err != nil {
							failed.Add(1)
							t.Errorf("a call failed: %v", err)
							return
						}
					}
				})
			}
			wait, cancel := context.WithCancel(t.Context())
			load.Go(func() { _, _ = l.Lock(wait, "held0") }) // so that there are subscriptions
			goOn := func(during time.Duration) {
				for done, until := calls.Load(), time.Now().Add(during); calls.Load() < done+100 || time.Now().Before(until); time.Sleep(time.Millisecond) {
				}
			}
			goOn(0)
			onAll("acl", "setuser", "app", ">new")
			provider.rotate("app", "new")
			onAll("acl", "setuser", "app", "<old")
			goOn(0)
			onAll("client", "kill", "user", "app") // the next connections have the new password
			goOn(time.Second)
			onAll("acl", "setuser", "app2", "on", ">newer", "~*", "&*", "+@all")
			before := connections(t, c)
			provider.rotate("app2", "newer")
			if option == "StreamingCredentialsProvider" {
				redistest.Eventually(t, 10*time.Second, func() bool {
					for i, now := range connections(t, c) {
						if before[i]["app requests"] == "" || now["app2 requests"] != before[i]["app requests"] || now["app subscription"] != "" {
							return false
						}
					}
					return true
				}, "the connections of requests belong to the new user, and those of subscriptions are made anew")
			}
			onAll("acl", "deluser", "app") // ends its connections, if it has any
			goOn(time.Second)
			for i, now := range connections(t, c) {
				if now["app2 requests"] == "" {
					t.Errorf("master %d: got the connections %v, want one of app2", i, now)
				}
			}
			close(stop)
			cancel()
			load.Wait()
			for _, lease := range held {
				locktest.Must(t, lease.Extend(t.Context()))
				locktest.Unlock(t, lease)
			}
			t.Logf("%d calls, %d failed; of %d leases %d lost", calls.Load(), failed.Load(), len(held), lost.Load())
			if lost.Load() > 0 {
				t.Errorf("%d leases were lost", lost.Load())
			}
			locktest.Must(t, l.Close())
			if option == "StreamingCredentialsProvider" && (provider.subscribe.Load() != 3 || len(provider.listeners) != 0) {
				t.Errorf("got %d calls of Subscribe and %d listeners after Close, want 3 and 0", provider.subscribe.Load(), len(provider.listeners))
			}
		})
	}
}

// New credentials that a master refuses, and errors of the provider, are warnings that name the
// provider. The lease stays.
func TestStreamingCredentialsAreRefused(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 1)
	locktest.Must(t, c.Nodes[0].Do(t.Context(), "acl", "setuser", "app", "on", ">right", "~*", "&*", "+@all").Err())
	provider := newTokens("app", "right")
	warnings := make(chan error, 100)
	l, err := redlock.NewFromOptions([]*redis.Options{provider.as("StreamingCredentialsProvider", c.Addrs[0])}, redlock.WithLogger(nil),
		locktest.On(func(e redlock.Event) { warnings <- e.Err }, redlock.EventWarning))
	locktest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	lease := locktest.Lock(t, l, "r")
	for _, test := range []struct {
		do   func()
		says string
	}{
		{func() { provider.rotate("app", "wrong") }, "the new credentials of the StreamingCredentialsProvider are refused: WRONGPASS"},
		{func() { provider.listeners[0].OnError(errors.New("token expired")) }, "the StreamingCredentialsProvider has no new credentials: token expired"},
		{func() { provider.listeners[0].OnNext(nil) }, "the StreamingCredentialsProvider has no new credentials"},
	} {
		test.do()
		if err := locktest.Receive(t, warnings, test.says); !strings.Contains(err.Error(), test.says) {
			t.Errorf("got the warning %v, want %q", err, test.says)
		}
	}
	provider.rotate("app", "right")
	redistest.Eventually(t, 10*time.Second, func() bool { return lease.Extend(t.Context()) == nil }, "the lease is extended")
	locktest.Unlock(t, lease)
}

// What other clients of a server have made of its INFO does not matter: an error of each command is a
// line in it, up to Redis 7.2.4.
func TestServerWithALargeINFO(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 3)
	for _, n := range c.Nodes[:2] {
		pipe := n.Pipeline()
		for i := range 40_000 {
			pipe.Do(t.Context(), "eval", fmt.Sprintf("return redis.error_reply('L%d_aaaaaaaaaaaaaaaaa x')", i), 0)
			if i%1000 == 999 {
				_, _ = pipe.Exec(t.Context())
			}
		}
		if size := len(n.Info(t.Context()).Val()); size <= 1<<20 {
			t.Skipf("this server keeps INFO small: %d bytes", size)
		}
	}
	l := locktest.Open(t, c.Addrs)
	locktest.Unlock(t, locktest.Lock(t, l, "r"))
	locktest.ReachAll(t, l)
}
