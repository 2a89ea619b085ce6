package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

// Tests with masters that are not as they should be: the same server twice, a replica, a server
// that evicts keys. Source: ALGORITHM section 8, "Start-up audit".

// ear records what a Locker reports about its nodes.
type ear struct {
	log  locktest.Buffer
	mu   sync.Mutex
	told []redlock.Event // guarded by mu; warnings
}

func (e *ear) options() []redlock.Option {
	return []redlock.Option{
		redlock.WithLogger(slog.New(slog.NewTextHandler(&e.log, nil))),
		locktest.On(func(w redlock.Event) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.told = append(e.told, w)
		}, redlock.EventWarning),
	}
}

// warnings returns how often a node was warned about for that reason, by event and in the log.
// The Locker must be closed: then all events have been delivered.
func (e *ear) warnings(node, check string) (events, lines int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.told {
		if w.Master == node && strings.HasPrefix(w.Err.Error(), check+": ") {
			events++
		}
	}
	for line := range strings.Lines(e.log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "redlock: "+check+": ") && strings.Contains(line, "master="+node) {
			lines++
		}
	}
	return events, lines
}

func (e *ear) wantWarnings(t testing.TB, node, check string, n int) {
	t.Helper()
	if events, lines := e.warnings(node, check); events != n || lines != n {
		t.Errorf("%s: got %d warnings about %s and %d lines in the log, want %d of each", node, events, check, lines, n)
	}
}

// finding returns the finding with that name, or the zero Finding.
func finding(r admin.Master, check string) admin.Finding {
	for _, f := range r.Findings {
		if f.Check == check {
			return f
		}
	}
	return admin.Finding{}
}

func wantFinding(t testing.TB, r admin.Master, check string, l admin.Level, says string) {
	t.Helper()
	f := finding(r, check)
	if f.Check == "" || f.Level != l || !strings.Contains(f.Text, says) {
		t.Errorf("%s: got %+v for %s, want %v that says %q", r.Master, f, check, l, says)
	}
}

// checked calls Check until all nodes have a vote: on a busy machine a node may be too late.
func checked(t testing.TB, l *redlock.Locker) (r admin.Report) {
	t.Helper()
	var err error
	redistest.Eventually(t, 20*time.Second, func() bool { r, err = admin.Check(t.Context(), l); return err == nil }, "all nodes have a vote")
	return r
}

// eventually waits until Check reports the wanted result.
func eventually(t testing.TB, l *redlock.Locker, what string, is func(admin.Report, error) bool) (r admin.Report, err error) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, func() bool { r, err = admin.Check(t.Context(), l); return is(r, err) }, what)
	return r, err
}

// reconnect cuts the connections of all clients of a master, and makes l connect again.
func reconnect(t testing.TB, l *redlock.Locker, c *locktest.Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		locktest.Must(t, n.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
	}
	checked(t, l)
}

// within bounds a call that must not wait for ever.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func answers(r admin.Master) bool { return r.Err == nil }

func byName(addr string) string { return strings.Replace(addr, "127.0.0.1", "localhost", 1) }

