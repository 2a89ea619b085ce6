package servers_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
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

// network is real masters, and which of them a client reaches behind the names a, b and c.
type network struct {
	t     testing.TB
	nodes []*masters.Process

	mu  sync.Mutex
	cut map[string]bool // client and name

	delay map[string]time.Duration // of what a client is answered under a name
	db    map[string]int           // that a client uses under a name
}

// newNetwork starts masters that have their votes.
func newNetwork(t testing.TB, n int, args ...string) *network {
	w := &network{t: t, nodes: redistest.Masters(t, n, args...), cut: make(map[string]bool)}
	for _, m := range w.nodes {
		c := redistest.Client(t, m.Addr())
		_, run, _ := strings.Cut(c.Info(t.Context(), "server").Val(), "run_id:")
		locktest.Must(t, c.HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "run", run[:16]+":", "born", 0).Err())
	}
	return w
}

// locker returns the Locker of a client that reaches the masters with these numbers behind the names a, b and c.
func (w *network) locker(client string, behind [3]int, opts ...redlock.Option) *redlock.Locker {
	w.t.Helper()
	var list []*redis.Options
	for i, name := range []string{"a", "b", "c"} {
		list = append(list, &redis.Options{Addr: name + ":6379", DB: w.db[client+name], Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if w.isCut(client + name) {
				return nil, errors.New("no route to host")
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.nodes[behind[i]].Addr())
			return &cuttable{conn, w, client + name}, err
		}})
	}
	l, err := redlock.NewFromOptions(list, append([]redlock.Option{redlock.WithMasterTimeout(500 * time.Millisecond)}, opts...)...)
	locktest.Must(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	return l
}

// lose has a client lose a master.
func (w *network) lose(client, name string) { w.reach(client, name, false) }

func (w *network) reach(client, name string, reached bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[client+name] = !reached
}

func (w *network) isCut(way string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut[way]
}

// cuttable is a connection that breaks when its client has lost the master.
type cuttable struct {
	net.Conn
	w   *network
	way string
}

func (c *cuttable) Write(b []byte) (int, error) {
	if c.w.isCut(c.way) {
		return 0, errors.New("connection reset by peer")
	}
	return c.Conn.Write(b)
}

func (c *cuttable) Read(b []byte) (int, error) {
	k, err := c.Conn.Read(b)
	time.Sleep(c.w.delay[c.way])
	return k, err
}

// used has a Locker take and give back a lock, so that the masters know the client.
func used(t testing.TB, l *redlock.Locker, resource string) {
	t.Helper()
	lease, err := l.Lock(t.Context(), resource)
	locktest.Must(t, err)
	locktest.Must(t, lease.Unlock(t.Context()))
}

// neverBeside has a Locker try to take "r" as long as the lease of another one is valid.
func neverBeside(ctx context.Context, t testing.TB, held *redlock.Lease, l *redlock.Locker) {
	t.Helper()
	for ; held.Validity() > 0 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		lease, err := l.TryLock(ctx, "r")
		if left := held.Validity(); err == nil && left > 0 {
			redistest.Broken(t, fmt.Sprintf("two holders: %v of the first one's validity was left", left))
			return
		}
		if err == nil {
			_ = lease.Unlock(t.Context())
		}
	}
}

