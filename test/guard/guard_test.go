package guard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

// Real masters lose keys in every possible way, while a client holds a lease by them.

const (
	marker = "redlock:~guard"

	guardTTL = 1200 * time.Millisecond
	// guardSpan is how long a master that lost data has no vote.
	//
	// Source: ALGORITHM section 1, "Quarantine".
	guardSpan = guardTTL + guardTTL/50 + 100*time.Millisecond

	// ages is a largest TTL whose quarantine outlasts every test.
	ages = time.Hour
)

// shortly returns the options of clients that wait until a quarantine is over.
func shortly(more ...redlock.Option) []redlock.Option {
	return append([]redlock.Option{redlock.WithTTL(guardTTL), redlock.WithMaxTTL(guardTTL), redlock.WithMasterTimeout(guardTTL / 4),
		redlock.WithLogger(nil)}, more...)
}

// forAges returns the options of clients that only Bootstrap can help.
func forAges(more ...redlock.Option) []redlock.Option {
	return append([]redlock.Option{redlock.WithMaxTTL(ages), redlock.WithMasterTimeout(time.Second), redlock.WithLogger(nil)}, more...)
}

// dataDir returns the folder in which a master keeps its data.
func dataDir(t testing.TB, node *redis.Client) string {
	t.Helper()
	dir, err := node.ConfigGet(t.Context(), "dir").Result()
	locktest.Must(t, err)
	return dir["dir"]
}

// saved returns a master's present data as a file that it can load.
func saved(t testing.TB, node *redis.Client) []byte {
	t.Helper()
	locktest.Must(t, node.Save(t.Context()).Err())
	rdb, err := os.ReadFile(filepath.Join(dataDir(t, node), "dump.rdb"))
	locktest.Must(t, err)
	return rdb
}

func load(t testing.TB, dir string, rdb []byte) {
	t.Helper()
	locktest.Must(t, os.WriteFile(filepath.Join(dir, "dump.rdb"), rdb, 0o600))
}

// born returns since when each master has not lost data; "" = it has no marker.
func born(c *locktest.Cluster) (all []string) {
	for _, n := range c.Nodes {
		all = append(all, n.HGet(context.Background(), marker, "born").Val())
	}
	return all
}

// quarantines returns how long each master has no vote, as one client sees it.
func quarantines(t testing.TB, l *redlock.Locker) (all []time.Duration) {
	t.Helper()
	r, err := admin.Check(t.Context(), l)
	for _, n := range r.Masters {
		if n.Err != nil {
			t.Fatalf("check: %v", err)
		}
		all = append(all, n.Quarantine)
	}
	return all
}

// wantRefusal checks that err is the error of a lock that only has to wait for masters.
func wantRefusal(t testing.TB, err error) *redlock.QuorumError {
	t.Helper()
	locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum, redlock.ErrQuarantine)
	if errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("got %v, want no ErrTaken: the resource is free", err)
	}
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		t.Fatalf("got %v, want a QuorumError", err)
	}
	return q
}

// loss is a way in which a master forgets a key.
type loss struct {
	name    string
	n       int      // masters; 0 = 3
	args    []string // for the masters
	marked  bool     // the marker is still there, or there again, when the key is gone
	proxied bool     // clients reach the lossy master through a proxy
	all     bool     // every master loses the key

	// prepare is called before the lock. strike makes the master at c.addrs[hit] forget the lock, and
	// returns when the master answers again.
	prepare func(t testing.TB, c *locktest.Cluster, p *masters.Proxy) (strike func())
}

const hit = 0 // the master that forgets

func restarts(t testing.TB, c *locktest.Cluster, _ *masters.Proxy) func() {
	return func() { c.Restart(t, hit) }
}

func command(args ...any) func(testing.TB, *locktest.Cluster, *masters.Proxy) func() {
	return func(t testing.TB, c *locktest.Cluster, _ *masters.Proxy) func() {
		return func() { locktest.Must(t, c.Nodes[hit].Do(t.Context(), args...).Err()) }
	}
}

// aofs returns the append-only file of a server: in a folder, or before Redis 7.0 a file.
func aofs(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "appendonly*"))
	locktest.Must(t, err)
	if len(paths) == 0 {
		t.Fatal("there is no append-only file")
	}
	return paths
}

