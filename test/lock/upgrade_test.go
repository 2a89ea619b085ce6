package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// A service with 10,000 leases lives through a rolling upgrade of its masters, each of which comes back empty. No lease
// ends, and the log has one line for each fact.
func TestRollingUpgradeWith10000Leases(t *testing.T) {
	redistest.OnlyLong(t)
	c := locktest.Start(t, 3)
	option, log := logged()
	l := locktest.Open(t, c.Addrs, option)
	leases := make([]*redlock.Lease, 10_000)
	var locking sync.WaitGroup
	for first := range 100 {
		locking.Go(func() {
			for i := first; i < len(leases); i += 100 {
				leases[i] = locktest.Lock(t, l, fmt.Sprint("r", i))
			}
		})
	}
	locking.Wait()
	of := func(message, addr string) (n int) {
		for _, line := range log(message) {
			if slices.Contains(strings.Fields(line), "master="+addr) {
				n++
			}
		}
		return n
	}
	for i, addr := range c.Addrs {
		master := redistest.Client(t, addr)
		ready := func() bool {
			_, err := admin.Check(t.Context(), l)
			return err == nil && master.DBSize(t.Context()).Val() >= int64(len(leases))
		}
		redistest.Eventually(t, time.Minute, ready, "the master votes and has all keys")
		locktest.Must(t, c.Procs[i].Kill())
		redistest.Eventually(t, time.Minute, func() bool { return of("master is down", addr) > 0 }, "the log says that the master is down")
		locktest.Must(t, c.Procs[i].Restart())
		redistest.Eventually(t, time.Minute, ready, "the new master votes and has all keys")
	}
	for _, lease := range leases {
		if err := context.Cause(lease.Context()); err != nil {
			t.Fatalf("%s: %v", lease.Resource(), err)
		}
	}
	for _, addr := range c.Addrs {
		// A busy machine may have a new master miss its timeout once.
		down, up, quarantined := of("master is down", addr), of("master is up again", addr), of("master has no vote for a time", addr)
		if down < 1 || down > 2 || up != down || quarantined != 1 {
			t.Errorf("the log has lines of %s: %d down, %d up again, %d no vote; want 1 each", addr, down, up, quarantined)
		}
	}
	if lines := log("level="); len(lines) > 15 || t.Failed() { // a lost key may be logged before the quarantine
		t.Errorf("the log has %d lines:\n%s", len(lines), strings.Join(lines, ""))
	}
}
