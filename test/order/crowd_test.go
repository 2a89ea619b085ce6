package order_test

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// Any number of callers of one Locker needs no more connections than one, and few messages, on real masters.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".
func TestCrowdOfOneLocker(t *testing.T) {
	const callers = 5000
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	c.Warm(t, l)
	calls := func() (n int) {
		for _, n0 := range c.Nodes {
			for line := range strings.Lines(n0.Info(t.Context(), "commandstats").Val()) {
				if stat, found := strings.CutPrefix(line, "cmdstat_eval"); found {
					_, stat, _ = strings.Cut(stat, "calls=")
					stat, _, _ = strings.Cut(stat, ",")
					more, err := strconv.Atoi(stat)
					locktest.Must(t, err)
					n += more
				}
			}
		}
		return n
	}
	before := calls()
	held := locktest.Lock(t, l, "r")
	var inside, overlaps atomic.Int64
	var ended sync.WaitGroup
	for range callers {
		ended.Go(func() {
			lease, err := l.Lock(t.Context(), "r")
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			inside.Add(-1)
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return l.Stats().Waiting == callers }, "all are in line")
	for i, n := range c.Nodes {
		if got := len(strings.Split(strings.TrimSpace(n.ClientList(t.Context()).Val()), "\n")); got > 4 {
			t.Errorf("connections to node %d: got %d, want at most 4, with that of this test", i, got)
		}
	}
	locktest.Must(t, held.Unlock(t.Context()))
	ended.Wait()
	if got := overlaps.Load(); got != 0 {
		t.Errorf("got %d times two holders, want none", got)
	}
	// 5001 leases are 79 grants, each of an acquire and a release on each node.
	if got := calls() - before; got > 2*3*callers/10 {
		t.Errorf("calls of the script for %d leases: got %d, want at most %d", callers, got, 2*3*callers/10)
	}
	locktest.Must(t, l.Close())
	c.Empty(t, "redlock:r")
}