func copyAOF(t testing.TB, to, from string) {
	t.Helper()
	for _, path := range aofs(t, from) {
		copied := filepath.Join(to, filepath.Base(path))
		info, err := os.Stat(path)
		locktest.Must(t, err)
		if info.IsDir() {
			locktest.Must(t, os.CopyFS(copied, os.DirFS(path)))
			continue
		}
		text, err := os.ReadFile(path)
		locktest.Must(t, err)
		locktest.Must(t, os.WriteFile(copied, text, 0o600))
	}
}

func removeAOF(t testing.TB, dir string) {
	t.Helper()
	for _, path := range aofs(t, dir) {
		locktest.Must(t, os.RemoveAll(path))
	}
}

// Source: ALGORITHM section 8, the table.
var losses = []loss{
	{name: "empty restart", prepare: restarts},
	{name: "empty restart of one in five", n: 5, prepare: restarts},
	{name: "restart with an older RDB", marked: true, prepare: func(t testing.TB, c *locktest.Cluster, p *masters.Proxy) func() {
		saved(t, c.Nodes[hit])
		return restarts(t, c, p)
	}},
	{name: "AOF without its tail", marked: true, args: locktest.OnDisk, prepare: func(t testing.TB, c *locktest.Cluster, _ *masters.Proxy) func() {
		dir, old := dataDir(t, c.Nodes[hit]), t.TempDir()
		copyAOF(t, old, dir)
		return func() {
			locktest.Must(t, c.Procs[hit].Kill())
			removeAOF(t, dir)
			copyAOF(t, dir, old)
			c.Restart(t, hit)
		}
	}},
	{name: "FLUSHALL", prepare: command("flushall")},
	{name: "FLUSHDB", prepare: command("flushdb")},
	{name: "SWAPDB", prepare: command("swapdb", 0, 1)},
	{name: "another server, empty", proxied: true, prepare: func(t testing.TB, _ *locktest.Cluster, p *masters.Proxy) func() {
		other := redistest.Masters(t, 1)[0]
		return func() { locktest.Must(t, p.Retarget(other.Addr())) }
	}},
	{name: "another server, with a copy", marked: true, proxied: true, prepare: func(t testing.TB, c *locktest.Cluster, p *masters.Proxy) func() {
		other := redistest.Masters(t, 1)[0]
		load(t, dataDir(t, redistest.Client(t, other.Addr())), saved(t, c.Nodes[hit]))
		locktest.Must(t, other.Restart())
		return func() { locktest.Must(t, p.Retarget(other.Addr())) }
	}},
	{name: "replica of a copy for a moment", marked: true, prepare: func(t testing.TB, c *locktest.Cluster, _ *masters.Proxy) func() {
		// Its run id stays the same, and it gets its own marker back.
		other := redistest.Masters(t, 1, "--repl-diskless-sync-delay", "0")[0]
		load(t, dataDir(t, redistest.Client(t, other.Addr())), saved(t, c.Nodes[hit]))
		locktest.Must(t, other.Restart())
		host, port, _ := strings.Cut(other.Addr(), ":")
		return func() {
			command("replicaof", host, port)(t, c, nil)()
			redistest.Eventually(t, 10*time.Second, func() bool {
				return strings.Contains(c.Nodes[hit].Info(t.Context(), "replication").Val(), "master_link_status:up")
			}, "the replica has all data")
			command("replicaof", "no", "one")(t, c, nil)()
		}
	}},
	{name: "data of another master", marked: true, prepare: func(t testing.TB, c *locktest.Cluster, p *masters.Proxy) func() {
		donor := locktest.StartFor(t, guardTTL, 1) // it has its vote
		load(t, dataDir(t, c.Nodes[hit]), saved(t, donor.Nodes[0]))
		return restarts(t, c, p)
	}},
	{name: "marker deleted with the key", prepare: command("del", "redlock:r", marker)},
	{name: "all restart empty", all: true, prepare: func(t testing.TB, c *locktest.Cluster, _ *masters.Proxy) func() {
		return func() {
			for i := range c.Procs {
				c.Restart(t, i)
			}
		}
	}},
}

// outcome says what happened to a resource after its holder's key was lost.
type outcome struct {
	two    bool          // another client got it while the holder had it
	tries  int           // attempts that were refused while the holder had it
	after  time.Duration // from the loss until another client got it
	fences [2]int64      // of the holder, and of the next holder
}

