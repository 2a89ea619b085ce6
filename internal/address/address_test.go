package address

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/d0720281/redlock/internal/reason"
)

// secret stands for a password, or a part of a password, in these tests.
const secret = "hunter2"

// badAddresses are texts that are no address of a master, with words of the error.
var badAddresses = []struct{ text, want string }{
	{"", "no address"},
	{"localhost", "no port: write host:6379"},
	{"hunter2", "no port"},
	{"localhost:", "from 1 to 65535"},
	{"localhost:0", "from 1 to 65535"},
	{"localhost:65536", "from 1 to 65535"},
	{"localhost:-1", "from 1 to 65535"},
	{"localhost:+6379", "from 1 to 65535"},
	{"localhost:06379", "from 1 to 65535"},
	{"localhost:hunter2", "from 1 to 65535"},
	{":6379", "no host"},
	{"::1:6379", "brackets around an IPv6 address"},
	{"[localhost]:6379", "brackets around an IPv6 address"},
	{"[::g]:6379", "not a valid IP address"},
	{"[fe80::1%hunter2=]:6379", "settings of another client"},
	{"[fe80::1%hunter2\x1b]:6379", "not a valid IP address"},
	{"10.0.0.256:6379", "not a valid IP address"},
	{"<host>:6379", "not a valid host"},
	{"${hunter2}:6379", "not a valid host"},
	{"a..b:6379", "not a valid host"},
	{"h\x1b[31mhunter2:6379", "must be host:port"},
	{"h\x1bhunter2:6379", "not a valid host"},
	{"h\nhunter2:6379", "two addresses in one text"},
	{"büro:6379", "not a valid host"},
	{strings.Repeat("a", 64) + ":6379", "not a valid host"},
	{"/run/redis.sock", "unix:///run/redis.sock"},

	{"redis://a:6379,b:6379", "two addresses in one URL: give them as two strings"},
	{"redis://a:6379;b:6379", "two addresses in one URL: give them as two strings"},
	{"redis://a,b:6379", "two addresses in one URL"},
	{"redis://u:hunter2@a:6379,b:6379/0", "two addresses in one URL"},
	{"rediss://a:6379/0 redis://b/1", "two addresses in one URL"},
	{"a:6379,b:6379", "two addresses in one text: give them as two strings"},
	{"a:6379; [::1]:6379", "two addresses in one text"},

	{"h:1,password=hunter2,ssl=True", "settings of another client"},
	{"password=hunter2 host=h", "settings of another client"},
	{"h,password=hunter2:6379", "settings of another client"},
	{"h:1;password=hunter2", "settings of another client"},
	{"hunter2@localhost:1", "redis://user:password@host:6379"},
	{"me:hunter2@localhost:1", "redis://user:password@host:6379"},
	{"me:hunter2?x@localhost:1", "redis://user:password@host:6379"},
	{"redis:/me:hunter2@localhost:1", "redis://user:password@host:6379"},

	{"://localhost:6379", "not a valid URL"},
	{"http://me:hunter2@localhost:1", "unknown scheme"},
	{"hunter2://localhost:1", "unknown scheme"},
	{"unix:/A://hunter2", "unknown scheme"},
	{"me:hunter2://x@localhost:1", "unknown scheme"},
	{"redis://", "no host"},
	{"redis://:6379", "no host"},
	{"redis:///1", "no host"},
	{"redis://me:hunter2@", "no host"},
	{"redis://me:hunter2@:6379", "no host"},
	{"redis://localhost:", "no port behind the colon"},
	{"redis://[::1]:", "no port behind the colon"},
	{"redis://me:hunter2", "not a valid URL"},
	{"redis://localhost:0", "from 1 to 65535"},
	{"redis://localhost:65536", "from 1 to 65535"},
	{"redis://<host>:6379", "not a valid"},
	{"redis://h%1bhunter2:6379", "not a valid"},
	{"redis://h%ffhunter2:6379", "not a valid host"},
	{"redis://10.0.0.256", "not a valid IP address"},
	{"REDIS://me:hunter2@localhost:x", "not a valid URL"},
	{"redis://@localhost:1", "are empty"},
	{"redis://:@localhost:1", "are empty"},
	{"redis://hunter2@localhost:1", "redis://:password@host"},
	{"redis://hunter2:@localhost:1", "redis://user:password@host"},
	{"unix://hunter2@/run/redis.sock", "redis://user:password@host"},

	{"redis://localhost:1/hunter2", "a number from 0 on"},
	{"redis://localhost:1/0;password=hunter2", "a number from 0 on"},
	{"redis://localhost:1/-1", "a number from 0 on"},
	{"redis://localhost:1/+1", "a number from 0 on"},
	{"redis://localhost:1/1/2", "a number from 0 on"},
	{"redis://localhost:1/99999999999999999999", "a number from 0 on"},
	{"redis://localhost:1?db=-3", "a number from 0 on"},
	{"redis://localhost:1?db=hunter2", "a number from 0 on"},
	{"redis://localhost:1/5?db=2", "leave one out"},
	{"redis://localhost:1?db=1&db=2", "db must have one value"},
	{"redis://localhost:1/5?db=", "db must have one value"},
	{"redis://localhost:1?db=2;hunter2", "parameters behind the ? are not valid"},
	{"redis://localhost:1?db=%zzhunter2", "parameters behind the ? are not valid"},
	{"redis://localhost:1?max_retries=3", `the parameter "max_retries" has no effect: only client_name, db, skip_verify have`},
	{"redis://me:hunter2@localhost:1?pool_size=hunter2", `the parameter "pool_size" has no effect`},
	{"redis://localhost:1?hunter2", "a parameter of the URL has no effect"},
	{"redis://localhost:1?password=hunter2", "a parameter of the URL has no effect"},
	{"redis://localhost:1?password=hunter2@", "must be percent-encoded"},
	{"redis://localhost:1?client_name=hunter2%20x", "client name must have printable ASCII characters"},
	{"redis://localhost:1?client_name=hunter2%0a", "client name must have printable ASCII characters"},
	{"redis://localhost:1?skip_verify=true", "for rediss:// alone"},
	{"rediss://localhost:1?skip_verify=hunter2", "true or false"},
	{"redis://localhost:1#hunter2", "a # in the URL"},
	{"redis://localhost:1/0#", "a # in the URL"},

	{"redis://me:hunter2%zz@localhost:1", "must be percent-encoded"},
	{"redis://me:hunter2%@localhost:1", "must be percent-encoded"},
	{"redis://me:hunter2@local%zzhost:1", "must be percent-encoded"},
	{"redis://me:hunter2\n@localhost:1", "must be percent-encoded"},
	{"redis://me:\x00hunter2@localhost:1", "must be percent-encoded"},
	{"redis://me:hunter2\xff@localhost:x", "must be percent-encoded"},
	{"redis://me:hunter2@hunter2@hunter2@localhost:x", "must be percent-encoded"},
	{"redis://me:hunter2/hunter2@localhost:1", "must be percent-encoded"},
	{"redis://me:12/hunter2@localhost:1", "must be percent-encoded"},
	{"redis://me:12?hunter2@localhost:1", "must be percent-encoded"},
	{"redis://me:12#hunter2@localhost:1", "must be percent-encoded"},
	{"redis://me:#hunter2@localhost:1", "must be percent-encoded"},
	{"redis://me:hunter2://x@localhost:1", "must be percent-encoded"},

	{"unix://", "must be absolute"},
	{"unix:///", "a directory"},
	{"unix:///run/", "a directory"},
	{"unix://run/redis.sock", "a third slash"},
	{"unix://me:hunter2@", "must be absolute"},
	{"unix://me:12/hunter2@/run/redis.sock", "must be percent-encoded"},
	{"unix:///hunter2@/run/redis.sock", "must be percent-encoded"},
	{"unix:///run/a%20b?hunter2", "the characters # % ? @ of a path must be percent-encoded"},
	{"unix:///run/a#hunter2", "the characters # % ? @ of a path must be percent-encoded"},
	{"unix:///run/hunter2%", "the characters # % ? @ of a path must be percent-encoded"},
	{"unix:///run/hunter2%20", "must not end with a blank"},
	{"unix:///run/hunter2%00", "cannot be printed"},
	{"unix:///run/hunter2%1b", "cannot be printed"},
	{"unix:///run/hunter2%ff", "cannot be printed"},
	{"unix:///run/" + strings.Repeat("hunter2", 15), "bytes: the system allows 10"},
}