// One server has two names, and a third master is dead: no call gets a lease, neither the first nor
// a later one, and none waits.
func TestSameServer(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.StartProxied(t, 2)
	locktest.Must(t, c.Procs[1].Kill())
	for _, list := range [][]string{
		{c.Via[0], c.Addrs[0]},
		{c.Addrs[0], byName(c.Addrs[0])},
		{"redis://" + c.Addrs[0] + "/0", "redis://" + byName(c.Addrs[0]) + "/1"},
		{c.Addrs[0], c.Via[0], byName(c.Addrs[0])},
	} {
		var names []string
		for _, a := range list {
			names = append(names, strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(a, "redis://"), "/0"), "/1"))
		}
		t.Run(strings.Join(list, " "), func(t *redistest.T) {
			all := append(slices.Clone(list), c.Addrs[1])
			for name, call := range map[string]func(*redlock.Locker) error{
				"Lock":    func(l *redlock.Locker) error { _, err := l.Lock(within(t), "r"); return err },
				"TryLock": func(l *redlock.Locker) error { _, err := l.TryLock(t.Context(), "r"); return err },
			} {
				l := locktest.Open(t, all)
				var err error
				redistest.Eventually(t, 20*time.Second, func() bool { // a node may be too late, or its name not resolved yet
					err = call(l)
					locktest.WantMatch(t, name, err, []error{redlock.ErrNotAcquired}, context.DeadlineExceeded)
					return errors.Is(err, reason.SameServer)
				}, "reason.SameServer")
				err = call(l)
				locktest.WantMatch(t, name+" again", err, []error{redlock.ErrNotAcquired, reason.SameServer})
				twins := 0
				for _, n := range names {
					if strings.Contains(err.Error(), n) {
						twins++
					}
				}
				if twins < 2 {
					t.Errorf("%s: got %v, want both names of the server", name, err)
				}
				locktest.Must(t, l.Close())
			}
			l := locktest.Open(t, all)
			r, err := eventually(t, l, "one name is the server's", func(r admin.Report, err error) bool {
				return errors.Is(err, reason.SameServer) && slices.ContainsFunc(r.Masters, answers)
			})
			locktest.WantErr(t, err, redlock.ErrNoQuorum)
			own := slices.IndexFunc(r.Masters, answers)
			for i, n := range r.Masters[:len(list)] {
				if i == own {
					continue
				}
				locktest.WantErr(t, n.Err, reason.SameServer)
				wantFinding(t, n, "reach", admin.LevelFailure, names[own])
				if n.Master != names[i] || finding(n, "reach").Hint == "" || !strings.Contains(err.Error(), names[i]) || !strings.Contains(err.Error(), names[own]) {
					t.Errorf("got %v for node %+v, want both names, and a hint", err, n)
				}
			}
			locktest.WantErr(t, admin.Bootstrap(t.Context(), l), reason.SameServer)
		})
	}
	c.Nodes = c.Nodes[:1]
	c.Empty(t, "redlock:r")
}

// A replica has no vote. As a master it has its vote again when the guard permits it.
func TestReplica(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 3)
	var quarantined atomic.Int64
	ttl := []redlock.Option{redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(250 * time.Millisecond)}
	l := locktest.Open(t, c.Addrs, append(ttl, locktest.On(func(e redlock.Event) {
		if e.Master == c.Addrs[0] {
			quarantined.Add(1)
		}
	}, redlock.EventQuarantined))...)
	c.Warm(t, l)
	locktest.Must(t, c.Nodes[1].ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err())
	host, port, _ := strings.Cut(c.Addrs[1], ":")
	locktest.Must(t, c.Nodes[0].Do(t.Context(), "replicaof", host, port).Err())
	redistest.Eventually(t, 20*time.Second, func() bool {
		return strings.Contains(c.Nodes[0].Info(t.Context(), "replication").Val(), "master_link_status:up")
	}, "the replica has the other's data")
	for name, l := range map[string]*redlock.Locker{"connected": l, "new": locktest.Open(t, c.Addrs, ttl...)} {
		r, err := eventually(t, l, "the role is known", func(r admin.Report, err error) bool {
			if r.Voting == 3 || err == nil {
				t.Errorf("%s: got %+v, %v, want no vote of the replica", name, r, err)
			}
			return errors.Is(err, reason.NotMaster) && r.Voting == 2
		})
		var q *redlock.QuorumError
		if !errors.As(err, &q) || q.Granted != 2 || len(q.Masters) != 1 || q.Masters[0].Master != c.Addrs[0] || errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("%s: got %v, want the replica alone", name, err)
		}
		locktest.WantErr(t, r.Masters[0].Err, reason.NotMaster)
		wantFinding(t, r.Masters[0], "reach", admin.LevelFailure, "slave")
		for range 5 {
			locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context()))
		}
		locktest.Must(t, c.Procs[2].Pause())
		redistest.Eventually(t, 20*time.Second, func() bool { // two nodes without any answer would not give that error
			_, err := l.TryLock(t.Context(), "r")
			locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
			return errors.Is(err, reason.NotMaster)
		}, "a node error that says it")
		locktest.Must(t, c.Procs[2].Resume())
	}
	before := quarantined.Load()
	locktest.Must(t, c.Nodes[0].Do(t.Context(), "replicaof", "no", "one").Err())
	checked(t, l)
	c.Warm(t, l)
	if quarantined.Load() == before {
		t.Error("the node got its vote back without a quarantine, with the data of another")
	}
}

