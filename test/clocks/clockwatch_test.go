package clocks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// The clock watch on real masters whose wall clocks are moved. testdata has what is promised in virtual time, and the tests of
// internal/clockwatch have its arithmetic.
//
// Source: ALGORITHM section 9.

// clockLog records what a Locker reports about clocks.
type clockLog struct {
	mu             sync.Mutex
	stepped, still []redlock.Event
}

func (c *clockLog) observer() redlock.Option {
	return redlock.WithObserver(func(e redlock.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch e.Kind {
		case redlock.EventMasterClockStepped:
			c.stepped = append(c.stepped, e)
		case redlock.EventLocalClockStopped:
			c.still = append(c.still, e)
		}
	})
}

func (c *clockLog) get() (stepped, still []redlock.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stepped), slices.Clone(c.still)
}

// skewedCluster starts N masters whose wall clocks can be moved.
func skewedCluster(t testing.TB, n int) *locktest.Cluster {
	t.Helper()
	return locktest.NewCluster(t, redistest.Skewed(t, n))
}

// steppedBy waits for the event that a master's clock stepped, and checks by how much.
func (c *clockLog) steppedBy(t testing.TB, node string, least, most time.Duration) {
	t.Helper()
	var found redlock.Event
	redistest.Eventually(t, 10*time.Second, func() bool {
		stepped, _ := c.get()
		i := slices.IndexFunc(stepped, func(e redlock.Event) bool { return e.Master == node })
		if i >= 0 {
			found = stepped[i]
		}
		return i >= 0
	}, "the clock of "+node+" is seen to have been stepped")
	if found.Elapsed < least || found.Elapsed > most {
		t.Errorf("step: got %v, want from %v to %v", found.Elapsed, least, most)
	}
}

// The clock of one master of five is moved while a lease is held: the master has no vote for any
// client, and the lease goes on.
func TestClockOfAMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	const ttl = 2 * time.Second
	for _, test := range []struct {
		name        string
		move        func(p *masters.Process) error
		least, most time.Duration
	}{
		{"a TTL forward", func(p *masters.Process) error { return p.StepClock(ttl) }, ttl - time.Second, ttl + time.Second},
		{"30 s back", func(p *masters.Process) error { return p.StepClock(-30 * time.Second) }, -31 * time.Second, -29 * time.Second},
		{"an hour forward", func(p *masters.Process) error { return p.StepClock(time.Hour) }, time.Hour - time.Second, time.Hour + time.Second},
		{"at chrony's fastest rate", func(p *masters.Process) error { return p.DriftClock(80_000) }, time.Millisecond, 2 * time.Second},
	} {
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			c := skewedCluster(t, 5)
			opts := []redlock.Option{redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl / 4), redlock.WithLogger(nil)}
			var seen clockLog
			l := locktest.Open(t, c.Addrs, append(opts, seen.observer())...)
			le := locktest.Lock(t, l, "r")
			ctx, fence := le.Context(), le.Fence()
			redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:r") == 5 }, "all hold the key")
			locktest.Must(t, test.move(c.Procs[2]))
			seen.steppedBy(t, c.Addrs[2], test.least, test.most)

			// No other client can get the lock, nor the vote of that master.
			rival := locktest.Open(t, c.Addrs, opts...)
			redistest.Eventually(t, 5*time.Second, func() bool {
				report, _ := admin.Check(t.Context(), rival)
				return report.Masters[2].Quarantine > 0
			}, "the master is in quarantine for all clients")
			for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if other, err := rival.TryLock(t.Context(), "r"); err == nil && ctx.Err() == nil {
					t.Fatalf("a rival has a lease with fence %d while that with %d is valid for %v", other.Fence(), fence, le.Validity())
				}
			}
			locktest.Must(t, ctx.Err())
			if _, still := seen.get(); len(still) > 0 {
				t.Errorf("got %d StoodStill, want none", len(still))
			}
			locktest.Must(t, le.Unlock(t.Context()))
			c.Empty(t, "redlock:r")
		})
	}
}

// With a master down and the clocks of the other two apart, the error says what is wrong with the clocks, and not that
// too few of them are known.
func TestClocksThatDisagreeAreNamed(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := skewedCluster(t, 3)
	locktest.Must(t, c.Procs[0].StepClock(time.Hour))
	locktest.Must(t, c.Procs[2].Kill())
	for range 5 {
		l := locktest.Open(t, c.Addrs)
		_, err := l.TryLock(t.Context(), "r")
		text := fmt.Sprint(err)
		named := strings.Contains(text, "from the median") && !strings.Contains(text, "too few masters are known")
		if !errors.Is(err, redlock.ErrNoQuorum) || !named {
			t.Errorf("got %v, want the clocks", err)
		}
		locktest.Must(t, l.Close())
	}
}