// read returns the options of masters as redlock.New reads them.
func read(texts []string) ([]redis.Options, error) {
	masters, err := Parse(texts)
	if err == nil {
		err = NeedPasswords(masters)
	}
	if err != nil {
		return nil, err
	}
	return Check(masters)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantConfigError checks that an error is one line about an argument, and has some words.
func wantConfigError(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, reason.Config) || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 1000 {
		t.Fatalf("got %v, want a short line that matches ErrConfig", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not have %q", err, w)
		}
	}
}

// A text that is no address is refused by an error with its number. The text may have a password at
// any place, so no part of it is in the error.
func TestRefusedAddresses(t *testing.T) {
	for _, test := range badAddresses {
		t.Run(test.text, func(t *testing.T) {
			_, err := read([]string{"127.0.0.1:7001", test.text})
			wantConfigError(t, err, "master 2: ", test.want)
			wantNoSecret(t, err)
			if hinted := strings.Contains(err.Error(), "blanks of a password must be"); hinted && !strings.Contains(test.text, "@") {
				t.Errorf("%q is about a password, and none was given", err)
			}
		})
	}
}

// wantNoSecret checks that nothing that is printed of v has the secret.
func wantNoSecret(t *testing.T, v any) {
	t.Helper()
	for _, format := range []string{"%v", "%+v", "%#v", "%q"} {
		if text := fmt.Sprintf(format, v); strings.Contains(text, secret) {
			t.Errorf("%s has the secret: %s", format, text)
		}
	}
}