// Nodes of a cluster become no independent masters: a Lock that needs them does not wait. That is so too
// where they hide that they are, and refuse the keys. A Lock that needs a replica waits, see TestReplica.
func TestLockOnAClusterEnds(outer *testing.T) {
	t := redistest.Timed(outer)
	procs := redistest.Masters(t, 3, "--cluster-enabled", "yes")
	addrs := redistest.Addrs(procs)
	fails := func(l *redlock.Locker) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "r")
		locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum, reason.NotMaster, reason.ClusterNode)
		var q *redlock.QuorumError
		if errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &q) || !q.Permanent() {
			t.Errorf("got %v, want an error for good", err)
		}
	}
	l := locktest.Open(t, addrs)
	fails(l)
	r, _ := admin.Check(t.Context(), l)
	wantFinding(t, r.Masters[0], "reach", admin.LevelFailure, "cluster")
	for i := range addrs {
		locktest.Must(t, redistest.Client(t, addrs[i]).Do(t.Context(), "acl", "setuser", "default", "-info").Err())
	}
	fails(locktest.Open(t, addrs))
}

// A server's settings for memory and disk: the finding, and whether it is reported, once.
func TestServerSettings(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, test := range []struct {
		name   string
		args   []string
		opts   []redlock.Option
		check  string
		level  admin.Level
		warned int
	}{
		{"defaults", nil, nil, "eviction", admin.LevelOK, 0},
		{"lru", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, nil, "eviction", admin.LevelWarning, 1},
		{"volatile", []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, nil, "eviction", admin.LevelWarning, 1},
		{"lru without a limit", []string{"--maxmemory-policy", "allkeys-lru"}, nil, "eviction", admin.LevelOK, 0},
		{"limit", []string{"--maxmemory", "100mb"}, nil, "eviction", admin.LevelOK, 0},
		{"no file", nil, nil, "persistence", admin.LevelOK, 0},
		{"file", []string{"--appendonly", "yes"}, nil, "persistence", admin.LevelOK, 0},
		{"trusted", locktest.OnDisk, []redlock.Option{redlock.WithTrustedDisk()}, "persistence", admin.LevelOK, 0},
		{"trusted, synced each second", []string{"--appendonly", "yes"}, []redlock.Option{redlock.WithTrustedDisk()}, "persistence", admin.LevelWarning, 1},
		{"trusted, CONFIG is refused", append(slices.Clone(locktest.OnDisk), "--rename-command", "CONFIG", ""), []redlock.Option{redlock.WithTrustedDisk()}, "persistence", admin.LevelUnknown, 1},
		{"trusted without a file", nil, []redlock.Option{redlock.WithTrustedDisk()}, "persistence", admin.LevelWarning, 1},
	} {
		t.Run(test.name, func(t *redistest.T) {
			c := &locktest.Cluster{Procs: redistest.Masters(t, 1, test.args...)}
			c.Addrs = redistest.Addrs(c.Procs)
			c.Nodes = append(c.Nodes, redistest.Client(t, c.Addrs[0]))
			locktest.Bootstrap(t, c.Addrs)
			locktest.Vouch(t, c.Nodes...)
			var e ear
			l := locktest.Open(t, c.Addrs, append(e.options(), test.opts...)...)
			locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context()))
			for range 3 {
				reconnect(t, l, c)
			}
			wantFinding(t, checked(t, l).Masters[0], test.check, test.level, "")
			locktest.Must(t, l.Close())
			e.wantWarnings(t, c.Addrs[0], test.check, test.warned)
			if all := len(e.told); all != test.warned {
				t.Errorf("got %d warnings in all, want %d: %v", all, test.warned, e.told)
			}
		})
	}
}

