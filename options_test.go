package redlock

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"math"
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

// wantConfigError checks that err is a refusal that contains all of the words.
func wantConfigError(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("got %v, want an error that matches ErrConfig", err)
	}
	if errors.Is(err, ErrNotAcquired) {
		t.Errorf("%v matches ErrNotAcquired, though no node was asked", err)
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("%q is more than one line", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// Without options the settings are those of the specification.
//
// Source: ALGORITHM section 1.
func TestDefaults(t *testing.T) {
	c, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][2]any{
		"TTL":         {c.ttl, 10 * time.Second},
		"MaxTTL":      {c.maxTTL, 10 * time.Second},
		"drift":       {c.drift, 0.01},
		"NodeTimeout": {c.timeout(), 250 * time.Millisecond},
		"MinValidity": {c.minValidity(), 5 * time.Second},
		"CancelLead":  {cancelLead(c.ttl), 200 * time.Millisecond},
		"B":           {fenceBlock, 64},
		"grace":       {c.grace, time.Duration(0)},
		"max hold":    {c.maxHold, time.Duration(0)},
		"votes wait":  {c.votesWait, time.Duration(0)},
		"no renewal":  {c.manual, false},
		"re-entry":    {c.reentry, false},
		"key prefix":  {c.keyPrefix, "redlock:"},
		"observer":    {len(c.observers), 0},
		"clock":       {c.clock.Source, SystemClock()},
		"guard":       {c.guard, true},
		"trusted":     {c.trusted, false},
	} {
		if v[0] != v[1] {
			t.Errorf("%s: got %v, want %v", name, v[0], v[1])
		}
	}
}

// Settings that depend on the TTL follow it.
//
// Source: ALGORITHM section 1, "NodeTimeout" and "MinValidity".
func TestDerivedFromTTL(t *testing.T) {
	c, err := newConfig([]Option{WithMaxTTL(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ ttl, timeout, minValidity time.Duration }{
		{50 * time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond},
		{2499 * time.Millisecond, 249900 * time.Microsecond, 1249500 * time.Microsecond},
		{2500 * time.Millisecond, 250 * time.Millisecond, 1250 * time.Millisecond},
		{time.Minute, 250 * time.Millisecond, 30 * time.Second},
	} {
		lc, err := c.forCall([]LockOption{WithTTL(test.ttl)})
		if err != nil {
			t.Fatal(err)
		}
		if got := lc.timeout(); got != test.timeout {
			t.Errorf("node timeout at a TTL of %v: got %v, want %v", test.ttl, got, test.timeout)
		}
		if got := lc.minValidity(); got != test.minValidity {
			t.Errorf("least validity at a TTL of %v: got %v, want %v", test.ttl, got, test.minValidity)
		}
	}
}

// An exchange may take as long as the longest lock allows.
func TestMasterTimeoutOfAll(t *testing.T) {
	for _, test := range []struct {
		opts []Option
		want time.Duration
	}{
		{nil, 250 * time.Millisecond},
		{[]Option{WithTTL(time.Second)}, 250 * time.Millisecond},
		{[]Option{WithTTL(time.Second), WithMaxTTL(time.Second)}, 100 * time.Millisecond},
		{[]Option{WithMasterTimeout(time.Second)}, time.Second},
	} {
		c, err := newConfig(test.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.nodeTimeoutOfAll(); got != test.want {
			t.Errorf("%d options: got %v, want %v", len(test.opts), got, test.want)
		}
	}
}

func TestOptionBounds(t *testing.T) {
	const ms, ns = time.Millisecond, time.Nanosecond
	list := func(o ...Option) []Option { return o }
	for _, test := range []struct {
		name string
		opts []Option
		want []string // words of the error; nil for valid options
	}{
		{"no option", nil, nil},
		{"all options", list(WithTTL(time.Second), WithMaxTTL(time.Minute), WithDrift(0.02), WithKeyPrefix("p:"), WithMasterTimeout(20*ms),
			WithGrace(100*ms), WithMaxHold(time.Hour), WithReentry(), WithObserver(func(Event) {}), WithClock(RuntimeClock())), nil},

		{"nil option", list(nil), []string{"option 1 is nil"}},
		{"nil option behind another", list(WithReentry(), nil), []string{"option 2 is nil"}},

		{"shortest TTL", list(WithTTL(50 * ms)), nil},
		{"TTL below the shortest", list(WithTTL(50*ms - ns)), []string{"WithTTL(49.999999ms)", "at least 50ms"}},
		{"zero TTL", list(WithTTL(0)), []string{"WithTTL(0s)", "at least 50ms"}},
		{"negative TTL", list(WithTTL(-time.Second)), []string{"WithTTL(-1s)", "at least 50ms"}},
		{"most negative TTL", list(WithTTL(math.MinInt64)), []string{"WithTTL(-2562047h47m16.854775808s)", "at least 50ms"}},
		{"TTL as large as MaxTTL", list(WithTTL(time.Minute), WithMaxTTL(time.Minute)), nil},
		{"TTL above MaxTTL", list(WithTTL(time.Minute+ns), WithMaxTTL(time.Minute)), []string{"TTL of 1m0.000000001s", "at most 1m0s", "WithMaxTTL"}},
		{"TTL above the default MaxTTL", list(WithTTL(10*time.Second + ns)), []string{"TTL of 10.000000001s", "at most 10s"}},
		{"largest TTL there is", list(WithTTL(math.MaxInt64)), []string{"TTL of 2562047h47m16.854775807s", "at most 10s"}},

		{"shortest MaxTTL", list(WithTTL(50*ms), WithMaxTTL(50*ms)), nil},
		{"MaxTTL below the shortest", list(WithTTL(50*ms), WithMaxTTL(50*ms-ns)), []string{"WithMaxTTL(49.999999ms)", "from 50ms to 24h0m0s"}},
		{"longest MaxTTL", list(WithTTL(24*time.Hour), WithMaxTTL(24*time.Hour)), nil},
		{"MaxTTL above the longest", list(WithMaxTTL(24*time.Hour + ns)), []string{"WithMaxTTL(24h0m0.000000001s)", "from 50ms to 24h0m0s"}},
		{"zero MaxTTL", list(WithMaxTTL(0)), []string{"WithMaxTTL(0s)", "from 50ms to 24h0m0s"}},
		{"negative MaxTTL", list(WithMaxTTL(-time.Hour)), []string{"WithMaxTTL(-1h0m0s)", "from 50ms to 24h0m0s"}},

		{"least drift", list(WithDrift(0.001)), nil},
		{"drift below the least", list(WithDrift(math.Nextafter(0.001, 0))), []string{"WithDrift(0.0009999999999999998)", "from 0.001 to 0.25"}},
		{"most drift", list(WithDrift(0.25)), nil},
		{"most drift at the shortest TTL", list(WithDrift(0.25), WithTTL(50*ms)), nil},
		{"drift above the most", list(WithDrift(math.Nextafter(0.25, 1))), []string{"WithDrift(0.25000000000000006)", "from 0.001 to 0.25"}},
		{"zero drift", list(WithDrift(0)), []string{"WithDrift(0)", "from 0.001 to 0.25"}},
		{"negative drift", list(WithDrift(-0.01)), []string{"WithDrift(-0.01)", "from 0.001 to 0.25"}},
		{"drift that is no number", list(WithDrift(math.NaN())), []string{"WithDrift(NaN)", "from 0.001 to 0.25"}},
		{"infinite drift", list(WithDrift(math.Inf(1))), []string{"WithDrift(+Inf)", "from 0.001 to 0.25"}},
		{"infinite negative drift", list(WithDrift(math.Inf(-1))), []string{"WithDrift(-Inf)", "from 0.001 to 0.25"}},

		{"no key prefix", list(WithKeyPrefix("")), nil},
		{"longest key prefix", list(WithKeyPrefix(strings.Repeat("p", 256))), nil},
		{"key prefix above the longest", list(WithKeyPrefix(strings.Repeat("p", 257))), []string{`WithKeyPrefix("pppppppppppppppp")`, "at most 256 bytes, and has 257"}},

		{"shortest node timeout", list(WithMasterTimeout(ms)), nil},
		{"node timeout below the shortest", list(WithMasterTimeout(ms - ns)), []string{"WithMasterTimeout(999.999µs)", "from 1ms to 2.5s"}},
		{"node timeout of a quarter of the TTL", list(WithMasterTimeout(2500 * ms)), nil},
		{"node timeout above a quarter of the TTL", list(WithMasterTimeout(2500*ms + ns)), []string{"WithMasterTimeout(2.500000001s)", "from 1ms to 2.5s", "a quarter of the TTL"}},
		{"zero node timeout", list(WithMasterTimeout(0)), []string{"WithMasterTimeout(0s)", "from 1ms to 2.5s"}},
		{"negative node timeout", list(WithMasterTimeout(-time.Second)), []string{"WithMasterTimeout(-1s)", "from 1ms to 2.5s"}},
		{"node timeout of minus a nanosecond", list(WithMasterTimeout(-ns)), []string{"WithMasterTimeout(-1ns)", "from 1ms to 2.5s"}},

		{"no grace", list(WithGrace(0)), nil},
		{"grace of a quarter of the TTL", list(WithGrace(2500 * ms)), nil},
		{"grace above a quarter of the TTL", list(WithGrace(2500*ms + ns)), []string{"WithGrace(2.500000001s)", "from 0 to 2.5s", "a quarter of the TTL"}},
		{"negative grace", list(WithGrace(-ns)), []string{"WithGrace(-1ns)", "from 0 to 2.5s"}},
		// Of 400 ms, half and a drift of 102 ms leave 98 ms.
		{"as much grace as a large drift leaves", list(WithDrift(0.25), WithTTL(400*ms), WithGrace(98*ms-ns)), nil},
		{"grace too large with the drift", list(WithDrift(0.25), WithTTL(400*ms), WithGrace(98*ms)),
			[]string{"WithGrace(98ms)", "drift of 102ms", "half of the TTL of 400ms"}},

		{"max hold of one TTL", list(WithMaxHold(10 * time.Second)), nil},
		{"max hold below the TTL", list(WithMaxHold(10*time.Second - ns)), []string{"WithMaxHold(9.999999999s)", "at least 10s, the TTL"}},
		{"zero max hold", list(WithMaxHold(0)), []string{"WithMaxHold(0s)", "at least 10s"}},
		{"negative max hold", list(WithMaxHold(-time.Hour)), []string{"WithMaxHold(-1h0m0s)", "at least 10s"}},
		{"longest max hold", list(WithMaxHold(math.MaxInt64)), nil},
		{"max hold without renewal", list(WithMaxHold(time.Hour), WithoutRenewal()), []string{"WithMaxHold", "WithoutRenewal"}},
		{"no renewal with max hold", list(WithoutRenewal(), WithMaxHold(time.Hour)), []string{"WithMaxHold", "WithoutRenewal"}},
		{"no renewal", list(WithoutRenewal()), nil},

		{"min hold", list(WithMinHold(time.Hour)), nil},
		{"negative min hold", list(WithMinHold(-ns)), []string{"WithMinHold(-1ns)", "must not be negative"}},
		{"quarantine wait", list(WithQuarantineWait(time.Hour)), nil},
		{"negative quarantine wait", list(WithQuarantineWait(-ns)), []string{"WithQuarantineWait(-1ns)", "must not be negative"}},
		{"min hold of the max hold", list(WithMinHold(time.Hour), WithMaxHold(time.Hour)), []string{"WithMinHold(1h0m0s)", "less than 1h0m0s", "WithMaxHold"}},
		{"min hold below the max hold", list(WithMinHold(time.Hour-ns), WithMaxHold(time.Hour)), nil},
		{"min hold without renewal", list(WithMinHold(5*time.Second-ns), WithoutRenewal()), nil},
		{"min hold too long without renewal", list(WithMinHold(5*time.Second), WithoutRenewal()), []string{"WithMinHold(5s)", "less than 5s", "WithoutRenewal"}},

		{"owner", list(WithOwner("größe 1:2;3")), nil},
		{"longest owner", list(WithOwner(strings.Repeat("ä", 32))), nil},
		{"owner above the longest", list(WithOwner(strings.Repeat("ä", 32) + "x")), []string{"WithOwner(", "at most 64 bytes"}},
		{"no owner", list(WithOwner("")), nil},
		{"owner with a bar", list(WithOwner("a|b")), []string{`WithOwner("a|b")`, "without |"}},
		{"owner with a line break", list(WithOwner("a\nb")), []string{`WithOwner("a\nb")`, "printable"}},
		{"owner that is no UTF-8", list(WithOwner("a\xff")), []string{`WithOwner("a\xff")`, "printable"}},

		{"no clock", list(WithClock(nil)), []string{"WithClock(nil)", "must be a clock"}},
		{"the last value counts", list(WithTTL(0), WithTTL(time.Second), WithClock(nil), WithClock(RuntimeClock())), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := New([]string{"127.0.0.1:1"}, test.opts...)
			if test.want != nil {
				wantConfigError(t, err, test.want...)
				return
			}
			if err != nil {
				t.Fatalf("got %v, want it accepted", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The options of a call are validated together with those of New.
func TestOptionsOfACall(t *testing.T) {
	const ms = time.Millisecond
	outer := func(o ...Option) []Option { return o }
	inner := func(o ...LockOption) []LockOption { return o }
	for _, test := range []struct {
		name  string
		outer []Option
		inner []LockOption
		want  []string
	}{
		{"none", nil, nil, nil},
		{"nil option", nil, inner(WithReentry(), nil), []string{"lock option 2 is nil"}},
		{"TTL out of bounds", nil, inner(WithTTL(49 * ms)), []string{"WithTTL(49ms)", "at least 50ms"}},
		{"TTL above MaxTTL", nil, inner(WithTTL(11 * time.Second)), []string{"TTL of 11s", "at most 10s", "WithMaxTTL"}},
		{"TTL against an explicit node timeout", outer(WithMasterTimeout(500 * ms)), inner(WithTTL(2 * time.Second)), nil},
		{"TTL too short for an explicit node timeout", outer(WithMasterTimeout(500 * ms)), inner(WithTTL(2*time.Second - 4)),
			[]string{"WithMasterTimeout(500ms)", "499.999999ms", "a quarter of the TTL"}},
		{"TTL too short for the grace", outer(WithGrace(time.Second)), inner(WithTTL(3 * time.Second)), []string{"WithGrace(1s)", "750ms"}},
		{"TTL too short for the grace with the drift", outer(WithGrace(97*ms), WithDrift(0.25)), inner(WithTTL(392 * ms)),
			[]string{"WithGrace(97ms)", "drift of 100ms", "half of the TTL of 392ms"}},
		{"TTL above the max hold", outer(WithTTL(time.Second), WithMaxHold(2*time.Second)), inner(WithTTL(3 * time.Second)),
			[]string{"WithMaxHold(2s)", "at least 3s, the TTL"}},
		{"max hold below the TTL", nil, inner(WithMaxHold(time.Second)), []string{"WithMaxHold(1s)", "at least 10s"}},
		{"zero max hold lifts no bound", outer(WithMaxHold(time.Hour)), inner(WithMaxHold(0)), []string{"WithMaxHold(0s)", "at least 10s"}},
		{"max hold without renewal", nil, inner(WithMaxHold(time.Hour), WithoutRenewal()), []string{"WithMaxHold", "WithoutRenewal"}},
		{"no renewal where New set a max hold", outer(WithMaxHold(time.Hour)), inner(WithoutRenewal()), nil},
		{"max hold where New switched renewal off", outer(WithoutRenewal()), inner(WithMaxHold(time.Hour)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := newConfig(test.outer)
			if err != nil {
				t.Fatal(err)
			}
			before := c.lockConfig
			_, err = c.forCall(test.inner)
			if test.want != nil {
				wantConfigError(t, err, test.want...)
			} else if err != nil {
				t.Errorf("got %v, want it accepted", err)
			}
			if c.lockConfig != before {
				t.Errorf("the call changed the Locker: %+v became %+v", before, c.lockConfig)
			}
		})
	}
}

// A call uses the settings of New, except those that it changes itself.
func TestCallOverridesNew(t *testing.T) {
	c, err := newConfig([]Option{WithTTL(2 * time.Second), WithGrace(time.Millisecond), WithMasterTimeout(7 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.forCall([]LockOption{WithTTL(time.Second), WithReentry(), WithoutRenewal()})
	if err != nil {
		t.Fatal(err)
	}
	if got.ttl != time.Second || got.grace != time.Millisecond || got.timeout() != 7*time.Millisecond || !got.reentry || !got.manual {
		t.Errorf("got %+v", got)
	}
}

// A bad option of a call is reported before a node is asked: there is none here.
func TestCallRefusesOptions(t *testing.T) {
	l, err := New([]string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = l.TryLock(t.Context(), "r", WithTTL(time.Hour))
	wantConfigError(t, err, "TTL of 1h0m0s", "at most 10s")
	_, err = l.Lock(t.Context(), "r", nil)
	wantConfigError(t, err, "lock option 1 is nil")
}

// The default TTL is at most the largest TTL.
func TestDefaultTTLIsAtMostTheLargest(t *testing.T) {
	for largest, want := range map[time.Duration]time.Duration{time.Second: time.Second, 10 * time.Second: 10 * time.Second, time.Hour: DefaultTTL} {
		l, err := New([]string{"127.0.0.1:1"}, WithMaxTTL(largest))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := l.Settings(); err != nil || s.TTL != want {
			t.Errorf("WithMaxTTL(%v): got a TTL of %v, %v; want %v", largest, s.TTL, err, want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := New([]string{"127.0.0.1:1"}, WithMaxTTL(time.Second), WithTTL(2*time.Second)); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v, want ErrConfig for a TTL above the largest", err)
	}
	if _, err := New([]string{"127.0.0.1:1"}, WithTTL(0)); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v, want ErrConfig for a TTL of 0", err)
	}
}

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
	if o := client.Options(); o.Addr != " a:1 " || o.Protocol != 3 || o.PoolSize != 50 {
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