// A list that cannot be a quorum of independent masters is refused.
func TestRefusedLists(t *testing.T) {
	const good = "127.0.0.1:7001"
	for _, test := range []struct {
		name    string
		masters []string
		want    []string
	}{
		{"no list", nil, []string{"no masters"}},
		{"empty list", []string{}, []string{"no masters"}},
		{"twice", []string{good, "127.0.0.1:7002", good}, []string{"master 3", "master 1", good, "independent"}},
		{"another database", []string{"redis://" + good + "/1", "redis://" + good + "/2"}, []string{"master 2", "master 1", good}},
		{"as URL and plain", []string{good, "redis://:hunter2@" + good}, []string{"master 2", "master 1", good}},
		{"other credentials", []string{"redis://me:hunter2@a:1", "rediss://hunter2:hunter2@a:1/4"}, []string{"master 2", "a:1"}},
		{"behind a blank", []string{good, " " + good}, []string{"master 2", "master 1", good}},
		{"with the port of Redis", []string{"h:6379", "redis://h"}, []string{"master 2", "master 1", "h:6379"}},
		{"in capitals", []string{"LOCALHOST:6379", "localhost:6379"}, []string{"master 2", "master 1"}},
		{"two forms of an IPv6 address", []string{"[::1]:1", "[0:0::1]:1"}, []string{"master 2", "master 1"}},
		{"socket", []string{"unix:///a.sock", "unix:///b.sock", "unix://u:hunter2@/a.sock?db=3"}, []string{"master 3", "master 1", "/a.sock"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := read(test.masters)
			wantConfigError(t, err, test.want...)
			wantNoSecret(t, err)
		})
	}
}