// A setting that is changed while a Locker is connected is reported at the next look, and again when
// it is changed back and forth.
func TestSettingThatChanges(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 1)
	var e ear
	l := locktest.Open(t, c.Addrs, e.options()...)
	set := func(policy string, l *redlock.Locker, want admin.Level) {
		t.Helper()
		locktest.Must(t, c.Nodes[0].ConfigSet(t.Context(), "maxmemory", "100mb").Err())
		locktest.Must(t, c.Nodes[0].ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		wantFinding(t, checked(t, l).Masters[0], "eviction", want, "")
	}
	checked(t, l)
	set("allkeys-lru", l, admin.LevelWarning)
	set("allkeys-lru", l, admin.LevelWarning)
	set("noeviction", l, admin.LevelOK)
	set("allkeys-lru", l, admin.LevelWarning)
	locktest.Must(t, l.Close())
	e.wantWarnings(t, c.Addrs[0], "eviction", 2)
}

// If INFO is forbidden, locks work, and unknown facts are reported as unknown.
func TestInfoForbidden(outer *testing.T) {
	t := redistest.Timed(outer)
	for name, args := range map[string][]string{"by a rule": nil, "by its name": {"--rename-command", "INFO", ""}} {
		t.Run(name, func(t *redistest.T) {
			c := &locktest.Cluster{Procs: redistest.Masters(t, 3, args...)}
			c.Addrs = redistest.Addrs(c.Procs)
			for _, a := range c.Addrs {
				n := redistest.Client(t, a)
				c.Nodes = append(c.Nodes, n)
				if args == nil {
					locktest.Must(t, n.Do(t.Context(), "acl", "setuser", "default", "-info").Err())
				}
				if n.Info(t.Context()).Err() == nil {
					t.Fatal("INFO is not forbidden")
				}
			}
			locktest.Bootstrap(t, c.Addrs)
			locktest.Vouch(t, c.Nodes...)
			var e ear
			l := locktest.Open(t, c.Addrs, e.options()...)
			c.Warm(t, l)
			for range 2 {
				reconnect(t, l, c)
			}
			r := checked(t, l)
			if r.Voting != 3 {
				t.Errorf("got %d nodes with a vote, want 3", r.Voting)
			}
			for _, n := range r.Masters {
				wantFinding(t, n, "info", admin.LevelUnknown, "INFO is refused")
				wantFinding(t, n, "guard", admin.LevelOK, "")
				for _, f := range n.Findings {
					if slices.Contains([]string{"identity", "eviction", "persistence"}, f.Check) {
						t.Errorf("%s: got %+v, though nothing is known of it", n.Master, f)
					}
				}
				if n.RunID != "" || n.Version != "" || n.RoundTrip <= 0 {
					t.Errorf("got %+v, want a round trip, and nothing of INFO", n)
				}
			}
			locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context()))
			locktest.Must(t, l.Close())
			for _, a := range c.Addrs {
				e.wantWarnings(t, a, "info", 1)
			}
		})
	}
}

