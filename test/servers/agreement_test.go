package servers_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// What only real servers show of the servers behind the names of masters. The scenarios of test/guard have the rest.

// Replicas come and go, and no master loses its vote. A master that was promoted does.
//
// Source: ALGORITHM section 8, "run".
func TestReplicasCostNoVote(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	args := []string{"--repl-backlog-ttl", "1", "--repl-diskless-sync-delay", "0"}
	c, spare := locktest.NewCluster(t, redistest.Masters(t, 3, args...)), locktest.StartNew(t, 2, args...)
	l := locktest.Open(t, c.Addrs)
	field := func(i int, name string) string {
		_, rest, _ := strings.Cut(c.Nodes[i].Info(t.Context(), "replication").Val(), "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		return value
	}
	locktest.Unlock(t, locktest.Lock(t, l, "r"))
	was := field(0, "master_replid")
	for i := range 2 { // a replica for each of two masters
		host, port, _ := net.SplitHostPort(c.Addrs[i])
		locktest.Must(t, spare.Nodes[i].Do(t.Context(), "replicaof", host, port).Err())
	}
	redistest.Eventually(t, 30*time.Second, func() bool { return field(0, "connected_slaves") == "1" && field(1, "connected_slaves") == "1" }, "the replicas are there")
	attached := field(0, "master_replid")
	if attached == was {
		t.Fatal("the replication id is as before: this test shows nothing")
	}
	fresh := locktest.Open(t, c.Addrs)
	for _, l := range []*redlock.Locker{l, fresh} {
		lease, err := l.TryLock(t.Context(), "r")
		locktest.Must(t, err)
		locktest.Must(t, lease.Unlock(t.Context()))
	}
	for i := range 2 {
		locktest.Must(t, spare.Nodes[i].Do(t.Context(), "replicaof", "no", "one").Err())
	}
	redistest.Eventually(t, 30*time.Second, func() bool { return field(0, "master_replid") != attached }, "nothing is left of the replicas")
	later := locktest.Open(t, c.Addrs)
	for _, l := range []*redlock.Locker{l, fresh, later} {
		report, err := admin.Check(t.Context(), l)
		locktest.Must(t, err)
		if votes := report.Voting; votes != 3 {
			t.Errorf("got %d votes, want 3", votes)
		}
	}

	// A promotion in between, of the same server.
	host, port, _ := net.SplitHostPort(spare.Addrs[0])
	locktest.Must(t, c.Nodes[0].Do(t.Context(), "replicaof", host, port).Err())
	redistest.Eventually(t, 30*time.Second, func() bool { return field(0, "master_link_status") == "up" }, "the master is a replica")
	locktest.Must(t, c.Nodes[0].Do(t.Context(), "replicaof", "no", "one").Err())
	promoted := locktest.Open(t, c.Addrs)
	_, err := admin.Check(t.Context(), promoted)
	locktest.WantErr(t, err, redlock.ErrQuarantine)
}

// Two masters that lose nothing restart twice, and no client joins in between. They have their votes at once.
//
// Source: ALGORITHM section 8, "Servers".
func TestTrustedMastersRestartTwice(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.NewCluster(t, redistest.Masters(t, 3, locktest.OnDisk...))
	x := locktest.Open(t, c.Addrs, redlock.WithTrustedDisk())
	locktest.Unlock(t, locktest.Lock(t, x, "r"))
	for range 2 {
		for i := range 2 {
			c.Restart(t, i)
		}
		other := locktest.Open(t, c.Addrs, redlock.WithTrustedDisk())
		_, _ = admin.Check(t.Context(), other) // the masters note who they are
		locktest.Must(t, other.Close())
	}
	locktest.Unlock(t, locktest.Lock(t, x, "r"))
}