func TestRefusedOptions(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	sentinel := func(name string) *redis.Options {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name, SentinelAddrs: []string{"a:26379"}, Password: secret})
		t.Cleanup(func() { _ = client.Close() })
		return client.Options()
	}
	client := redis.NewClient(&redis.Options{Addr: "<host>:6379", Password: secret})
	defer client.Close()
	first, second := *sentinel("m1"), *sentinel("m2")
	first.Addr, second.Addr = "m1", "m2"
	provider := func() (string, string) { return "me", secret }
	for _, test := range []struct {
		name    string
		masters []*redis.Options
		want    []string // nil for options that are accepted
	}{
		{"no list", nil, []string{"no masters"}},
		{"nil entry", []*redis.Options{{Addr: "a:1"}, nil}, []string{"master 2: options are nil"}},
		{"no address", []*redis.Options{{Password: secret}}, []string{"master 1: no address"}},
		{"same address twice", []*redis.Options{{Addr: "a:1"}, {Addr: "a:1", DB: 1, Password: secret}}, []string{"master 2", "master 1", "a:1"}},
		{"URL", []*redis.Options{{Addr: "redis://:hunter2@h:1"}}, []string{"master 1: the address is a URL"}},
		{"settings of another client", []*redis.Options{{Addr: "h,password=hunter2:6379"}}, []string{"master 1: not host:port"}},
		{"settings of another client, and a dialer", []*redis.Options{{Addr: "h,password=hunter2:6379", Dialer: dial}}, []string{"master 1: not host:port"}},
		{"no host of a client's", []*redis.Options{client.Options()}, []string{"master 1: not a valid host"}},
		{"other network", []*redis.Options{{Network: "udp", Addr: "a:1"}}, []string{"Network must be tcp"}},
		{"tcp4 without a port", []*redis.Options{{Network: "tcp4", Addr: "hunter2"}}, []string{"no port"}},
		{"tcp4", []*redis.Options{{Network: "tcp4", Addr: "a:1"}, {Network: "tcp4", Addr: "10.0.0.1:1"}, {Network: "tcp6", Addr: "[::1]:1"}}, nil},
		{"tcp4 and IPv6", []*redis.Options{{Network: "tcp4", Addr: "[::1]:1"}}, []string{"other family"}},
		{"tcp6 and IPv4", []*redis.Options{{Network: "tcp6", Addr: "10.0.0.1:1"}}, []string{"other family"}},
		{"relative path", []*redis.Options{{Network: "unix", Addr: "hunter2"}}, []string{"must be absolute"}},
		{"NUL in a path", []*redis.Options{{Addr: "/hunter2\x00"}}, []string{"cannot be printed"}},
		{"path", []*redis.Options{{Addr: " /run/a b@c%?# "}}, nil},
		{"negative database", []*redis.Options{{Addr: "a:1", DB: -3}}, []string{"the database is negative"}},
		{"blank in the client name", []*redis.Options{{Addr: "a:1", ClientName: "hunter2 x"}}, []string{"client name"}},
		{"user alone, who needs no password", []*redis.Options{{Addr: "a:1", Username: "me"}}, nil},
		{"user and provider", []*redis.Options{{Addr: "a:1", Username: "me", CredentialsProvider: provider}}, nil},
		{"name and dialer", []*redis.Options{{Addr: "master-1", Dialer: dial}}, nil},
		{"one Sentinel client", []*redis.Options{sentinel("m1"), {Addr: "a:1"}}, nil},
		{"two Sentinel clients", []*redis.Options{sentinel("m1"), sentinel("m2")}, []string{"master 2 has the address of master 1, FailoverClient", "give each an Addr of its own"}},
		{"two Sentinel clients with names", []*redis.Options{&first, &second}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Check(test.masters)
			if test.want != nil {
				wantConfigError(t, err, test.want...)
			} else if err != nil {
				t.Errorf("got %v, want the options accepted", err)
			}
			wantNoSecret(t, err)
		})
	}
}

// The longest path of a socket is the longest that the system takes.
func TestLongestSocketPath(t *testing.T) {
	dir := string(filepath.Separator)
	for n := 90; n < 120; n++ {
		path := dir + strings.Repeat("x", n-len(dir))
		conn, dialed := net.Dial("unix", path)
		if dialed == nil {
			_ = conn.Close()
		}
		if got, want := checkSocket(path) == nil, !errors.Is(dialed, syscall.EINVAL); got != want {
			t.Errorf("%d bytes: got accepted: %v, the system says %v", n, got, dialed)
		}
	}
}