// Two clients see two servers behind one name. The second client is told so, and goes without that server: the two never
// hold a resource together, whichever masters they lose after that.
//
// Source: ALGORITHM section 8, "Servers".
func TestTwoServersBehindAName(outer *testing.T) {
	t := redistest.Timed(outer)
	w := newNetwork(t, 4)
	logger, said := locktest.LogText()
	x := w.locker("x", [3]int{0, 1, 2}, redlock.WithOwner("client-x"))
	used(t, x, "of x")
	y := w.locker("y", [3]int{0, 3, 2}, redlock.WithLogger(logger))
	used(t, y, "of y")
	redistest.Eventually(t, 30*time.Second, func() bool { return strings.Contains(said(), "b:6379 leads this client to the server") }, "a warning")
	if !strings.Contains(said(), "client-x") {
		t.Errorf("got the log %s, want the label of the other client", said())
	}
	report, err := admin.Check(t.Context(), y)
	if err == nil || !errors.Is(err, reason.OtherServer) {
		t.Errorf("Check: got %v, want reason.OtherServer", err)
	}
	if text := fmt.Sprint(report); !strings.Contains(text, "b:6379 leads this client") {
		t.Errorf("Check: got %s, want the finding", text)
	}
	if _, err := admin.Check(t.Context(), x); err != nil {
		t.Errorf("Check of the first client: got %v, want no error", err)
	}

	w.lose("x", "c")
	w.lose("y", "a")
	lease, err := x.Lock(t.Context(), "r")
	locktest.Must(t, err)
	for range 10 {
		_, err := y.TryLock(t.Context(), "r")
		locktest.WantErr(t, err, redlock.ErrNoQuorum, reason.OtherServer)
	}
	locktest.Must(t, lease.Err())
	locktest.Must(t, lease.Unlock(t.Context()))
}

// Two of three names lead a client to new servers, while another client still uses the former ones.
//
// Source: ALGORITHM section 8, "Servers".
func TestNewServersBehindNames(outer *testing.T) {
	t := redistest.Timed(outer)
	w := newNetwork(t, 5)
	x := w.locker("x", [3]int{0, 1, 2})
	used(t, x, "r")
	y := w.locker("y", [3]int{0, 3, 4})
	if _, err := y.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrMasterSetup) || redlock.Reason(err) != "other_server" {
		t.Errorf("TryLock: got %v, want ErrMasterSetup and the reason other_server", err)
	}
	used(t, x, "r")
}

// A server whose name leads to its successor has its vote after a quarantine, and not later.
//
// Source: ALGORITHM section 8, "Servers".
func TestRestartCostsAQuarantine(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	const ttl = time.Second
	w := newNetwork(t, 3)
	opts := []redlock.Option{redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl / 4)}
	x, y := w.locker("x", [3]int{0, 1, 2}, opts...), w.locker("y", [3]int{0, 1, 2}, opts...)
	used(t, x, "r")
	used(t, y, "r")
	locktest.Must(t, errors.Join(w.nodes[0].Kill(), w.nodes[1].Kill(), w.nodes[0].Restart(), w.nodes[1].Restart()))
	for {
		lease, err := x.TryLock(t.Context(), "r")
		if err == nil {
			locktest.Must(t, lease.Unlock(t.Context()))
			break
		}
		if errors.Is(err, reason.OtherServer) {
			t.Fatalf("got %v: other servers are in use after the quarantine", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The largest TTL of any client counts for a master that was emptied, also where only a client with a smaller one
// reaches it.
//
// Source: ALGORITHM section 8, "MaxTTL".
func TestLargerTTLSurvivesAnEmptiedMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w := newNetwork(t, 3)
	w.lose("l", "c")
	w.lose("s", "a")
	logger, said := locktest.LogText()
	large := w.locker("l", [3]int{0, 1, 2}, redlock.WithMaxTTL(6*time.Second), redlock.WithTTL(6*time.Second), redlock.WithoutRenewal())
	small := w.locker("s", [3]int{0, 1, 2}, redlock.WithMaxTTL(2*time.Second), redlock.WithTTL(time.Second), redlock.WithMasterTimeout(250*time.Millisecond), redlock.WithLogger(logger))
	used(t, small, "warm")
	held, err := large.Lock(t.Context(), "r")
	locktest.Must(t, err)
	_, err = small.TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrTaken)
	redistest.Eventually(t, 30*time.Second, func() bool { return strings.Contains(said(), "another client has a TTL of 6s") }, "a warning")
	locktest.Must(t, errors.Join(w.nodes[1].Kill(), w.nodes[1].Restart()))
	neverBeside(t.Context(), t, held, small)
	used(t, small, "r")
}

// A client asks for its largest TTL once more, long after the masters have forgotten that it did so before.
//
// Source: ALGORITHM section 8, "MaxTTL".
func TestLargerTTLOnceMore(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w := newNetwork(t, 3)
	w.lose("l", "c")
	w.lose("s", "a")
	large := w.locker("l", [3]int{0, 1, 2}, redlock.WithMaxTTL(3*time.Second), redlock.WithTTL(3*time.Second), redlock.WithoutRenewal(), redlock.WithMasterTimeout(250*time.Millisecond))
	small := w.locker("s", [3]int{0, 1, 2}, redlock.WithMaxTTL(time.Second), redlock.WithTTL(time.Second), redlock.WithMasterTimeout(250*time.Millisecond))
	used(t, large, "r")
	for end := time.Now().Add(7500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		lease, err := large.TryLock(t.Context(), "other", redlock.WithTTL(time.Second))
		locktest.Must(t, err)
		locktest.Must(t, lease.Unlock(t.Context()))
		used(t, small, "of small")
	}
	held, err := large.Lock(t.Context(), "r")
	locktest.Must(t, err)
	_, err = small.TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrTaken)
	locktest.Must(t, errors.Join(w.nodes[1].Kill(), w.nodes[1].Restart()))
	neverBeside(t.Context(), t, held, small)
}

