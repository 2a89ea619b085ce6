package redlock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/node"
)

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

// Every branch of the audit: the answers of a node, the level of each finding, and words that
// its text or hint must contain.
func TestFindings(t *testing.T) {
	good := node.Audit{
		Info:   node.Info{RunID: "abc", Version: "7", Role: "master", Cluster: "0", Policy: "noeviction", Memory: "0", AOF: "1"},
		Marker: node.Marker{MaxTTL: DefaultMaxTTL},
	}
	fine := map[string]Level{"identity": LevelOK, "eviction": LevelOK, "persistence": LevelOK, "guard": LevelOK, "masters": LevelOK}
	no := Level(-1) // no such finding
	for _, test := range []struct {
		name   string
		change func(*node.Audit, *config)
		differ map[string]Level // from fine
		says   string
	}{
		{"all well", func(*node.Audit, *config) {}, nil, "run id abc"},
		{"INFO refused", func(i *node.Audit, _ *config) { i.Info, i.InfoErr = node.Info{}, errors.New("NOPERM no") },
			map[string]Level{"info": LevelUnknown, "identity": no, "eviction": no, "persistence": no}, "NOPERM no"},
		{"no run id", func(i *node.Audit, _ *config) { i.Info.RunID = "" }, map[string]Level{"identity": LevelUnknown}, "run id is not told"},
		{"eviction", func(i *node.Audit, _ *config) { i.Info.Policy, i.Info.Memory = "volatile-ttl", "1" },
			map[string]Level{"eviction": LevelWarning}, "volatile-ttl"},
		{"eviction without a limit", func(i *node.Audit, _ *config) { i.Info.Policy = "allkeys-lru" }, nil, "no key is evicted"},
		{"limit without eviction", func(i *node.Audit, _ *config) { i.Info.Memory = "1" }, nil, "no key is evicted"},
		{"policy not told", func(i *node.Audit, _ *config) { i.Info.Policy = "" }, map[string]Level{"eviction": LevelUnknown}, "noeviction"},
		{"limit not told", func(i *node.Audit, _ *config) { i.Info.Memory = "" }, map[string]Level{"eviction": LevelUnknown}, "maxmemory"},
		{"limit not told, policy bad", func(i *node.Audit, _ *config) { i.Info.Memory, i.Info.Policy = "", "allkeys-lru" },
			map[string]Level{"eviction": LevelUnknown}, "maxmemory"},
		{"no file", func(i *node.Audit, _ *config) { i.Info.AOF = "0" }, map[string]Level{"persistence": LevelNotice}, "restart"},
		{"file not told", func(i *node.Audit, _ *config) { i.Info.AOF = "" }, map[string]Level{"persistence": LevelUnknown}, "append-only"},
		{"trusted, with a file", func(i *node.Audit, c *config) {
			i.Info.Disk, c.trusted = node.Disk{Fsync: "always", OnRewrite: "no"}, true
		}, nil, "append-only"},
		{"trusted, synced each second", func(i *node.Audit, c *config) {
			i.Info.Disk, c.trusted = node.Disk{Fsync: "everysec", OnRewrite: "no"}, true
		},
			map[string]Level{"persistence": LevelWarning}, "appendfsync everysec"},
		{"trusted, not synced while rewritten", func(i *node.Audit, c *config) {
			i.Info.Disk, c.trusted = node.Disk{Fsync: "always", OnRewrite: "yes"}, true
		},
			map[string]Level{"persistence": LevelWarning}, "on-rewrite yes"},
		{"trusted, sync not told", func(i *node.Audit, c *config) {
			i.Info.Disk, c.trusted = node.Disk{Err: errors.New("NOPERM config")}, true
		},
			map[string]Level{"persistence": LevelUnknown}, "NOPERM config"},
		{"trusted, no file", func(i *node.Audit, c *config) { i.Info.AOF, c.trusted = "0", true },
			map[string]Level{"persistence": LevelWarning}, "WithTrustedDisk"},
		{"trusted, file not told", func(i *node.Audit, c *config) { i.Info.AOF, c.trusted = "", true },
			map[string]Level{"persistence": LevelUnknown}, "WithTrustedDisk"},
		{"guard off", func(i *node.Audit, _ *config) { i.Marker, i.MarkerErr = node.Marker{}, node.ErrGuardOff },
			map[string]Level{"guard": LevelNotice, "masters": no}, "WithoutRestartGuard"},
		{"marker refused", func(i *node.Audit, _ *config) { i.Marker, i.MarkerErr = node.Marker{}, errors.New("NOPERM hset") },
			map[string]Level{"guard": LevelFailure, "masters": no}, "NOPERM hset"},
		{"quarantine", func(i *node.Audit, _ *config) { i.Marker.Left = 1234 * time.Millisecond },
			map[string]Level{"guard": LevelFailure}, "1.2s"},
		{"the last of a quarantine", func(i *node.Audit, _ *config) { i.Marker.Left = time.Millisecond },
			map[string]Level{"guard": LevelFailure}, "no vote"},
		{"larger MaxTTL", func(i *node.Audit, _ *config) { i.Marker.MaxTTL = DefaultMaxTTL + time.Millisecond },
			map[string]Level{"max-ttl": LevelWarning}, "10.001s"},
		{"another list", func(i *node.Audit, _ *config) { i.Marker.Lists = []string{"a:1, b:2"} },
			map[string]Level{"masters": LevelWarning}, "a:1, b:2"},
		{"a list in conflict", func(i *node.Audit, _ *config) {
			i.Marker.Lists = []string{"a:1, b:2", "a:1, d:4"}
			i.Marker.Conflict = &node.Conflict{Other: i.Marker.Lists[1]}
		}, map[string]Level{"masters": LevelFailure}, "a:1, d:4"},
		{"larger MaxTTL in quarantine", func(i *node.Audit, _ *config) { i.Marker.MaxTTL, i.Marker.Left = time.Hour, time.Second },
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
			for _, f := range c.findings(&i) {
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

// A finding is reported when it appears, not as long as it stays, and again when it comes back.
func TestAuditTellsWhatIsNew(t *testing.T) {
	conf, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := node.Audit{Info: node.Info{RunID: "x", Policy: "noeviction", Memory: "1", AOF: "0"}, Marker: node.Marker{MaxTTL: conf.maxTTL}}
	evicts, both, unguarded := good, good, good
	evicts.Info.Policy = "allkeys-lru"
	both.Info.Policy, both.Marker.MaxTTL = "allkeys-lru", 2*conf.maxTTL
	unguarded.MarkerErr = node.ErrGuardOff // a notice, which is not reported
	refused := node.Audit{InfoErr: errors.New("NOPERM"), Marker: good.Marker}
	var told []string
	var before *node.Audit
	for _, now := range []node.Audit{good, evicts, evicts, both, both, good, unguarded, evicts, evicts, refused, refused} {
		for _, f := range conf.newFindings(before, &now) {
			told = append(told, f.Check)
		}
		before = &now
	}
	if want := []string{"eviction", "max-ttl", "eviction", "info"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}

func TestHints(t *testing.T) {
	for hint, err := range map[string]error{
		"once":               &node.Marked{Sentinel: ErrSameServer, Err: errors.New("x")},
		"independent":        &node.Marked{Sentinel: ErrNotMaster, Err: errors.New("x")},
		"docs/operations.md": &node.Marked{Sentinel: ErrPermission, Err: errors.New("x")},
	} {
		if got := hintFor(err); !strings.Contains(got, hint) {
			t.Errorf("%v: got %q, want %q in it", err, got, hint)
		}
	}
	if got := hintFor(errNodeTimeout); got != "" {
		t.Errorf("got %q, want no hint", got)
	}
}
