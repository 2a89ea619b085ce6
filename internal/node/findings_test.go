package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/wire"
)

const ownMaxTTL = 10 * time.Second

// Every branch of the audit: the answers of a node, the level of each finding, and words that
// its text or hint must contain.
func TestFindings(t *testing.T) {
	good := Audit{
		Info:   Info{RunID: "abc", Version: "7", Role: "master", Cluster: "0", Policy: "noeviction", Memory: "0", AOF: "1"},
		Marker: Marker{MaxTTL: ownMaxTTL},
	}
	fine := map[string]Level{"identity": OK, "eviction": OK, "persistence": OK, "guard": OK, "masters": OK}
	no := Level(-1) // no such finding
	for _, test := range []struct {
		name   string
		change func(*Audit, *Config)
		differ map[string]Level // from fine
		says   string
	}{
		{"all well", func(*Audit, *Config) {}, nil, "run id abc"},
		{"INFO refused", func(i *Audit, _ *Config) { i.Info, i.InfoErr = Info{}, errors.New("NOPERM no") },
			map[string]Level{"info": Unknown, "identity": no, "eviction": no, "persistence": no}, "NOPERM no"},
		{"no run id", func(i *Audit, _ *Config) { i.Info.RunID = "" }, map[string]Level{"identity": Unknown}, "run id is not told"},
		{"eviction", func(i *Audit, _ *Config) { i.Info.Policy, i.Info.Memory = "volatile-ttl", "1" },
			map[string]Level{"eviction": Caution}, "volatile-ttl"},
		{"eviction without a limit", func(i *Audit, _ *Config) { i.Info.Policy = "allkeys-lru" }, nil, "no key is evicted"},
		{"limit without eviction", func(i *Audit, _ *Config) { i.Info.Memory = "1" }, nil, "no key is evicted"},
		{"policy not told", func(i *Audit, _ *Config) { i.Info.Policy = "" }, map[string]Level{"eviction": Unknown}, "noeviction"},
		{"limit not told", func(i *Audit, _ *Config) { i.Info.Memory = "" }, map[string]Level{"eviction": Unknown}, "maxmemory"},
		{"limit not told, policy bad", func(i *Audit, _ *Config) { i.Info.Memory, i.Info.Policy = "", "allkeys-lru" },
			map[string]Level{"eviction": Unknown}, "maxmemory"},
		{"no file", func(i *Audit, _ *Config) { i.Info.AOF = "0" }, nil, "none is needed"},
		{"file not told", func(i *Audit, _ *Config) { i.Info.AOF = "" }, map[string]Level{"persistence": Unknown}, "append-only"},
		{"trusted, with a file", func(i *Audit, c *Config) {
			i.Info.Disk, c.Trusted = Disk{Fsync: "always", OnRewrite: "no"}, true
		}, nil, "append-only"},
		{"trusted, synced each second", func(i *Audit, c *Config) {
			i.Info.Disk, c.Trusted = Disk{Fsync: "everysec", OnRewrite: "no"}, true
		},
			map[string]Level{"persistence": Caution}, "appendfsync everysec"},
		{"trusted, not synced while rewritten", func(i *Audit, c *Config) {
			i.Info.Disk, c.Trusted = Disk{Fsync: "always", OnRewrite: "yes"}, true
		},
			map[string]Level{"persistence": Caution}, "on-rewrite yes"},
		{"trusted, sync not told", func(i *Audit, c *Config) {
			i.Info.Disk, c.Trusted = Disk{Err: errors.New("NOPERM config")}, true
		},
			map[string]Level{"persistence": Unknown}, "NOPERM config"},
		{"trusted, no file", func(i *Audit, c *Config) { i.Info.AOF, c.Trusted = "0", true },
			map[string]Level{"persistence": Caution}, "WithTrustedDisk"},
		{"trusted, file not told", func(i *Audit, c *Config) { i.Info.AOF, c.Trusted = "", true },
			map[string]Level{"persistence": Unknown}, "WithTrustedDisk"},
		{"guard off", func(i *Audit, _ *Config) { i.Marker, i.MarkerErr = Marker{}, ErrGuardOff },
			map[string]Level{"guard": Notice, "masters": no}, "WithoutRestartGuard"},
		{"marker refused", func(i *Audit, _ *Config) { i.Marker, i.MarkerErr = Marker{}, errors.New("NOPERM hset") },
			map[string]Level{"guard": Failure, "masters": no}, "NOPERM hset"},
		{"quarantine", func(i *Audit, _ *Config) { i.Marker.Left = 1234 * time.Millisecond },
			map[string]Level{"guard": Failure}, "no vote for 1.3s"},
		{"quarantine of a node that granted nothing", func(i *Audit, c *Config) {
			i.Marker.Left, c.Granted = 1234*time.Millisecond, func() bool { return false }
		}, map[string]Level{"guard": Failure}, "(wait 1.3s; only if no lock was ever taken on these masters: redlock init, "},
		{"quarantine after a lease", func(i *Audit, c *Config) {
			i.Marker.Left, c.Granted = 1234*time.Millisecond, func() bool { return true }
		}, map[string]Level{"guard": Failure}, "(wait 1.3s)"},
		{"the last of a quarantine", func(i *Audit, _ *Config) { i.Marker.Left = time.Millisecond },
			map[string]Level{"guard": Failure}, "no vote"},
		{"larger MaxTTL", func(i *Audit, _ *Config) { i.Marker.MaxTTL = ownMaxTTL + time.Millisecond },
			map[string]Level{"max-ttl": Caution}, "10.001s"},
		{"another list", func(i *Audit, _ *Config) { i.Marker.Lists = []Other{{"a:1, b:2", ""}} },
			map[string]Level{"masters": Caution}, "other clients have the list of masters a:1, b:2"},
		{"a list in conflict", func(i *Audit, _ *Config) {
			i.Marker.Lists = []Other{{"a:1, b:2", ""}, {"a:1, d:4", "web-3:4711:shop"}}
			i.Marker.Conflict = &Conflict{i.Marker.Lists[1]}
		}, map[string]Level{"masters": Failure}, "client web-3:4711:shop has the list of masters a:1, d:4, and a quorum"},
		{"larger MaxTTL in quarantine", func(i *Audit, _ *Config) { i.Marker.MaxTTL, i.Marker.Left = time.Hour, time.Second },
			map[string]Level{"max-ttl": Caution, "guard": Failure}, "1h0m0s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := good
			s := &Set{conf: &Config{MaxTTL: ownMaxTTL}}
			test.change(&i, s.conf)
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
			for _, f := range s.Findings(&i) {
				if l, ok := want[f.Check]; !ok || l != f.Level {
					t.Errorf("got %+v, want %v (%v)", f, l, ok)
				}
				delete(want, f.Check)
				if f.Level > Notice && f.Hint == "" && f.Check != "persistence" {
					t.Errorf("%+v has no hint", f)
				}
				all = append(all, f.Err().Error())
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

// A finding is reported when it appears, not as long as it stays, and again when it comes back.
func TestAuditTellsWhatIsNew(t *testing.T) {
	s := &Set{conf: &Config{MaxTTL: ownMaxTTL}}
	good := Audit{Info: Info{RunID: "x", Policy: "noeviction", Memory: "1", AOF: "0"}, Marker: Marker{MaxTTL: s.conf.MaxTTL}}
	evicts, both, unguarded := good, good, good
	evicts.Info.Policy = "allkeys-lru"
	both.Info.Policy, both.Info.RunID = "allkeys-lru", ""
	unguarded.MarkerErr = ErrGuardOff // a notice, which is not reported
	refused := Audit{InfoErr: errors.New("NOPERM"), Marker: good.Marker}
	var told []string
	var before *Audit
	for _, now := range []Audit{good, evicts, evicts, both, both, good, unguarded, evicts, evicts, refused, refused} {
		for _, f := range s.News(before, &now) {
			told = append(told, f.Check)
		}
		before = &now
	}
	if want := []string{"eviction", "identity", "eviction", "info"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}

// The label of another client comes from a node, so that what is no label is not shown.
func TestOtherIn(t *testing.T) {
	for line, want := range map[string]Other{
		"a:1 b:2\tweb-3 4711\n": {"a:1, b:2", "web-3 4711"},
		"a:1\t\x1b[2J":          {"a:1", ""},
		"a:1\t" + strings.Repeat("x", wire.MaxLabel+1): {"a:1", ""},
	} {
		if got := otherIn(line); got != want {
			t.Errorf("%q: got %+v, want %+v", line, got, want)
		}
	}
}