// A server hides fields: each of them is unknown, independently of the others.
func TestInfoWithHiddenFields(outer *testing.T) {
	t := redistest.Timed(outer)
	addrs := redistest.Addrs(redistest.Minis(t, 1))
	locktest.Bootstrap(t, addrs)
	locktest.Vouch(t, redistest.Client(t, addrs[0]))
	var e ear
	l := locktest.Open(t, addrs, e.options()...)
	r := checked(t, l)
	for _, check := range []string{"identity", "eviction", "persistence"} {
		wantFinding(t, r.Masters[0], check, admin.LevelUnknown, "told")
	}
	if finding(r.Masters[0], "info").Check != "" {
		t.Errorf("got %+v, want no finding about INFO: it was answered", r.Masters[0])
	}
	locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context()))
	locktest.Must(t, l.Close())
	for _, check := range []string{"identity", "eviction", "persistence"} {
		e.wantWarnings(t, addrs[0], check, 1)
	}
}

func TestCheckAllWell(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	r := checked(t, l)
	if r.Quorum != 2 || r.Voting != 3 || len(r.Masters) != 3 {
		t.Fatalf("got %+v, want 3 nodes with a vote, of which 2 decide", r)
	}
	r, _ = eventually(t, l, "clocks are compared", func(r admin.Report, err error) bool {
		return err == nil && finding(r.Masters[0], "clock").Level == admin.LevelOK
	})
	for i, n := range r.Masters {
		info := c.Nodes[i].Info(t.Context(), "server").Val()
		said, version := "redis_version:", n.Version
		if strings.Contains(info, "valkey_version:") { // redis_version is the Redis version with which it is compatible
			said, version = "valkey_version:", strings.TrimPrefix(n.Version, "valkey ")
		}
		if n.Master != c.Addrs[i] || n.Err != nil || n.RoundTrip <= 0 || n.Quarantine != 0 || n.MaxTTL != 0 {
			t.Errorf("got %+v for node %s", n, c.Addrs[i])
		}
		if len(n.RunID) != 40 || !strings.Contains(info, "run_id:"+n.RunID) || !strings.Contains(info, said+version+"\r\n") || (said == "valkey_version:") != (version != n.Version) {
			t.Errorf("got run id %q and version %q, want those of INFO", n.RunID, n.Version)
		}
		for check, want := range map[string]admin.Level{
			"reach": admin.LevelOK, "identity": admin.LevelOK, "eviction": admin.LevelOK, "persistence": admin.LevelOK,
			"guard": admin.LevelOK, "masters": admin.LevelOK, "clock": admin.LevelOK, "write": admin.LevelOK,
		} {
			wantFinding(t, n, check, want, "")
		}
		if len(n.Findings) != 8 {
			t.Errorf("got %+v, want 8 findings", n.Findings)
		}
	}
	for i, n := range checked(t, locktest.Open(t, c.Addrs, redlock.WithoutRestartGuard())).Masters {
		wantFinding(t, n, "guard", admin.LevelNotice, "off")
		if n.RoundTrip <= 0 || n.RunID != r.Masters[i].RunID || n.MaxTTL != 0 {
			t.Errorf("without the guard: got %+v, want a round trip and the run id", n)
		}
	}
}