// Replicas come and go, and no master loses its vote. A master that was promoted does.
//
// Source: ALGORITHM section 8, "run".
func TestReplicasCostNoVote(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w := newNetwork(t, 5, "--repl-backlog-ttl", "1", "--repl-diskless-sync-delay", "0")
	l := w.locker("l", [3]int{0, 1, 2})
	c := func(i int) *redis.Client { return redistest.Client(t, w.nodes[i].Addr()) }
	field := func(i int, name string) string {
		_, rest, _ := strings.Cut(c(i).Info(t.Context(), "replication").Val(), "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		return value
	}
	used(t, l, "r")
	was := field(0, "master_replid")
	for i := range 2 { // a replica for each of two masters
		host, port, _ := net.SplitHostPort(w.nodes[i].Addr())
		locktest.Must(t, c(3+i).Do(t.Context(), "replicaof", host, port).Err())
	}
	redistest.Eventually(t, 30*time.Second, func() bool { return field(0, "connected_slaves") == "1" && field(1, "connected_slaves") == "1" }, "the replicas are there")
	attached := field(0, "master_replid")
	if attached == was {
		t.Fatal("the replication id is as before: this test shows nothing")
	}
	fresh := w.locker("fresh", [3]int{0, 1, 2})
	for _, l := range []*redlock.Locker{l, fresh} {
		lease, err := l.TryLock(t.Context(), "r")
		locktest.Must(t, err)
		locktest.Must(t, lease.Unlock(t.Context()))
	}
	for i := range 2 {
		locktest.Must(t, c(3+i).Do(t.Context(), "replicaof", "no", "one").Err())
	}
	redistest.Eventually(t, 30*time.Second, func() bool { return field(0, "master_replid") != attached }, "nothing is left of the replicas")
	later := w.locker("later", [3]int{0, 1, 2})
	for _, l := range []*redlock.Locker{l, fresh, later} {
		report, err := admin.Check(t.Context(), l)
		locktest.Must(t, err)
		if votes := report.Voting; votes != 3 {
			t.Errorf("got %d votes, want 3", votes)
		}
	}

	// A promotion in between, of the same server.
	host, port, _ := net.SplitHostPort(w.nodes[3].Addr())
	locktest.Must(t, c(0).Do(t.Context(), "replicaof", host, port).Err())
	redistest.Eventually(t, 30*time.Second, func() bool { return field(0, "master_link_status") == "up" }, "the master is a replica")
	locktest.Must(t, c(0).Do(t.Context(), "replicaof", "no", "one").Err())
	promoted := w.locker("promoted", [3]int{0, 1, 2})
	_, err := admin.Check(t.Context(), promoted)
	locktest.WantErr(t, err, redlock.ErrQuarantine)
}

// Clients with another version of the protocol are in use. This client takes no lease, leaves what they have written as
// it is, and says which side to upgrade.
//
// Source: ALGORITHM section 8, "Version".
func TestAnotherVersionOfTheProtocol(outer *testing.T) {
	t := redistest.Timed(outer)
	w := newNetwork(t, 3)
	c := redistest.Client(t, w.nodes[0].Addr())
	marker := redlock.DefaultKeyPrefix + "~guard"
	for version, advice := range map[string]string{"2": "upgrade this client", "0": "upgrade those clients"} {
		until := time.Now().Add(time.Hour).UnixMilli()
		locktest.Must(t, c.HSet(t.Context(), marker, "protocol", fmt.Sprint(version, " ", until), "lists", "in a later form", "proof", "theirs").Err())
		before := c.HGetAll(t.Context(), marker).Val()
		l := w.locker("l"+version, [3]int{0, 1, 2})
		for name, call := range map[string]func() error{
			"TryLock": func() error { _, err := l.TryLock(t.Context(), "r"); return err },
			"Lock":    func() error { _, err := l.Lock(t.Context(), "r"); return err },
			"Check":   func() error { _, err := admin.Check(t.Context(), l); return err },
		} {
			if err := call(); !errors.Is(err, redlock.ErrMasterSetup) || redlock.Reason(err) != "version" || !strings.Contains(err.Error(), advice) {
				t.Errorf("%s beside version %s: got %v, want ErrMasterSetup, the reason version, and %q", name, version, err, advice)
			}
		}
		if after := c.HGetAll(t.Context(), marker).Val(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("got the marker %v, want it as it was: %v", after, before)
		}
	}
	locktest.Must(t, c.HSet(t.Context(), marker, "protocol", "2 1").Err()) // none of them is left
	used(t, w.locker("later", [3]int{0, 1, 2}), "r")
}

// What another program has written into the markers ends no vote for ever.
func TestMarkerOfAnotherProgram(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w := newNetwork(t, 3)
	for _, m := range w.nodes {
		locktest.Must(t, redistest.Client(t, m.Addr()).HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard",
			"born", "nan", "maxttl", "9007199254740993", "ttls", "x\n1 2 3\nnan 9e99 9e99", "lists", "\n\t\n", "servers", "1 a", "proof", "x").Err())
	}
	l := w.locker("l", [3]int{0, 1, 2}, redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(250*time.Millisecond))
	used(t, l, "r") // after a quarantine
}

