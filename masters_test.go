package redlock

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// secret stands for a password, or a part of a password, in these tests.
const secret = "hunter2"

// A list that cannot work is refused by an error that says what is wrong with it.
func TestNewRefusesMasters(t *testing.T) {
	const good = "127.0.0.1:7001"
	for _, test := range []struct {
		name    string
		masters []string
		want    []string
	}{
		{"no list", nil, []string{"no masters"}},
		{"empty list", []string{}, []string{"no masters"}},
		{"empty address", []string{good, ""}, []string{"master 2", "host:port"}},
		{"no port", []string{"localhost"}, []string{`master 1 ("localhost")`, "host:port"}},
		{"empty port", []string{"localhost:"}, []string{`"localhost:"`, "port"}},
		{"no host", []string{":6379"}, []string{`":6379"`, "host:port"}},
		{"port 0", []string{"localhost:0"}, []string{`"localhost:0"`, "from 1 to 65535"}},
		{"port above the largest", []string{"localhost:65536"}, []string{`"localhost:65536"`, "from 1 to 65535"}},
		{"negative port", []string{"localhost:-1"}, []string{"from 1 to 65535"}},
		{"named port", []string{"localhost:redis"}, []string{"from 1 to 65535"}},
		{"too many colons", []string{"::1:6379"}, []string{"host:port"}},
		{"other scheme", []string{"http://localhost:6379"}, []string{"master 1", "localhost:6379", "redis://"}},
		{"no scheme", []string{"://localhost:6379"}, []string{"redis://"}},
		{"URL with a bad port", []string{"redis://localhost:redis"}, []string{`"redis://localhost:redis"`}},
		{"URL with port 0", []string{"redis://localhost:0"}, []string{"master 1"}},
		{"URL with a port above the largest", []string{"redis://localhost:65536"}, []string{"master 1"}},
		{"URL with a bad database", []string{"redis://localhost:6379/x"}, []string{"master 1"}},
		{"URL with an unknown parameter", []string{"redis://localhost:6379?colour=red"}, []string{`"redis://localhost:6379"`}},
		{"socket without a path", []string{"unix://"}, []string{"master 1"}},
		{"same address twice", []string{good, "127.0.0.1:7002", good}, []string{"master 3", "master 1", good, "independent"}},
		{"same address with another database", []string{"redis://" + good + "/1", "redis://" + good + "/2"}, []string{"master 2", "master 1", good}},
		{"same address as URL and plain", []string{good, "redis://:x@" + good}, []string{"master 2", "master 1", good}},
		{"same socket twice", []string{"unix:///a.sock", "unix:///b.sock", "unix://u:p@/a.sock?db=3"}, []string{"master 3", "master 1", "/a.sock"}},
		{"URL that sets what the library owns", []string{"redis://" + good + "?max_retries=3"}, []string{"master 1", good, "MaxRetries"}},
		{"URL that sets a time-out", []string{"redis://" + good + "?read_timeout=3s"}, []string{"master 1", good, "ReadTimeout", "WithMasterTimeout"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.masters)
			wantConfigError(t, err, test.want...)
		})
	}
}

func TestNewFromOptionsRefusesMasters(t *testing.T) {
	at := func(addr string) *redis.Options { return &redis.Options{Addr: addr} }
	for _, test := range []struct {
		name    string
		masters []*redis.Options
		want    []string
	}{
		{"no list", nil, []string{"no masters"}},
		{"nil entry", []*redis.Options{at("a:1"), nil}, []string{"master 2", "nil"}},
		{"no address", []*redis.Options{{Password: secret}}, []string{"master 1", "no address"}},
		{"same address twice", []*redis.Options{at("a:1"), {Addr: "a:1", DB: 1, Password: secret}}, []string{"master 2", "master 1", "a:1"}},
		{"what the library owns", []*redis.Options{{Addr: "a:1", PoolSize: 10, Password: secret}}, []string{"master 1", "a:1", "PoolSize"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewFromOptions(test.masters)
			wantConfigError(t, err, test.want...)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q has the password", err)
			}
		})
	}
}