// The hint and docs/operations.md name the characters that a URL has in percent-encoding alone, and
// no other.
func TestCharactersOfURLs(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	for _, part := range []struct {
		name, form, want string
		read             func(o *redis.Options) string
	}{
		{"password", "redis://u:a%sb@h", " " + encodedInPassword, func(o *redis.Options) string { return o.Password }},
		{"user", "redis://a%sb:p@h", " " + encodedInPassword + ":", func(o *redis.Options) string { return o.Username }},
		{"path", "unix:///a%sb", encodedInPath, func(o *redis.Options) string { return strings.TrimPrefix(o.Addr, "/") }},
	} {
		for c := rune(' '); c <= '~'; c++ {
			o, err := parseMaster(fmt.Sprintf(part.form, string(c)))
			plain := err == nil && part.read(o) == "a"+string(c)+"b"
			if want := !strings.ContainsRune(part.want, c); plain != want {
				t.Errorf("%q in a %s: got %v, %v; want it taken as it is: %v", c, part.name, o, err, want)
			}
			o, err = parseMaster(fmt.Sprintf(part.form, fmt.Sprintf("%%%02X", c)))
			if err != nil || part.read(o) != "a"+string(c)+"b" {
				t.Errorf("%q in percent-encoding in a %s: got %v, %v", c, part.name, o, err)
			}
		}
		if list := "`` " + spaced(strings.Trim(part.want, " :")) + " ``"; !strings.Contains(string(page), list) {
			t.Errorf("docs/operations.md does not have %s, for a %s", list, part.name)
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
			list, err := read([]string{master})
			must(t, err)
			opt := list[0]
			got := want{network: opt.Network, addr: opt.Addr, user: opt.Username, password: opt.Password, db: opt.DB}
			if opt.TLSConfig != nil {
				got.serverName = opt.TLSConfig.ServerName
			}
			if got != w {
				t.Errorf("got %+v, want %+v", got, w)
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
	source, err := os.ReadFile("../../redlock.go")
	must(t, err)
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
	for _, f := range reflect.VisibleFields(reflect.TypeFor[redis.Options]()) {
		if !f.IsExported() || !f.Type.Comparable() {
			continue
		}
		if now, then := reflect.ValueOf(*mine).FieldByIndex(f.Index), reflect.ValueOf(before).FieldByIndex(f.Index); !now.Equal(then) {
			t.Errorf("%s of the caller's options: got %v, want %v", f.Name, now, then)
		}
	}
}

type streaming struct {
	auth.StreamingCredentialsProvider
}

// Whatever is given for a master, it is refused, or its address is what go-redis reads and can be
// printed. An error has no part of the text.
func FuzzMasters(f *testing.F) {
	for _, test := range badAddresses {
		before, after, _ := strings.Cut(test.text, secret)
		f.Add(before, after)
	}
	for _, text := range []string{"h:6379", "rediss://me:pw@[::1]:1/2?skip_verify=1&client_name=c", "unix://me:pw@/run/r.sock?db=3", "valkeys://:p@h"} {
		for i := range len(text) + 1 {
			f.Add(text[:i], text[i:])
		}
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, text := range []string{before + secret + after, before + after} {
			fuzzMaster(t, text)
		}
	})
}

func fuzzMaster(t *testing.T, text string) {
	_, err := read([]string{"127.0.0.1:1", text})
	if err != nil {
		wantConfigError(t, err)
		wantNoSecret(t, err)
	}
	_, err = Check([]*redis.Options{{Addr: text}, {Addr: "127.0.0.1:1"}})
	if err != nil {
		wantConfigError(t, err)
		wantNoSecret(t, err)
	}
	list, err := read([]string{text, "127.0.0.1:1"})
	if err != nil {
		wantConfigError(t, err)
		wantNoSecret(t, err)
		return
	}
	got := list[0]
	if strings.ContainsFunc(got.Addr, func(c rune) bool { return !unicode.IsPrint(c) }) {
		t.Errorf("%q: the address %q cannot be printed", text, got.Addr)
	}
	if text = strings.TrimSpace(text); !strings.Contains(text, "://") {
		if host, _, err := net.SplitHostPort(text); err != nil || host == "" || got.Addr != text {
			t.Errorf("%q: got the address %q, %v", text, got.Addr, err)
		}
		return
	}
	scheme, rest, _ := strings.Cut(text, "://")
	want, err := redis.ParseURL(strings.Replace(strings.ToLower(scheme), "valkey", "redis", 1) + "://" + rest)
	if err != nil {
		t.Fatalf("%q: go-redis does not read it: %v", text, err)
	}
	if got.Network != want.Network || got.Addr != want.Addr || got.Username != want.Username || got.Password != want.Password ||
		got.DB != want.DB || got.ClientName != want.ClientName || !reflect.DeepEqual(got.TLSConfig, want.TLSConfig) {
		t.Errorf("%q: got %+v, want %+v", text, got, want)
	}
}