// MaxTTL is raised as docs/operations.md, "Changes", says: first the value everywhere, then the TTLs. It is lowered in the
// other order. At each stage a holder loses a master of its quorum, which comes back empty, to a client that starts then: a
// master that both have reached tells the client nothing.
//
// Source: ALGORITHM section 8, "Not caught", (c).
func TestMaxTTLChanges(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	type deployed struct{ maxTTL, ttl time.Duration }
	before := deployed{500 * time.Millisecond, 500 * time.Millisecond}
	between := deployed{2 * time.Second, 500 * time.Millisecond}
	after := deployed{2 * time.Second, 2 * time.Second}
	w := newNetwork(t, 3)
	w.lose("holder", "c")
	w.lose("other", "a")
	client := func(name string, d deployed) *redlock.Locker {
		return w.locker(name, [3]int{0, 1, 2}, redlock.WithTTL(d.ttl), redlock.WithMaxTTL(d.maxTTL), redlock.WithMasterTimeout(d.ttl/4), redlock.WithoutRenewal(), redlock.WithLogger(nil))
	}
	for i, stage := range [][2]deployed{
		{before, between}, {between, before}, {between, after}, {after, between},
		{after, between}, {between, after}, {between, before}, {before, between},
	} {
		holder := client("holder", stage[0])
		held, err := holder.Lock(t.Context(), "r")
		locktest.Must(t, err)
		locktest.Must(t, errors.Join(w.nodes[1].Kill(), w.nodes[1].Restart()))
		other := client("other", stage[1])
		lease, err := other.Lock(t.Context(), "r")
		if left := held.Validity(); left > 0 {
			t.Errorf("stage %d: two holders: %v of the first one's validity was left", i, left)
		}
		locktest.Must(t, err)
		locktest.Must(t, errors.Join(lease.Unlock(t.Context()), other.Close(), holder.Close()))
	}
}
