package redlock

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
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
		{"same address behind a blank", []string{good, " " + good}, []string{"master 2", "master 1", good}},
		{"URL with a parameter of no effect", []string{"redis://" + good + "?max_retries=3"}, []string{"master 1", good, `parameter "max_retries" has no effect`}},
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
		if got, want := len(l.pool.nodes), n; got != want {
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
		" \texample.net:7000 \n":                  {network: "tcp", addr: "example.net:7000"},
		" redis://example.net:7000/7 ":            {network: "tcp", addr: "example.net:7000", db: 7},
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
			n := l.pool.nodes[0]
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

// used are the options of a client that the library uses, with a value for each.
var used = map[string]any{
	"Network": "tcp", "Addr": "a:1", "ClientName": "worker", "Username": "me", "Password": secret, "DB": 3,
	"TLSConfig":                    &tls.Config{ServerName: "a"},
	"Dialer":                       func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
	"CredentialsProvider":          func() (string, string) { return "me", secret },
	"CredentialsProviderContext":   func(context.Context) (string, string, error) { return "me", secret, nil },
	"StreamingCredentialsProvider": nil,
}

// The library takes from the options of a client what its documentation lists, and changes nothing there.
func TestUsedClientOptions(t *testing.T) {
	source, err := os.ReadFile("redlock.go")
	if err != nil {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(string(source), "It uses the fields ")
	listed, _, _ = strings.Cut(listed, ".")
	names := regexp.MustCompile(`[A-Z]\w+`).FindAllString(listed, -1)
	if got, want := slices.Sorted(slices.Values(names)), slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) {
		t.Errorf("documented: got %q, want %q", got, want)
	}
	mine := new(redis.Options)
	for name, v := range used {
		if v != nil {
			reflect.ValueOf(mine).Elem().FieldByName(name).Set(reflect.ValueOf(v))
		}
	}
	mine.StreamingCredentialsProvider = streaming{}
	before := *mine
	got := usedOf(mine)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[redis.Options]()) {
		if !f.IsExported() {
			continue
		}
		_, want := used[f.Name]
		v := reflect.ValueOf(got).FieldByIndex(f.Index)
		if v.IsZero() == want {
			t.Errorf("%s: got it used: %v, want %v", f.Name, !want, want)
		}
	}
	if mine.PoolSize != before.PoolSize || mine.MaxRetries != before.MaxRetries || mine.Protocol != before.Protocol {
		t.Errorf("the caller's options were changed: %+v", mine)
	}
}

type streaming struct {
	auth.StreamingCredentialsProvider
}

// The options of a client that a service has already are taken, whatever is set there.
func TestOptionsOfAClient(t *testing.T) {
	client := redis.NewClient(&redis.Options{
		Addr: " a:1 ", Protocol: 3, MaxRetries: 4, PoolSize: 50, MinIdleConns: 3, ReadTimeout: time.Minute, DialTimeout: time.Minute, ConnMaxLifetime: time.Hour,
	})
	defer client.Close()
	l, err := NewFromOptions([]*redis.Options{client.Options()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := l.pool.nodes[0].Options()
	if got.Addr != "a:1" || got.Protocol != 2 || got.MaxRetries != -1 || got.PoolSize != 1 || got.MinIdleConns != 0 || got.ReadTimeout != 250*time.Millisecond ||
		got.DialTimeout != time.Second || got.ConnMaxLifetime != 0 {
		t.Errorf("got %+v, want the address alone to be that of the client", got)
	}
	if client.Options().Protocol != 3 || client.Options().PoolSize != 50 {
		t.Errorf("the options of the client were changed: %+v", client.Options())
	}
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
				t.Errorf("%q was accepted as a master at %q", master, l.pool.nodes[0].Addr())
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