// Five nodes: a healthy one, a dead one, a hung one, a node with another password, and a new one.
func TestCheckAllKinds(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 4)
	fresh := redistest.Masters(t, 1)[0]
	locktest.Must(t, c.Procs[1].Kill())
	locktest.Must(t, c.Procs[2].Pause())
	locktest.Must(t, c.Nodes[3].Do(t.Context(), "acl", "setuser", "app", "on", ">right", "~*", "+@all").Err())
	l := locktest.Open(t, []string{c.Addrs[0], c.Addrs[1], c.Addrs[2], "redis://app:wrong@" + c.Addrs[3], fresh.Addr()})
	r, err := eventually(t, l, "two nodes answer", func(r admin.Report, _ error) bool {
		return r.Masters[0].Err == nil && r.Masters[4].Err == nil && errors.Is(r.Masters[3].Err, reason.Permission)
	})
	locktest.WantErr(t, err, redlock.ErrNoQuorum, redlock.ErrQuarantine, reason.Permission)
	for _, not := range []error{redlock.ErrNotAcquired, redlock.ErrTaken, reason.SameServer, reason.NotMaster, redlock.ErrClosed, context.Canceled} {
		if errors.Is(err, not) {
			t.Errorf("got %v, which matches %v", err, not)
		}
	}
	var q *redlock.QuorumError
	if !errors.As(err, &q) || q.Op != "check" || q.Resource != "" || q.Granted != 1 || q.Need != 3 || len(q.Masters) != 4 {
		t.Fatalf("got %+v, want one node of three needed, and four errors", q)
	}
	if r.Quorum != 3 || r.Voting != 1 || len(r.Masters) != 5 {
		t.Fatalf("got %+v, want 1 vote of 3 needed, and 5 nodes", r)
	}
	for i, e := range q.Masters {
		n, addr := r.Masters[i+1], append(slices.Clone(c.Addrs), fresh.Addr())[i+1]
		if n.Master != addr || e.Master != addr || !strings.Contains(err.Error(), addr) {
			t.Errorf("got %+v and %+v, want the address %s", n, e, addr)
		}
		if e.Op != "check" || e.Err == nil || e.Quarantine != n.Quarantine {
			t.Errorf("got %+v, want the quarantine %v", e, n.Quarantine)
		}
		if i < 3 { // a node without an answer has no findings
			wantFinding(t, n, "reach", admin.LevelFailure, "")
			if n.Err == nil || len(n.Findings) != 1 || n.RunID != "" || n.RoundTrip != 0 || n.Quarantine != 0 || n.MaxTTL != 0 {
				t.Errorf("node %d: got %+v, want an error and nothing else", i, n)
			}
		}
	}
	if f := finding(r.Masters[3], "reach"); !strings.Contains(f.Hint, "ACL") {
		t.Errorf("wrong password: got %+v, want a hint", f)
	}
	n := r.Masters[4]
	if n.Quarantine <= 0 || n.Quarantine > 10300*time.Millisecond || n.MaxTTL != 0 || n.RunID == "" {
		t.Errorf("new node: got %+v, want its quarantine", n)
	}
	wantFinding(t, n, "guard", admin.LevelFailure, "no vote for")
	// All are healthy again except the node with the password and the node that starts empty.
	locktest.Must(t, c.Procs[1].Restart())
	locktest.Must(t, c.Procs[2].Resume())
	_, err = eventually(t, l, "nodes come back", func(r admin.Report, _ error) bool {
		return r.Voting == 2 && r.Masters[1].Quarantine > 0
	})
	locktest.WantErr(t, err, redlock.ErrNoQuorum, redlock.ErrQuarantine)
}

func TestCheckWhoseContextEnds(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs, redlock.WithMasterTimeout(2*time.Second))
	ended, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	cut := 0
	for range 20 {
		r, err := admin.Check(ended, l)
		if err == nil {
			continue // all nodes had answered
		}
		cut++
		locktest.WantErr(t, err, context.Canceled, why)
		if len(r.Masters) != 3 {
			t.Errorf("got %+v, want all nodes in it", r)
		}
	}
	if cut == 0 {
		t.Error("got 20 reports without an error from a context that had ended")
	}
	checked(t, l)
	locktest.Must(t, c.Procs[2].Pause())
	var r admin.Report
	var err error
	redistest.Eventually(t, 20*time.Second, func() bool { // until the node is down, which Check then knows at once
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		r, err = admin.Check(ctx, l)
		return r.Voting == 2 && errors.Is(err, context.DeadlineExceeded)
	}, "the others answer before the context ends")
	if errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("got %v, want no ErrNoQuorum", err)
	}
	locktest.WantErr(t, r.Masters[2].Err, context.DeadlineExceeded)
	if want := "redlock: check: " + context.DeadlineExceeded.Error() + ": answered by 2 of 3 masters (2 needed)"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want it to begin with %q", err, want)
	}
	locktest.Must(t, c.Procs[2].Resume())
}