// play lets a bare majority grant a lease, makes a master of that majority forget it, and lets two rivals try to get
// it: one was there all the time, the other starts after the loss. Meanwhile the holder cannot reach the masters
// beyond the majority, which have their votes: a second holder lacks only the vote of the master that forgot.
func (l loss) play(t testing.TB, opts ...redlock.Option) (o outcome) {
	n := cmp.Or(l.n, 3)
	c := locktest.StartFor(t, guardTTL, n, l.args...)
	proxies := redistest.Proxied(t, c.Procs)
	if l.proxied {
		c.Addrs[hit] = proxies[hit].Addr()
	}
	missing := proxies[n/2+1:]
	holder, early := locktest.Open(t, append(c.Addrs[:n/2+1:n/2+1], redistest.Addrs(missing)...), opts...), locktest.Open(t, c.Addrs, opts...)
	for _, x := range []*redlock.Locker{holder, early} {
		redistest.Eventually(t, 10*time.Second, func() bool { _, err := admin.Check(t.Context(), x); return err == nil }, "all masters vote")
	}
	strike := l.prepare(t, c, proxies[hit])
	for _, p := range missing {
		locktest.Must(t, p.Set(masters.LoseRequests)) // this keeps the port, unlike Refuse
	}
	le := locktest.Lock(t, holder, "r", redlock.WithoutRenewal())
	if held := c.Count("redlock:r"); held != n/2+1 && le.Validity() > 0 {
		t.Fatalf("got the key on %d nodes, want a bare majority", held)
	}
	seen := redistest.Client(t, c.Addrs[hit])

	lost := time.Now()
	strike()
	key, mark := seen.Exists(t.Context(), "redlock:r").Val(), seen.Exists(t.Context(), marker).Val()
	if key != 0 || (mark == 1) != l.marked {
		t.Fatalf("got lock key %d, marker %d, want no key and marker %v", key, mark, l.marked)
	}
	for _, p := range missing {
		locktest.Must(t, p.Set(masters.Pass))
	}

	rivals := []*redlock.Locker{locktest.Open(t, c.Addrs, opts...), early}
	for i := 0; time.Since(lost) < 20*time.Second; i++ {
		next, err := rivals[i%2].TryLock(t.Context(), "r")
		valid := le.Validity() > 0
		switch {
		case err == nil:
			o.two, o.after, o.fences = valid, time.Since(lost), [2]int64{le.Fence(), next.Fence()}
			locktest.Must(t, next.Unlock(t.Context()))
			return o
		case valid:
			o.tries++
		}
		time.Sleep(10 * time.Millisecond) // pause between attempts, to leave the masters some time
	}
	t.Fatal("not within 20s: the resource is granted again")
	return o
}

// A master that forgot its holder grants the resource to no client.
//
// Source: ALGORITHM section 8.
func TestGuardOneHolder(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, l := range losses {
		t.Run(l.name, func(t *redistest.T) {
			t.Parallel()
			for o := (outcome{}); o.tries < 2 && !t.Failed(); { // a busy machine can be too slow for a TTL
				o = l.play(t, shortly()...)
				switch {
				case o.two:
					redistest.Broken(t, fmt.Sprintf("the resource has two holders %v after the loss", o.after))
				case l.all && o.after < guardSpan-5*time.Millisecond:
					redistest.Broken(t, fmt.Sprintf("granted %v after the loss, want nothing before %v", o.after, guardSpan))
				case o.fences[1] <= o.fences[0]:
					redistest.Broken(t, fmt.Sprintf("fence %d after %d", o.fences[1], o.fences[0]))
				}
			}
		})
	}
}

// Control: without the guard the same makes two holders.
//
// Source: ALGORITHM section 13, "Negative controls".
func TestGuardOffTwoHolders(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, l := range losses {
		t.Run(l.name, func(t *redistest.T) {
			t.Parallel()
			for end := time.Now().Add(time.Minute); !l.play(t, shortly(redlock.WithoutRestartGuard())...).two; { // a busy machine can be too slow for a TTL
				if time.Now().After(end) {
					t.Fatal("got one holder at a time, want a second holder, as the guard is off")
				}
			}
		})
	}
}

