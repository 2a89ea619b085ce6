package redlock

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParseInfo(t *testing.T) {
	const redis = "# Server\r\nredis_version:7.0.15\r\nexecutable:/usr/bin/a:b\r\nrun_id:abc\r\n\r\n" +
		"# Memory\r\nmaxmemory:1024\r\nmaxmemory_human:1K\r\nmaxmemory_policy:allkeys-lru\r\n" +
		"# Persistence\r\naof_enabled:1\r\n# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n"
	all := serverInfo{runID: "abc", version: "7.0.15", role: "master", cluster: "0", policy: "allkeys-lru", memory: "1024", aof: "1"}
	valkey := all
	valkey.version = "valkey 8.1.0"
	for name, test := range map[string]struct {
		text string
		want serverInfo
	}{
		"redis":               {redis, all},
		"bare line feeds":     {strings.ReplaceAll(redis, "\r", ""), all},
		"valkey":              {redis + "valkey_version:8.1.0\r\n", valkey},
		"nothing":             {"", serverInfo{}},
		"no fields":           {"# Server\r\nrun_id\r\n", serverInfo{}},
		"names in other text": {"xrun_id:1\r\n run_id:2\r\nmaxmemory_human:3\r\n", serverInfo{}},
		"no value":            {"run_id:\r\nrole:", serverInfo{}},
		"colon in a value":    {"run_id:a:b\r\n", serverInfo{runID: "a:b"}},
		"no end of line":      {"role:slave", serverInfo{role: "slave"}},
	} {
		if got := parseInfo(test.text); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestUsable(t *testing.T) {
	for _, test := range []struct {
		info serverInfo
		says string // "" = usable
	}{
		{serverInfo{}, ""},
		{serverInfo{role: "master", cluster: "0"}, ""},
		{serverInfo{role: "master"}, ""},
		{serverInfo{cluster: "0"}, ""},
		{serverInfo{role: "slave"}, "slave"},
		{serverInfo{role: "sentinel", cluster: "0"}, "sentinel"},
		{serverInfo{role: "master", cluster: "1"}, "cluster"},
		{serverInfo{cluster: "1"}, "cluster"},
	} {
		err := test.info.usable()
		switch {
		case test.says == "" && err != nil:
			t.Errorf("%+v: got %v, want no error", test.info, err)
		case test.says != "" && (!errors.Is(err, ErrNotMaster) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%+v: got %v, want ErrNotMaster that says %q", test.info, err, test.says)
		}
		if survives(err) != (err == nil) {
			t.Errorf("%+v: the connection must be given up", test.info)
		}
	}
}

func TestLevelString(t *testing.T) {
	for l, want := range map[Level]string{
		LevelOK: "ok", LevelNotice: "notice", LevelUnknown: "unknown", LevelWarning: "warning", LevelFailure: "failure",
		LevelOK - 1: "Level(-1)", LevelFailure + 1: "Level(5)",
	} {
		if got := l.String(); got != want {
			t.Errorf("%d: got %q, want %q", int(l), got, want)
		}
	}
	if !slices.IsSorted([]Level{LevelOK, LevelNotice, LevelUnknown, LevelWarning, LevelFailure}) {
		t.Error("the levels do not rise from best to worst")
	}
}

// Every branch of the audit: what a node says of itself, the level of each finding, and
// words that have to be in its text or hint.
func TestFindings(t *testing.T) {
	const list = "3:00000000000000aa"
	good := inspection{
		info:   serverInfo{runID: "abc", version: "7", role: "master", cluster: "0", policy: "noeviction", memory: "0", aof: "1"},
		marker: marker{maxTTL: DefaultMaxTTL, list: list},
	}
	fine := map[string]Level{"identity": LevelOK, "eviction": LevelOK, "persistence": LevelOK, "guard": LevelOK, "masters": LevelOK}
	no := Level(-1) // no such finding
	for _, test := range []struct {
		name   string
		change func(*inspection, *config)
		differ map[string]Level // from fine
		says   string
	}{
		{"all well", func(*inspection, *config) {}, nil, "run id abc"},
		{"INFO refused", func(i *inspection, _ *config) { i.info, i.infoErr = serverInfo{}, errors.New("NOPERM no") },
			map[string]Level{"info": LevelUnknown, "identity": no, "eviction": no, "persistence": no}, "NOPERM no"},
		{"no run id", func(i *inspection, _ *config) { i.info.runID = "" }, map[string]Level{"identity": LevelUnknown}, "run id is not told"},
		{"eviction", func(i *inspection, _ *config) { i.info.policy, i.info.memory = "volatile-ttl", "1" },
			map[string]Level{"eviction": LevelWarning}, "volatile-ttl"},
		{"eviction without a limit", func(i *inspection, _ *config) { i.info.policy = "allkeys-lru" }, nil, "no key is evicted"},
		{"limit without eviction", func(i *inspection, _ *config) { i.info.memory = "1" }, nil, "no key is evicted"},
		{"policy not told", func(i *inspection, _ *config) { i.info.policy = "" }, map[string]Level{"eviction": LevelUnknown}, "noeviction"},
		{"limit not told", func(i *inspection, _ *config) { i.info.memory = "" }, map[string]Level{"eviction": LevelUnknown}, "maxmemory"},
		{"limit not told, policy bad", func(i *inspection, _ *config) { i.info.memory, i.info.policy = "", "allkeys-lru" },
			map[string]Level{"eviction": LevelUnknown}, "maxmemory"},
		{"no file", func(i *inspection, _ *config) { i.info.aof = "0" }, map[string]Level{"persistence": LevelNotice}, "restart"},
		{"file not told", func(i *inspection, _ *config) { i.info.aof = "" }, map[string]Level{"persistence": LevelUnknown}, "append-only"},
		{"trusted, with a file", func(_ *inspection, c *config) { c.trusted = true }, nil, "append-only"},
		{"trusted, no file", func(i *inspection, c *config) { i.info.aof, c.trusted = "0", true },
			map[string]Level{"persistence": LevelWarning}, "WithTrustedDisk"},
		{"trusted, file not told", func(i *inspection, c *config) { i.info.aof, c.trusted = "", true },
			map[string]Level{"persistence": LevelUnknown}, "WithTrustedDisk"},
		{"guard off", func(i *inspection, _ *config) { i.marker, i.markerErr = marker{}, errGuardOff },
			map[string]Level{"guard": LevelNotice, "masters": no}, "WithoutRestartGuard"},
		{"marker refused", func(i *inspection, _ *config) { i.marker, i.markerErr = marker{}, errors.New("NOPERM hset") },
			map[string]Level{"guard": LevelFailure, "masters": no}, "NOPERM hset"},
		{"quarantine", func(i *inspection, _ *config) { i.marker.left = 1234 * time.Millisecond },
			map[string]Level{"guard": LevelFailure}, "1.2s"},
		{"the last of a quarantine", func(i *inspection, _ *config) { i.marker.left = time.Millisecond },
			map[string]Level{"guard": LevelFailure}, "no vote"},
		{"larger MaxTTL", func(i *inspection, _ *config) { i.marker.maxTTL = DefaultMaxTTL + time.Millisecond },
			map[string]Level{"max-ttl": LevelWarning}, "10.001s"},
		{"another list", func(i *inspection, _ *config) { i.marker.list = "5:00000000000000aa" },
			map[string]Level{"masters": LevelWarning}, "has 5 masters, this one 3"},
		{"larger MaxTTL in quarantine", func(i *inspection, _ *config) { i.marker.maxTTL, i.marker.left = time.Hour, time.Second },
			map[string]Level{"max-ttl": LevelWarning, "guard": LevelFailure}, "1h0m0s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := good
			c, err := newConfig(nil)
			if err != nil {
				t.Fatal(err)
			}
			test.change(&i, c)
			want := make(map[string]Level)
			for check, l := range fine {
				want[check] = l
			}
			for check, l := range test.differ {
				if want[check] = l; l == no {
					delete(want, check)
				}
			}
			var all []string
			for _, f := range c.findings(&i, list) {
				if l, ok := want[f.Check]; !ok || l != f.Level {
					t.Errorf("got %+v, want %v (%v)", f, l, ok)
				}
				delete(want, f.Check)
				if f.Level > LevelNotice && f.Hint == "" && f.Check != "persistence" {
					t.Errorf("%+v has no hint", f)
				}
				all = append(all, f.err().Error())
			}
			if len(want) > 0 {
				t.Errorf("not found: %v", want)
			}
			if text := strings.Join(all, "\n"); !strings.Contains(text, test.says) {
				t.Errorf("got %q, want it to say %q", text, test.says)
			}
		})
	}
}

func TestFindingError(t *testing.T) {
	for want, f := range map[string]Finding{
		"eviction: keys go":               {Check: "eviction", Text: "keys go"},
		"eviction: keys go (set nothing)": {Check: "eviction", Text: "keys go", Hint: "set nothing"},
	} {
		if got := f.err().Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestListFinding(t *testing.T) {
	const own = "3:aaaaaaaaaaaaaaaa"
	for _, test := range []struct {
		last string
		want Level
		says string
	}{
		{own, LevelOK, "the same list"},
		{"", LevelOK, "no other client"},
		{"3:bbbbbbbbbbbbbbbb", LevelNotice, "other names"},
		{"5:aaaaaaaaaaaaaaaa", LevelWarning, "has 5 masters, this one 3"},
		{"30:aaaaaaaaaaaaaaa", LevelWarning, "has 30 masters, this one 3"},
		{"garbage", LevelWarning, "garbage"},
	} {
		f := listFinding(test.last, own)
		if f.Check != "masters" || f.Level != test.want || !strings.Contains(f.Text, test.says) || (f.Hint == "") != (f.Level == LevelOK) {
			t.Errorf("%q: got %+v, want %v that says %q, with a hint if it is not ok", test.last, f, test.want, test.says)
		}
	}
}

func TestFingerprint(t *testing.T) {
	a := fingerprint([]string{"a:1", "b:2", "c:3"})
	for _, same := range [][]string{{"a:1", "b:2", "c:3"}, {"c:3", "a:1", "b:2"}, {"b:2", "a:1", "c:3"}} {
		if got := fingerprint(same); got != a {
			t.Errorf("%q: got %s, want %s whatever the order", same, got, a)
		}
	}
	seen := map[string][]string{a: nil}
	for _, other := range [][]string{{"a:1", "b:2"}, {"a:1", "b:2", "c:4"}, {"a:1b:2", "c:3", ""}, {"a:1", "b:2", "c:3", "d:4"}, {"a:1"}, {}} {
		got := fingerprint(other)
		if first, twice := seen[got]; twice {
			t.Errorf("%q and %q: both got %s", first, other, got)
		}
		seen[got] = other
		if want := fmt.Sprintf("%d:", len(other)); !strings.HasPrefix(got, want) {
			t.Errorf("%q: got %s, want the number of masters first", other, got)
		}
	}
	list := []string{"b:2", "a:1"}
	fingerprint(list)
	if !slices.Equal(list, []string{"b:2", "a:1"}) {
		t.Errorf("the caller's list was sorted: %q", list)
	}
}

// step is one connection of a lane, and what has to come of it.
type step struct {
	lane int
	run  string
	twin int  // the lane that has the server already, -1 for none
	bad  bool // the whole list grants nothing after that
}

func TestRoster(t *testing.T) {
	const none = -1
	for name, steps := range map[string][]step{
		"three servers":                       {{0, "x", none, false}, {1, "y", none, false}, {2, "z", none, false}},
		"the same again":                      {{0, "x", none, false}, {0, "x", none, false}, {1, "y", none, false}, {0, "x", none, false}},
		"unknown is nobody":                   {{0, "", none, false}, {1, "", none, false}, {2, "x", none, false}, {0, "", none, false}},
		"twins at first":                      {{0, "x", none, false}, {1, "x", 0, true}, {2, "z", none, true}, {1, "x", 0, true}},
		"in any order":                        {{2, "x", none, false}, {0, "x", 2, true}, {1, "y", none, true}},
		"three of a kind":                     {{1, "x", none, false}, {0, "x", 1, true}, {2, "x", 1, true}, {0, "y", none, true}, {2, "z", none, false}},
		"the second goes elsewhere":           {{0, "x", none, false}, {1, "x", 0, true}, {1, "y", none, false}, {0, "x", none, false}},
		"the first goes elsewhere":            {{0, "x", none, false}, {1, "x", 0, true}, {0, "z", none, true}, {1, "x", none, false}},
		"a lane moves to a new server":        {{0, "x", none, false}, {1, "y", none, false}, {0, "z", none, false}, {2, "x", none, false}},
		"twins later":                         {{0, "x", none, false}, {1, "y", none, false}, {0, "y", 1, false}, {0, "y", 1, false}, {0, "x", none, false}},
		"two lanes change places":             {{0, "x", none, false}, {1, "y", none, false}, {0, "y", 1, false}, {1, "x", none, false}, {0, "y", none, false}},
		"restart":                             {{0, "x", none, false}, {1, "y", none, false}, {0, "x2", none, false}, {1, "x", none, false}},
		"refused, the server is free":         {{0, "x", none, false}, {1, "y", none, false}, {1, "x", 0, false}, {2, "y", none, false}},
		"twins, and one tells no more":        {{0, "x", none, false}, {1, "x", 0, true}, {1, "", none, false}},
		"a lane moves to one that is unknown": {{0, "x", none, false}, {1, "y", none, false}, {0, "", none, false}, {1, "x", none, false}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoster([]string{"a:1", "b:2", "c:3"})
			for i, s := range steps {
				err := r.enroll(s.lane, s.run)
				switch {
				case s.twin == none && err != nil:
					t.Fatalf("step %d: got %v, want no error", i+1, err)
				case s.twin != none && (!errors.Is(err, ErrSameServer) || !strings.Contains(err.Error(), r.addrs[s.twin])):
					t.Fatalf("step %d: got %v, want ErrSameServer that names %s", i+1, err, r.addrs[s.twin])
				}
				bad := r.misconfiguration()
				if (bad != nil) != s.bad || bad != nil && !errors.Is(bad, ErrSameServer) {
					t.Fatalf("step %d: got %v for the list, want an error: %v", i+1, bad, s.bad)
				}
				if s.twin != none && s.bad && !(strings.Contains(bad.Error(), "b:2") || strings.Contains(bad.Error(), "a:1")) {
					t.Errorf("step %d: got %v, want the masters named", i+1, bad)
				}
			}
		})
	}
}

// No server is ever given to two lanes, and the error of the list may be read at any time.
func TestRosterConcurrently(t *testing.T) {
	r := newRoster([]string{"a:1", "b:2", "c:3"})
	holder := make(map[string]int)
	var mu sync.Mutex
	var lanes, readers sync.WaitGroup
	for lane := range 3 {
		lanes.Go(func() {
			for i := range 500 {
				run := fmt.Sprint("run ", (i+lane)%4)
				mu.Lock() // a lane leaves its server before it comes to another
				for held, by := range holder {
					if by == lane {
						delete(holder, held)
					}
				}
				mu.Unlock()
				if err := r.enroll(lane, ""); err != nil {
					t.Error(err)
				}
				if r.enroll(lane, run) != nil {
					continue
				}
				mu.Lock()
				if by, taken := holder[run]; taken {
					t.Errorf("%s was given to lane %d and to lane %d", run, by, lane)
				}
				holder[run] = lane
				mu.Unlock()
			}
		})
	}
	stop := make(chan struct{})
	readers.Go(func() {
		for {
			if err := r.misconfiguration(); err != nil && !errors.Is(err, ErrSameServer) {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	lanes.Wait()
	close(stop)
	readers.Wait()
}

// A finding is told when it appears, not as long as it stays, and again when it comes back.
func TestAuditTellsWhatIsNew(t *testing.T) {
	var told []string
	ev := newEvents(&Observer{Warning: func(e Event) {
		check, _, _ := strings.Cut(e.Err.Error(), ":")
		told = append(told, e.Node+" "+check)
	}}, func() *slog.Logger { return slog.New(slog.DiscardHandler) })
	conf, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	n := &lane{addr: "a", conf: conf, events: ev, guarding: newGuarding(conf, []string{"a"})}
	good := inspection{info: serverInfo{runID: "x", policy: "noeviction", memory: "1", aof: "0"}, marker: marker{maxTTL: conf.maxTTL}}
	evicts, both, unguarded := good, good, good
	evicts.info.policy = "allkeys-lru"
	both.info.policy, both.marker.maxTTL = "allkeys-lru", 2*conf.maxTTL
	unguarded.markerErr = errGuardOff // a notice, which is not told
	refused := inspection{infoErr: errors.New("NOPERM"), marker: good.marker}
	for _, i := range []inspection{good, evicts, evicts, both, both, good, unguarded, evicts, evicts, refused, refused} {
		n.audited(&i)
	}
	ev.close()
	ev.run()
	if want := []string{"a eviction", "a max-ttl", "a eviction", "a info"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}

func TestHints(t *testing.T) {
	for hint, err := range map[string]error{
		"once":        &sentinelError{ErrSameServer, errors.New("x")},
		"independent": &sentinelError{ErrNotMaster, errors.New("x")},
		"README":      &sentinelError{ErrPermission, errors.New("x")},
	} {
		if got := hintFor(err); !strings.Contains(got, hint) {
			t.Errorf("%v: got %q, want %q in it", err, got, hint)
		}
	}
	if got := hintFor(errNodeTimeout); got != "" {
		t.Errorf("got %q, want no hint", got)
	}
}
