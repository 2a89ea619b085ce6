package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/jobs"
)

// Masters that restarted empty, one after the other, are all in quarantine at the first question, however
// long ago that was: the quarantine counts from there. A job that is due then runs on one of the machines.
func TestQuarantineCountsFromTheFirstQuestion(t *testing.T) {
	t.Parallel()
	c := locktest.StartFor(t, guardTTL, 3)
	for i := range c.Procs {
		c.Restart(t, i)
		time.Sleep(guardSpan) // no client asks meanwhile
	}
	_, err := locktest.Open(t, c.Addrs, shortly()...).TryLock(t.Context(), "r")
	wantRefusal(t, err)
	machines, due := 3, time.Now()
	var ran atomic.Int32
	done := make(chan error, machines)
	for range machines {
		locks, err := jobs.New(locktest.Open(t, c.Addrs, shortly()...))
		locktest.Must(t, err)
		go func() {
			done <- locks.RunAt(t.Context(), "nightly", due, func(context.Context, *redlock.Lease) error { ran.Add(1); return nil })
		}()
	}
	for range machines {
		locktest.Must(t, <-done)
	}
	if ran.Load() != 1 {
		t.Errorf("got %d runs, want 1", ran.Load())
	}
	l := locktest.Open(t, c.Addrs, shortly()...)
	lease, err := l.TryLock(t.Context(), "r", redlock.WithQuarantineWait(time.Minute))
	locktest.Must(t, err)
	locktest.Must(t, lease.Unlock(t.Context()))
}