// A key that was deleted by hand is noticed at the next renewal. Then its master has no vote, for any client.
//
// Source: ALGORITHM section 6, "Counted"; section 8, last row of the table.
func TestGuardForgottenKey(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, all := range []bool{true, false} {
		c := locktest.StartFor(t, ages, 3)
		forgot := make(chan redlock.Event, 8)
		l := locktest.Open(t, c.Addrs, forAges(locktest.On(func(e redlock.Event) { forgot <- e }, redlock.EventKeyLost))...)
		other := locktest.Open(t, c.Addrs, forAges()...)
		if !all {
			locktest.Must(t, c.Procs[2].Kill())
		}
		le := locktest.Lock(t, l, "r", redlock.WithoutRenewal())
		if all {
			c.Fill(t, le)
		}
		locktest.Must(t, c.Nodes[hit].Del(t.Context(), "redlock:r").Err())
		err := le.Extend(t.Context())
		if all {
			locktest.Must(t, err)
		} else {
			locktest.WantErr(t, err, redlock.ErrNotHeld, redlock.ErrLost, reason.QuorumLost)
		}
		if e := locktest.Receive(t, forgot, "MasterForgot"); e.Master != c.Addrs[hit] || e.Resource != "r" || e.Fence != le.Fence() {
			t.Errorf("got event %+v, want node %s, resource r and fence %d", e, c.Addrs[hit], le.Fence())
		}
		redistest.Eventually(t, 5*time.Second, func() bool { return born(c)[hit] != "0" }, "the node is marked")
		for _, x := range []*redlock.Locker{l, other, locktest.Open(t, c.Addrs, forAges()...)} {
			r, _ := admin.Check(t.Context(), x)
			if r.Masters[hit].Quarantine <= ages-time.Minute {
				t.Errorf("got quarantine %v, want about an hour", r.Masters[hit].Quarantine)
			}
		}
		if all {
			locktest.Must(t, le.Extend(t.Context()))
			locktest.Must(t, c.Procs[2].Kill())
		}
		_, err = other.TryLock(t.Context(), "another")
		locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
		select {
		case e := <-forgot:
			t.Errorf("got %+v, want the event once", e)
		default:
		}
	}
}

func TestBootstrapRefused(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.StartNew(t, 1)
	var none context.Context
	l := locktest.Open(t, c.Addrs)
	locktest.WantErr(t, admin.Bootstrap(none, l), redlock.ErrConfig)
	locktest.WantErr(t, admin.Bootstrap(t.Context(), locktest.Open(t, c.Addrs, redlock.WithoutRestartGuard())), redlock.ErrConfig)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	locktest.Must(t, l.Close())
	locktest.WantErr(t, admin.Bootstrap(t.Context(), l), redlock.ErrClosed)
	locktest.Must(t, c.Procs[0].Pause())
	locktest.WantErr(t, admin.Bootstrap(ended, locktest.Open(t, c.Addrs, forAges()...)), redlock.ErrNoQuorum, context.Canceled)
	locktest.Must(t, c.Procs[0].Resume())
	if b := born(c)[0]; b == "0" {
		t.Errorf("got a master born at %s, want none of the calls to have vouched for it", b)
	}
}

// What another program has put into a field of the marker is no reason to refuse each lease.
func TestGuardWithAnUnreadableField(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	for _, field := range []string{"used", "recent", "since", "lists"} {
		locktest.Unlock(t, locktest.Lock(t, l, "k")) // maxttl is that of the lease
		for _, n := range c.Nodes {
			locktest.Must(t, n.HSet(t.Context(), "redlock:~guard", field, "x").Err())
		}
		le, err := l.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		locktest.Unlock(t, le)
	}
}