// Any number of masters is accepted; with an even one a quorum is more than half.
//
// Source: ALGORITHM section 1, "q = N/2+1".
func TestNewAcceptsAnyNumber(t *testing.T) {
	all := []string{"a:1", "b:1", "c:1", "d:1", "[::1]:6379", "redis://f:1", "rediss://g:1", "unix:///h.sock"}
	for n := 1; n <= len(all); n++ {
		l, err := New(all[:n])
		if err != nil {
			t.Fatalf("%d masters: %v", n, err)
		}
		if got, want := len(l.groups[0].nodes), n; got != want {
			t.Errorf("%d masters: got %d nodes", n, got)
		}
		if err := l.Close(); err != nil {
			t.Errorf("%d masters: %v", n, err)
		}
	}
}

// The user, password, database, TLS and socket of a URL are used.
func TestMasterURL(t *testing.T) {
	type want struct {
		network, addr, user, password string
		db                            int
		serverName                    string // "" for no TLS
	}
	for master, w := range map[string]want{
		"localhost:6379":                          {network: "tcp", addr: "localhost:6379"},
		"[::1]:6379":                              {network: "tcp", addr: "[::1]:6379"},
		"redis://example.net":                     {network: "tcp", addr: "example.net:6379"},
		"redis://[::1]":                           {network: "tcp", addr: "[::1]:6379"},
		"redis://example.net:7000/5":              {network: "tcp", addr: "example.net:7000", db: 5},
		"redis://example.net:7000?db=6":           {network: "tcp", addr: "example.net:7000", db: 6},
		"redis://me:hunter2@example.net:7000":     {network: "tcp", addr: "example.net:7000", user: "me", password: secret},
		"redis://:hunter2@example.net:7000/1":     {network: "tcp", addr: "example.net:7000", password: secret, db: 1},
		"redis://me:a%40b%3Ac%2Fd@example.net":    {network: "tcp", addr: "example.net:6379", user: "me", password: "a@b:c/d"},
		"redis://me:a@b@example.net":              {network: "tcp", addr: "example.net:6379", user: "me", password: "a@b"},
		"rediss://me:hunter2@example.net:7000/2":  {network: "tcp", addr: "example.net:7000", user: "me", password: secret, db: 2, serverName: "example.net"},
		"unix:///run/redis.sock":                  {network: "unix", addr: "/run/redis.sock"},
		"unix://me:hunter2@/run/redis.sock?db=15": {network: "unix", addr: "/run/redis.sock", user: "me", password: secret, db: 15},
	} {
		t.Run(master, func(t *testing.T) {
			l, err := New([]string{master})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			n := l.groups[0].nodes[0]
			opt := n.Options()
			got := want{network: opt.Network, addr: opt.Addr, user: opt.Username, password: opt.Password, db: opt.DB}
			if opt.TLSConfig != nil {
				got.serverName = opt.TLSConfig.ServerName
			}
			if got != w {
				t.Errorf("got %+v, want %+v", got, w)
			}
			if n.Addr() != w.addr {
				t.Errorf("the node is called %q, want %q", n.Addr(), w.addr)
			}
		})
	}
}

// The caller's options are copied, and options that the library does not own are kept.
func TestNewFromOptionsKeepsWhatItDoesNotOwn(t *testing.T) {
	dialed := false
	mine := &redis.Options{
		Addr: "a:1", Username: "me", Password: secret, DB: 3, ClientName: "worker", TLSConfig: &tls.Config{ServerName: "a"},
		Dialer: func(context.Context, string, string) (net.Conn, error) { dialed = true; return nil, net.ErrClosed },
	}
	l, err := NewFromOptions([]*redis.Options{mine})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if mine.PoolSize != 0 || mine.MaxRetries != 0 || mine.MaintNotificationsConfig != nil {
		t.Errorf("the caller's options were changed: %+v", mine)
	}
	got := l.groups[0].nodes[0].Options()
	if got.Username != "me" || got.Password != secret || got.DB != 3 || got.ClientName != "worker" || got.TLSConfig != mine.TLSConfig {
		t.Errorf("got %+v, want what was given", got)
	}
	if _, _ = got.Dialer(t.Context(), "", ""); !dialed {
		t.Error("the dialer is a different one")
	}
}

