package node

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

func TestParseInfo(t *testing.T) {
	const redis = "# Server\r\nredis_version:7.0.15\r\nexecutable:/usr/bin/a:b\r\nrun_id:abc\r\n\r\n" +
		"# Memory\r\nmaxmemory:1024\r\nmaxmemory_human:1K\r\nmaxmemory_policy:allkeys-lru\r\n" +
		"# Persistence\r\naof_enabled:1\r\n# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n"
	all := Info{RunID: "abc", Version: "7.0.15", Role: "master", Cluster: "0", Policy: "allkeys-lru", Memory: "1024", AOF: "1"}
	valkey := all
	valkey.Version = "valkey 8.1.0"
	for name, test := range map[string]struct {
		text string
		want Info
	}{
		"redis":               {redis, all},
		"bare line feeds":     {strings.ReplaceAll(redis, "\r", ""), all},
		"valkey":              {redis + "valkey_version:8.1.0\r\n", valkey},
		"nothing":             {"", Info{}},
		"no fields":           {"# Server\r\nrun_id\r\n", Info{}},
		"names in other text": {"xrun_id:1\r\n run_id:2\r\nmaxmemory_human:3\r\n", Info{}},
		"no value":            {"run_id:\r\nrole:", Info{}},
		"colon in a value":    {"run_id:a:b\r\n", Info{RunID: "a:b"}},
		"no end of line":      {"role:slave", Info{Role: "slave"}},
	} {
		if got := ParseInfo(test.text); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

// All clients have the same number for a server, by whatever address they know it, and
// whether or not it tells them its run id.
//
// Source: ALGORITHM section 10, "The queue node of a resource".
func TestHashed(t *testing.T) {
	const run = "0a1b"
	for name, a := range map[string]Audit{
		"it says":          {Info: Info{RunID: run, ReplID: "x"}},
		"it was promoted":  {Info: Info{RunID: run, ReplID: "y"}},
		"another wrote it": {Marker: Marker{run: run + ":x"}},
		"both":             {Info: Info{RunID: run}, Marker: Marker{run: "old:x"}},
	} {
		if got, other := a.hashed("10.0.0.1:6379"), a.hashed("m1:6379"); got != other || got != Hash(run) {
			t.Errorf("%s: got %x and %x by another address, want %x", name, got, other, Hash(run))
		}
	}
	for name, a := range map[string]Audit{"nothing": {}, "unknown run id": {Marker: Marker{run: wire.UnknownRun}}} {
		if got, want := a.hashed("m1:6379"), Hash("m1:6379"); got != want {
			t.Errorf("%s: got %x, want that of the address", name, got)
		}
	}
}

func TestUsable(t *testing.T) {
	for _, test := range []struct {
		info Info
		says string // "" = usable
	}{
		{Info{}, ""},
		{Info{Role: "master", Cluster: "0"}, ""},
		{Info{Role: "master"}, ""},
		{Info{Cluster: "0"}, ""},
		{Info{Role: "slave"}, "slave"},
		{Info{Role: "sentinel", Cluster: "0"}, "sentinel"},
		{Info{Role: "master", Cluster: "1"}, "cluster"},
		{Info{Cluster: "1"}, "cluster"},
		{Info{Role: "slave", Cluster: "1"}, "cluster"},
	} {
		err := test.info.usable()
		switch {
		case test.says == "" && err != nil:
			t.Errorf("%+v: got %v, want no error", test.info, err)
		case test.says != "" && (!errors.Is(err, reason.NotMaster) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%+v: got %v, want reason.NotMaster that says %q", test.info, err, test.says)
		case errors.Is(err, reason.ClusterNode) != (test.says == "cluster"):
			t.Errorf("%+v: got %v, want reason.ClusterNode for a node of a cluster alone", test.info, err)
		}
	}
}

// contact is one connection of a node, and its wanted result.
type contact struct {
	node int
	run  string
	twin int  // the node that has the server already, -1 for none
	bad  bool // after that the whole list grants nothing
}

func TestIdentities(t *testing.T) {
	const none = -1
	for name, steps := range map[string][]contact{
		"three servers":                     {{0, "x", none, false}, {1, "y", none, false}, {2, "z", none, false}},
		"the same again":                    {{0, "x", none, false}, {0, "x", none, false}, {1, "y", none, false}, {0, "x", none, false}},
		"unknown servers do not count":      {{0, "", none, false}, {1, "", none, false}, {2, "x", none, false}, {0, "", none, false}},
		"twins at first":                    {{0, "x", none, false}, {1, "x", 0, true}, {2, "z", none, true}, {1, "x", 0, true}},
		"in any order":                      {{2, "x", none, false}, {0, "x", 2, true}, {1, "y", none, true}},
		"three of a kind":                   {{1, "x", none, false}, {0, "x", 1, true}, {2, "x", 1, true}, {0, "y", none, true}, {2, "z", none, false}},
		"the second goes elsewhere":         {{0, "x", none, false}, {1, "x", 0, true}, {1, "y", none, false}, {0, "x", none, false}},
		"the first goes elsewhere":          {{0, "x", none, false}, {1, "x", 0, true}, {0, "z", none, true}, {1, "x", none, false}},
		"a node moves to a new server":      {{0, "x", none, false}, {1, "y", none, false}, {0, "z", none, false}, {2, "x", none, false}},
		"twins later":                       {{0, "x", none, false}, {1, "y", none, false}, {0, "y", 1, false}, {0, "y", 1, false}, {0, "x", none, false}},
		"two nodes change places":           {{0, "x", none, false}, {1, "y", none, false}, {0, "y", 1, false}, {1, "x", none, false}, {0, "y", none, false}},
		"restart":                           {{0, "x", none, false}, {1, "y", none, false}, {0, "x2", none, false}, {1, "x", none, false}},
		"refused, the server is free":       {{0, "x", none, false}, {1, "y", none, false}, {1, "x", 0, false}, {2, "y", none, false}},
		"twins, and one becomes unknown":    {{0, "x", none, false}, {1, "x", 0, true}, {1, "", none, false}},
		"a node moves to an unknown server": {{0, "x", none, false}, {1, "y", none, false}, {0, "", none, false}, {1, "x", none, false}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newIdentities([]string{"a:1", "b:2", "c:3"})
			for i, s := range steps {
				err := r.enroll(s.node, s.run)
				switch {
				case s.twin == none && err != nil:
					t.Fatalf("step %d: got %v, want no error", i+1, err)
				case s.twin != none && (!errors.Is(err, reason.SameServer) || !strings.Contains(err.Error(), r.addrs[s.twin])):
					t.Fatalf("step %d: got %v, want reason.SameServer that names %s", i+1, err, r.addrs[s.twin])
				}
				bad := r.misconfigured()
				if (bad != nil) != s.bad || bad != nil && !errors.Is(bad, reason.SameServer) {
					t.Fatalf("step %d: got %v for the list, want an error: %v", i+1, bad, s.bad)
				}
				if s.twin != none && s.bad && !(strings.Contains(bad.Error(), "b:2") || strings.Contains(bad.Error(), "a:1")) {
					t.Errorf("step %d: got %v, want the masters named", i+1, bad)
				}
			}
		})
	}
}

func TestReadDisk(t *testing.T) {
	for _, test := range []struct {
		reply any
		want  Disk
		known bool
	}{
		{[]any{"appendfsync", "always", "no-appendfsync-on-rewrite", "no"}, Disk{Fsync: "always", OnRewrite: "no"}, true},
		{[]any{"no-appendfsync-on-rewrite", "yes", "appendfsync", "everysec", "other", "x"}, Disk{Fsync: "everysec", OnRewrite: "yes"}, true},
		{[]any{"appendfsync", "always"}, Disk{Fsync: "always"}, false},
		{[]any{"appendfsync", int64(1), "no-appendfsync-on-rewrite"}, Disk{}, false},
		{[]any{}, Disk{}, false},
		{"OK", Disk{}, false},
		{resp.Error("NOPERM no"), Disk{}, false},
	} {
		got := readDisk(test.reply)
		if known := got.Err == nil; known != test.known || got.Fsync != test.want.Fsync || got.OnRewrite != test.want.OnRewrite {
			t.Errorf("%v: got %+v, want %+v, known %v", test.reply, got, test.want, test.known)
		}
	}
}

// A server that refuses to say who it is for good has an unknown identity. An error that may pass ends the
// connection: with an unknown identity a restart with old data would not be noticed.
func TestReadInfo(t *testing.T) {
	told := []any{"run_id:1", "maxmemory:0", "aof_enabled:0", "role:master", "cluster_enabled:0"}
	for _, test := range []struct {
		section      int
		says         string
		refused, bad bool
	}{
		{0, "NOPERM User u has no permissions to run the 'info' command", true, false},
		{0, "ERR unknown command 'INFO'", true, false},
		{3, "ERR unsupported section", false, false},
		{0, "upstream failure", false, true},
		{0, "ERR Connection timed out", false, true},
		{3, "ERR max daily request limit exceeded", false, true},
		{4, "LOADING Redis is loading the dataset in memory", false, true},
		{0, "ERR Broken pipe", false, true},
	} {
		replies := slices.Clone(told)
		replies[test.section] = resp.Error(test.says)
		_, refused, err := readInfo(replies)
		if (refused != nil) != test.refused || (err != nil) != test.bad {
			t.Errorf("%q to section %s: got %v, %v; want refused: %v, an error of the connection: %v", test.says, sections[test.section], refused, err, test.refused, test.bad)
		}
	}
}

// A first replica, and the end of what was kept for replicas, change the replication id of the same master. A promotion
// makes it another one.
func TestIdentityOfAMasterWithReplicas(t *testing.T) {
	of := func(replid, second string) string {
		return ParseInfo("run_id:0123456789abcdef01\r\nmaster_replid:" + replid + "\r\nsecond_repl_offset:" + second + "\r\n").Identity()
	}
	alone, attached, promoted, later := of("a", "-1"), of("b", "-1"), of("c", "17"), of("d", "-1")
	for _, test := range []struct {
		known, present string
		same           bool
	}{
		{alone, attached, true}, {attached, promoted, false}, {promoted, promoted, true}, {promoted, later, true}, {promoted, of("e", "18"), false},
	} {
		if got := isSame(test.known, test.present); got != test.same {
			t.Errorf("known as %s, now %s: got that it is the same master: %v, want %v", test.known, test.present, got, test.same)
		}
	}
}