// Source: ALGORITHM section 8, "TrustDisk".
func TestTrustedDisk(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	for _, tt := range []struct {
		name    string
		args    []string
		trusted bool
		empty   bool
		votes   bool
	}{
		{"AOF", locktest.OnDisk, true, false, true},
		{"AOF that was removed", locktest.OnDisk, true, true, false},
		{"AOF that is written to disk each second", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, true, false, false},
		{"AOF that is not written to disk while it is rewritten", append(slices.Clone(locktest.OnDisk), "--no-appendfsync-on-rewrite", "yes"), true, false, false},
		{"AOF that is not trusted", locktest.OnDisk, false, false, false},
		{"RDB", nil, true, false, false},
	} {
		t.Run(tt.name, func(t *redistest.T) {
			c := locktest.StartFor(t, ages, 3, tt.args...)
			opts := forAges()
			if tt.trusted {
				opts = append(opts, redlock.WithTrustedDisk())
			}
			holder, rival := locktest.Open(t, c.Addrs, opts...), locktest.Open(t, c.Addrs, opts...)
			le := locktest.Lock(t, holder, "r", redlock.WithTTL(time.Minute))
			c.Fill(t, le)
			for i, p := range c.Procs {
				dir := dataDir(t, c.Nodes[i])
				if tt.args == nil {
					saved(t, c.Nodes[i])
				}
				locktest.Must(t, p.Kill())
				if tt.empty {
					removeAOF(t, dir)
				}
				c.Restart(t, i)
			}
			for _, x := range []*redlock.Locker{rival, locktest.Open(t, c.Addrs, opts...)} {
				redistest.Eventually(t, 10*time.Second, func() bool {
					r, _ := admin.Check(t.Context(), x)
					return !slices.ContainsFunc(r.Masters, func(n admin.Master) bool { return n.Err != nil })
				}, "all nodes answer")
				for i, q := range quarantines(t, x) {
					if (q == 0) != tt.votes {
						t.Errorf("node %d: got quarantine %v, want a vote: %v", i, q, tt.votes)
					}
				}
			}
			if tt.votes {
				locktest.Must(t, locktest.Lock(t, rival, "free").Unlock(t.Context()))
				_, err := rival.TryLock(t.Context(), "r")
				locktest.WantErr(t, err, redlock.ErrTaken)
				redistest.Eventually(t, 10*time.Second, func() bool { return le.Extend(t.Context()) == nil }, "the lease goes on")
				locktest.Must(t, le.Unlock(t.Context()))
				return
			}
			_, err := rival.TryLock(t.Context(), "free")
			wantRefusal(t, err)
		})
	}
}

// Of two clients, one of which trusts the disks, the first to ask a master after its restart decides for both.
// The other one logs that.
//
// Source: ALGORITHM section 8, "TrustDisk".
func TestTrustedDiskByOneClient(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	for _, trustedFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("the client that trusts is first: ", trustedFirst), func(t *redistest.T) {
			c := locktest.StartFor(t, ages, 3, locktest.OnDisk...)
			proxies := redistest.Proxied(t, c.Procs)
			var logs [2]locktest.Records
			var clients [2]*redlock.Locker
			for i, addrs := range [][]string{c.Addrs, redistest.Addrs(proxies)} { // the second client comes later
				opts := forAges(redlock.WithLogger(slog.New(&logs[i])))
				if trustedFirst == (i == 0) {
					opts = append(opts, redlock.WithTrustedDisk())
				}
				clients[i] = locktest.Open(t, addrs, opts...)
				le := locktest.Lock(t, clients[i], "r")
				c.Fill(t, le) // all masters are known
				locktest.Unlock(t, le)
			}
			for _, p := range proxies {
				locktest.Must(t, p.Set(masters.Refuse))
			}
			for i, p := range c.Procs {
				locktest.Must(t, p.Kill())
				c.Restart(t, i)
			}
			told := []string{"although this client trusts its disk", "votes at once"}
			if trustedFirst {
				slices.Reverse(told)
			}
			for i, l := range clients {
				if i == 1 {
					for _, p := range proxies {
						locktest.Must(t, p.Set(masters.Pass))
					}
				}
				redistest.Eventually(t, 30*time.Second, func() bool {
					r, _ := admin.Check(t.Context(), l)
					return !slices.ContainsFunc(r.Masters, func(n admin.Master) bool { return n.Err != nil })
				}, "all masters answer")
				for n, q := range quarantines(t, l) {
					if (q == 0) != trustedFirst {
						t.Errorf("client %d, master %d: got quarantine %v, want a vote: %v", i, n, q, trustedFirst)
					}
				}
			}
			redistest.Eventually(t, 10*time.Second, func() bool { return len(logs[1].With(told[0])) > 0 }, "the second client tells: "+told[0])
			if got := len(logs[0].With(told[0])) + len(logs[0].With(told[1])) + len(logs[1].With(told[1])); got != 0 {
				t.Errorf("got %d lines in the log that are wrong, want none", got)
			}
		})
	}
}
