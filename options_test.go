package redlock

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func configOf(t *testing.T, opts ...Option) *config {
	t.Helper()
	c, err := newConfig(opts)
	must(t, err)
	return c
}

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
	if n := len(err.Error()); n > 1000 {
		t.Errorf("%d bytes, want a short error", n)
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
	c := configOf(t)
	for name, v := range map[string][2]any{
		"TTL":         {c.TTL, 10 * time.Second},
		"MaxTTL":      {c.maxTTL, 10 * time.Second},
		"drift":       {c.drift, 0.01},
		"NodeTimeout": {c.Timeout(), 250 * time.Millisecond},
		"MinValidity": {c.minValidity(), 5 * time.Second},
		"B":           {fenceBlock, 64},
		"grace":       {c.Grace, time.Duration(0)},
		"max hold":    {c.MaxHold, time.Duration(0)},
		"votes wait":  {c.votesWait, time.Duration(0)},
		"no renewal":  {c.Manual, false},
		"re-entry":    {c.reentry, false},
		"key prefix":  {c.keyPrefix, "redlock:"},
		"observer":    {len(c.observers), 0},
		"clock":       {reflect.TypeOf(c.clock.Source), reflect.TypeOf(clock.System())},
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
	c := configOf(t, WithMaxTTL(time.Minute))
	for _, test := range []struct{ ttl, timeout, minValidity time.Duration }{
		{50 * time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond},
		{2499 * time.Millisecond, 249900 * time.Microsecond, 1249500 * time.Microsecond},
		{2500 * time.Millisecond, 250 * time.Millisecond, 1250 * time.Millisecond},
		{time.Minute, 250 * time.Millisecond, 30 * time.Second},
	} {
		lc, err := c.forCall([]LockOption{WithTTL(test.ttl)})
		must(t, err)
		if got := lc.Timeout(); got != test.timeout {
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
		c := configOf(t, test.opts...)
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
			WithGrace(100*ms), WithMaxHold(time.Hour), WithReentry(), WithObserver(func(Event) {})), nil},

		{"nil option", list(nil), []string{"option 1 is nil"}},
		{"nil option behind another", list(WithReentry(), nil), []string{"option 2 is nil"}},

		{"shortest TTL", list(WithTTL(50 * ms)), nil},
		{"TTL below the shortest", list(WithTTL(50*ms - ns)), []string{"WithTTL(49.999999ms)", "at least 50ms"}},
		{"zero TTL", list(WithTTL(0)), []string{"WithTTL(0s)", "at least 50ms"}},
		{"negative TTL", list(WithTTL(-time.Second)), []string{"WithTTL(-1s)", "at least 50ms"}},
		{"TTL as large as MaxTTL", list(WithTTL(time.Minute), WithMaxTTL(time.Minute)), nil},
		{"TTL above MaxTTL", list(WithTTL(time.Minute+ns), WithMaxTTL(time.Minute)), []string{"TTL of 1m0.000000001s", "at most 1m0s", "WithMaxTTL"}},
		{"largest TTL there is", list(WithTTL(math.MaxInt64)), []string{"TTL of 2562047h47m16.854775807s", "at most 10s"}},

		{"shortest MaxTTL", list(WithTTL(50*ms), WithMaxTTL(50*ms)), nil},
		{"MaxTTL below the shortest", list(WithTTL(50*ms), WithMaxTTL(50*ms-ns)), []string{"WithMaxTTL(49.999999ms)", "from 50ms to 24h0m0s"}},
		{"longest MaxTTL", list(WithTTL(24*time.Hour), WithMaxTTL(24*time.Hour)), nil},
		{"MaxTTL above the longest", list(WithMaxTTL(24*time.Hour + ns)), []string{"WithMaxTTL(24h0m0.000000001s)", "from 50ms to 24h0m0s"}},
		{"zero MaxTTL", list(WithMaxTTL(0)), []string{"WithMaxTTL(0s)", "from 50ms to 24h0m0s"}},

		{"least drift", list(WithDrift(0.001)), nil},
		{"drift below the least", list(WithDrift(math.Nextafter(0.001, 0))), []string{"WithDrift(0.0009999999999999998)", "from 0.001 to 0.25"}},
		{"most drift", list(WithDrift(0.25)), nil},
		{"drift above the most", list(WithDrift(math.Nextafter(0.25, 1))), []string{"WithDrift(0.25000000000000006)", "from 0.001 to 0.25"}},
		{"zero drift", list(WithDrift(0)), []string{"WithDrift(0)", "from 0.001 to 0.25"}},
		{"drift that is no number", list(WithDrift(math.NaN())), []string{"WithDrift(NaN)", "from 0.001 to 0.25"}},

		{"no key prefix", list(WithKeyPrefix("")), nil},
		{"longest key prefix", list(WithKeyPrefix(strings.Repeat("p", 256))), nil},
		{"key prefix above the longest", list(WithKeyPrefix(strings.Repeat("p", 257))), []string{`WithKeyPrefix("pppppppppppppppp")`, "at most 256 bytes, and has 257"}},

		{"shortest node timeout", list(WithMasterTimeout(ms)), nil},
		{"node timeout below the shortest", list(WithMasterTimeout(ms - ns)), []string{"WithMasterTimeout(999.999µs)", "from 1ms to 2.5s"}},
		{"node timeout of a quarter of the TTL", list(WithMasterTimeout(2500 * ms)), nil},
		{"node timeout above a quarter of the TTL", list(WithMasterTimeout(2500*ms + ns)), []string{"WithMasterTimeout(2.500000001s)", "from 1ms to 2.5s", "a quarter of the TTL"}},
		{"zero node timeout", list(WithMasterTimeout(0)), []string{"WithMasterTimeout(0s)", "from 1ms to 2.5s"}},
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
		{"longest max hold", list(WithMaxHold(math.MaxInt64)), nil},
		{"longest min hold, and no max hold", list(WithMinHold(math.MaxInt64), WithMaxHold(math.MaxInt64)), nil},
		{"max hold without renewal", list(WithMaxHold(time.Hour), WithoutRenewal()), []string{"WithMaxHold", "WithoutRenewal"}},
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
		{"an owner of a megabyte", list(WithOwner(strings.Repeat("x", 1<<20))), []string{"WithOwner(", "at most 64 bytes"}},
		{"owner with a bar", list(WithOwner("a|b")), []string{`WithOwner("a|b")`, "without |"}},
		{"owner with a line break", list(WithOwner("a\nb")), []string{`WithOwner("a\nb")`, "printable"}},
		{"owner that is no UTF-8", list(WithOwner("a\xff")), []string{`WithOwner("a\xff")`, "printable"}},

		{"the last value counts", list(WithTTL(0), WithTTL(time.Second)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := New([]string{"127.0.0.1:1"}, test.opts...)
			if test.want != nil {
				wantConfigError(t, err, test.want...)
				return
			}
			must(t, err)
			must(t, l.Close())
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
		{"no renewal, and without the max hold of New", outer(WithMaxHold(time.Hour)), inner(WithoutRenewal(), WithMaxHold(math.MaxInt64)), nil},
		{"no renewal where New set a max hold", outer(WithMaxHold(time.Hour)), inner(WithoutRenewal()), nil},
		{"max hold where New switched renewal off", outer(WithoutRenewal()), inner(WithMaxHold(time.Hour)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := configOf(t, test.outer...)
			before := c.lockConfig
			_, err := c.forCall(test.inner)
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

// An option given to a call makes the same lease as the option given to New: leases are handed over and shared among
// callers with the same options.
func TestSameOptionsMakeTheSameLease(t *testing.T) {
	for _, o := range []LockOption{WithTTL(time.Second), WithMaxHold(time.Minute), WithMaxHold(math.MaxInt64), WithMinHold(time.Second), WithGrace(time.Second),
		WithoutRenewal(), WithReentry(), Shared(), WithOwner("o"), WithQuarantineWait(time.Second)} {
		ofNew := configOf(t, o)
		for name, c := range map[string]*config{"without it": configOf(t), "with it": ofNew} {
			got, err := c.forCall([]LockOption{o})
			must(t, err)
			if got != ofNew.lockConfig {
				t.Errorf("a call with it, of a Locker %s: %+v, want %+v", name, got, ofNew.lockConfig)
			}
		}
	}
	if none, longest := configOf(t), configOf(t, WithMaxHold(math.MaxInt64)); none.lockConfig != longest.lockConfig {
		t.Errorf("the largest maximum hold: %+v, want none: %+v", longest.lockConfig, none.lockConfig)
	}
}

// The default TTL is at most the largest TTL.
func TestDefaultTTLIsAtMostTheLargest(t *testing.T) {
	for largest, want := range map[time.Duration]time.Duration{time.Second: time.Second, 10 * time.Second: 10 * time.Second, time.Hour: DefaultTTL} {
		l, err := New([]string{"127.0.0.1:1"}, WithMaxTTL(largest))
		must(t, err)
		if s, err := (inside{l}).Settings(); err != nil || s.TTL != want {
			t.Errorf("WithMaxTTL(%v): got a TTL of %v, %v; want %v", largest, s.TTL, err, want)
		}
		must(t, l.Close())
	}
}