type noCache struct{ redis.Cache }

type noLimiter struct{ redis.Limiter }

// owned are the options that the library sets itself: how a caller might set each, under the name
// that the error has to contain.
var owned = map[string]func(*redis.Options){
	"Protocol":                            func(o *redis.Options) { o.Protocol = 3 },
	"MaxRetries":                          func(o *redis.Options) { o.MaxRetries = 1 },
	"MinRetryBackoff":                     func(o *redis.Options) { o.MinRetryBackoff = 1 },
	"MaxRetryBackoff":                     func(o *redis.Options) { o.MaxRetryBackoff = -1 },
	"DialTimeout (see WithMasterTimeout)": func(o *redis.Options) { o.DialTimeout = time.Second },
	"DialerRetries":                       func(o *redis.Options) { o.DialerRetries = 2 },
	"DialerRetryTimeout":                  func(o *redis.Options) { o.DialerRetryTimeout = 1 },
	"DialerRetryBackoff":                  func(o *redis.Options) { o.DialerRetryBackoff = func(int) time.Duration { return 0 } },
	"ReadTimeout (see WithMasterTimeout)": func(o *redis.Options) { o.ReadTimeout = -1 },
	"WriteTimeout (see WithMasterTimeout)": func(o *redis.Options) {
		o.WriteTimeout = time.Second
	},
	"PoolSize":           func(o *redis.Options) { o.PoolSize = 2 },
	"PipelinePoolSize":   func(o *redis.Options) { o.PipelinePoolSize = 1 },
	"PoolTimeout":        func(o *redis.Options) { o.PoolTimeout = 1 },
	"MinIdleConns":       func(o *redis.Options) { o.MinIdleConns = 1 },
	"MaxIdleConns":       func(o *redis.Options) { o.MaxIdleConns = 1 },
	"MaxActiveConns":     func(o *redis.Options) { o.MaxActiveConns = 1 },
	"MaxConcurrentDials": func(o *redis.Options) { o.MaxConcurrentDials = 2 },
	"ConnMaxIdleTime":    func(o *redis.Options) { o.ConnMaxIdleTime = 1 },
	"ConnMaxLifetime":    func(o *redis.Options) { o.ConnMaxLifetime = 1 },
	"PoolFIFO":           func(o *redis.Options) { o.PoolFIFO = true },
	"IdentitySuffix":     func(o *redis.Options) { o.IdentitySuffix = "x" },
	"ConnMaxLifetimeJitter": func(o *redis.Options) {
		o.ConnMaxLifetimeJitter = 1
	},
	"PipelineReadBufferSize":  func(o *redis.Options) { o.PipelineReadBufferSize = 1 },
	"PipelineWriteBufferSize": func(o *redis.Options) { o.PipelineWriteBufferSize = 1 },
	"Limiter":                 func(o *redis.Options) { o.Limiter = noLimiter{} },
	"AutoPipelineOptions":     func(o *redis.Options) { o.AutoPipelineOptions = &redis.AutoPipelineOptions{} },
	"ClientSideCache":         func(o *redis.Options) { o.ClientSideCache = noCache{} },
	"MaintNotificationsConfig": func(o *redis.Options) {
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeAuto}
	},
}

// An option that the library would have to ignore is refused by name.
func TestOwnedOptionsAreRefused(t *testing.T) {
	for name, set := range owned {
		t.Run(name, func(t *testing.T) {
			o := &redis.Options{Addr: "a:1"}
			set(o)
			_, err := NewFromOptions([]*redis.Options{{Addr: "b:1"}, o})
			wantConfigError(t, err, "master 2 (a:1): "+name+" is set, which only the library may set")
		})
	}
	t.Run("ClientSideCacheConfig", func(t *testing.T) {
		_, err := NewFromOptions([]*redis.Options{{Addr: "a:1", ClientSideCacheConfig: &redis.ClientSideCacheConfig{}}})
		wantConfigError(t, err, "ClientSideCache is set, which only the library may set")
	})
}

// Each row of the library's own list is tried above.
func TestOwnedOptionsAreAllTried(t *testing.T) {
	source, err := os.ReadFile("masters.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\t\t\{"([^"]+)", `).FindAllStringSubmatch(string(source), -1)
	if len(rows) < 10 {
		t.Fatalf("found %d rows in masters.go: this test looks for them in the wrong way", len(rows))
	}
	for _, row := range rows {
		if owned[row[1]] == nil {
			t.Errorf("%s is refused by masters.go, but no test tries it", row[1])
		}
	}
}

// Every option of go-redis is either refused, used, or without effect with one connection and no
// pipeline pool. A new version with a new option needs a decision.
func TestEveryClientOptionIsConsidered(t *testing.T) {
	used := []string{
		"Network", "Addr", "ClientName", "Dialer", "OnConnect", "Username", "Password", "CredentialsProvider",
		"CredentialsProviderContext", "StreamingCredentialsProvider", "DB", "TLSConfig", "ReadBufferSize", "WriteBufferSize",
		"NodeAddress", "PushNotificationProcessor", "UnstableResp3", "FailingTimeoutSeconds",
	}
	moot := []string{
		"ContextTimeoutEnabled", "DisableIndentity", "DisableIdentity",
		"ClientSideCacheConfig", "ClientSideCacheStrategy", "ClientSideCacheRefreshOnInvalidate", "ClientSideCacheCoalesceMisses",
		"ClientSideCacheInvalidationBatchWindow",
	}
	known := slices.Concat(used, moot)
	for name := range owned {
		name, _, _ = strings.Cut(name, " ")
		known = append(known, name)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[redis.Options]()) {
		if f.IsExported() && !slices.Contains(known, f.Name) {
			t.Errorf("redis.Options.%s: neither refused nor known", f.Name)
		}
	}
}

// An option with the value that the library sets itself is accepted.
func TestOptionsAsTheLibrarySetsThem(t *testing.T) {
	o := &redis.Options{
		Addr: "a:1", Protocol: 2, MaxRetries: -1, DialerRetries: 1, PoolSize: 1, PipelinePoolSize: -1, MaxConcurrentDials: 1,
		ConnMaxIdleTime: -1, ConnMaxLifetime: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	l, err := NewFromOptions([]*redis.Options{o})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// No error contains a password, not even the error about an invalid URL.
func TestPasswordsAreNotShown(t *testing.T) {
	for name, master := range map[string]string{
		"bad port":                      "redis://me:hunter2@localhost:x",
		"bad host":                      "redis://me:hunter2@local host:1",
		"bad escape in the password":    "redis://me:hunter2%zz@localhost:1",
		"bad escape at the end":         "redis://me:hunter2%@localhost:1",
		"bad escape in the host":        "redis://me:hunter2@local%zzhost:1",
		"newline":                       "redis://me:hunter2\n@localhost:1",
		"newline at the end":            "redis://me:hunter2@localhost:1\n",
		"delete character":              "redis://me:hunter2\x7f@localhost:1",
		"zero byte":                     "redis://me:\x00hunter2@localhost:1",
		"no UTF-8":                      "redis://me:hunter2\xff@localhost:x",
		"brackets in the password":      "redis://me:hunter2[x]@localhost:1",
		"several @":                     "redis://me:hunter2@hunter2@hunter2@localhost:x",
		"slash in the password":         "redis://me:hunter2/hunter2@localhost:1",
		"question mark in the password": "redis://me:hunter2?x@localhost:1",
		"behind a question mark":        "redis://me:x?hunter2@localhost:1",
		"hash in the password":          "redis://me:hunter2#x@localhost:1",
		"hash behind digits":            "redis://me:12#hunter2@localhost:1",
		"hash behind nothing":           "redis://me:#hunter2@localhost:1",
		"colon and slashes":             "redis://me:hunter2://x@localhost:1",
		"no host":                       "rediss://me:hunter2@:x",
		"other scheme":                  "http://me:hunter2@localhost:1",
		"scheme in capitals":            "REDIS://me:hunter2@localhost:x",
		"one slash":                     "redis:/me:hunter2@localhost:1",
		"no scheme":                     "me:hunter2@localhost:1",
		"no scheme, password alone":     "hunter2@localhost:1",
		"no scheme, question mark":      "me:hunter2?x@localhost:1",
		"no scheme, colon and slashes":  "me:hunter2://x@localhost:1",
		"socket without a path":         "unix://me:hunter2@",
		"unknown parameter":             "redis://localhost:1?password=hunter2",
		"unknown parameter and @":       "redis://localhost:1?password=hunter2@",
		"bad database":                  "redis://me:hunter2@localhost:1/x",
		"parameter that is owned":       "redis://me:hunter2@localhost:1?pool_size=9",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New([]string{master})
			if err == nil {
				t.Errorf("%q was accepted as a master at %q", master, l.groups[0].nodes[0].Addr())
				l.Close()
				return
			}
			wantConfigError(t, err, "master 1")
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q has the password", err)
			}
		})
	}
	t.Run("same address twice", func(t *testing.T) {
		_, err := New([]string{"redis://me:hunter2@a:1", "rediss://hunter2:hunter2@a:1/4"})
		wantConfigError(t, err, "a:1")
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q has the password", err)
		}
	})
}

// Whatever is given for a master, no part of its password comes back in an error or in the address
// that errors name. The result is an address or an error.
func FuzzParseMaster(f *testing.F) {
	for _, scheme := range []string{"", "redis://", "rediss://", "unix://", "http://", "redis:/"} {
		for _, pw := range [][2]string{{"", ""}, {"%zz", ""}, {"", "@@"}, {"/", "/"}, {"[", "]"}, {"\n", "\x00"}, {"a:", ":b"}, {"%40", "%"}, {"é", "\xff"}} {
			f.Add(scheme, "me", pw[0], pw[1], "localhost:6379")
		}
		f.Add(scheme, "", "", "", "")
		f.Add(scheme, "me", "", "", "[::1]:1/5?db=3")
		f.Add(scheme, "me", "", "", "/run/redis.sock")
		f.Add(scheme, "me", "?", "", "localhost:1")
		f.Add(scheme, "me", "", "?x", "localhost:1")
		f.Add(scheme, "me", "", "://", "localhost:1")
		f.Add(scheme, "me", "12#", "", "localhost:1")
		f.Add(scheme, "me", "#", "#", "localhost:1")
	}
	f.Fuzz(func(t *testing.T, scheme, user, before, after, rest string) {
		if strings.Contains(scheme+user+rest, secret) {
			t.Skip("the secret is not in the password alone")
		}
		password := before + secret + after
		for _, master := range []string{scheme + user + ":" + password + "@" + rest, scheme + password + "@" + rest} {
			opts, err := parseMasters([]string{master})
			if err != nil {
				wantConfigError(t, err)
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q: %q has the password", master, err)
				}
				continue
			}
			if len(opts) != 1 || opts[0].Addr == "" {
				t.Fatalf("%q: got %v, want an address or an error", master, opts)
			}
			if opts[0].Network == "unix" && strings.Contains(password+user, "/") {
				continue // a path may look like anything
			}
			if strings.Contains(opts[0].Addr, secret) {
				t.Errorf("%q: the address %q has the password", master, opts[0].Addr)
			}
		}
		// On its own it may be anything.
		if opts, err := parseMasters([]string{scheme + user + before + after + rest}); err == nil && opts[0].Addr == "" {
			t.Errorf("%q: neither address nor error", scheme+user+before+after+rest)
		}
	})
}
