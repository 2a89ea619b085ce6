package servers_test

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// On real masters that fail, lose their data and have their clocks moved, an event of each kind has the fields that its
// kind lists, and no others.
func TestFieldsOfEvents(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.TakesSeconds(t)
	servers := redistest.Skewed(t, 3)
	block := make(chan struct{})
	var mu sync.Mutex
	seen := make(map[redlock.EventKind]int)
	blocked, dropping := false, false
	l := locktest.Open(t, redistest.Addrs(servers), redlock.WithLogger(nil),
		redlock.WithObserver(func(e redlock.Event) {
			if wrong := wrongFields(e); wrong != "" {
				t.Errorf("%v: %s: %+v", e.Kind, wrong, e)
			}
			mu.Lock()
			seen[e.Kind]++
			wait := dropping && !blocked
			blocked = blocked || wait
			mu.Unlock()
			if wait {
				<-block
			}
		}))
	has := func(k redlock.EventKind) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, func() bool { mu.Lock(); defer mu.Unlock(); return seen[k] > 0 }, "an event "+k.String())
	}
	ctx := t.Context()
	client := redistest.Client(t, servers[0].Addr())

	// A lease of each way, and calls without one.
	lease := locktest.Lock(t, l, "r", redlock.WithTTL(time.Second))
	_, err := l.TryLock(ctx, "r")
	locktest.WantErr(t, err, redlock.ErrTaken)
	_, err = locktest.Open(t, redistest.Addrs(servers), redlock.WithLogger(nil)).TryLock(ctx, "r")
	locktest.WantErr(t, err, redlock.ErrTaken)
	heir := make(chan *redlock.Lease)
	go func() { heir <- locktest.Lock(t, l, "r") }()
	redistest.Eventually(t, 20*time.Second, func() bool { return l.Stats().Waiting > 0 }, "a caller that waits")
	locktest.Must(t, lease.Unlock(ctx))
	lease = <-heir
	locktest.Must(t, lease.Extend(ctx))
	locktest.Must(t, lease.Downgrade(ctx))
	_, err = lease.Detach()
	locktest.Must(t, err)
	locktest.Must(t, locktest.Lock(t, l, "never written", redlock.Shared()).Unlock(ctx))
	stranger, err := locktest.Open(t, redistest.Addrs(servers), redlock.WithLogger(nil)).Lock(ctx, "s")
	locktest.Must(t, err)
	_, err = l.TryLock(ctx, "s")
	locktest.WantErr(t, err, redlock.ErrTaken)
	locktest.Must(t, stranger.Unlock(ctx))
	func() { locktest.Lock(t, l, "dropped") }()
	redistest.Eventually(t, 20*time.Second, func() bool { runtime.GC(); return l.Stats().Counts[redlock.EventAbandoned] > 0 }, "a dropped lease")

	// A key that is lost, a finding, and clocks that are moved: one, which is a master's fault, and all.
	lease = locktest.Lock(t, l, "short", redlock.WithMaxHold(time.Second), redlock.WithTTL(500*time.Millisecond))
	locktest.Must(t, client.Del(ctx, redlock.DefaultKeyPrefix+"short").Err())
	has(redlock.EventKeyLost)
	<-lease.Context().Done()
	has(redlock.EventLost)
	locktest.Must(t, servers[1].StepClock(time.Minute))
	locktest.Must(t, l.Do(ctx, "t", func(context.Context, *redlock.Lease) error { return nil }))
	has(redlock.EventMasterClockStepped)
	for _, s := range servers {
		locktest.Must(t, s.StepClock(time.Minute))
	}
	redistest.Eventually(t, 20*time.Second, func() bool {
		_, _ = l.TryLock(ctx, "u")
		return l.Stats().Counts[redlock.EventLocalClockStopped] > 0
	}, "a local clock that stood still")
	locktest.Must(t, client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	locktest.Must(t, client.ConfigSet(ctx, "maxmemory", "100mb").Err())

	// Masters that are down and come back, empty.
	lease, err = l.Lock(ctx, "v", redlock.WithTTL(10*time.Second))
	locktest.Must(t, err)
	locktest.Must(t, servers[0].Kill())
	locktest.Must(t, servers[1].Kill())
	if err := lease.Extend(ctx); err == nil {
		t.Error("Extend without a quorum: got no error")
	}
	_, err = l.TryLock(ctx, "w")
	locktest.WantErr(t, err, redlock.ErrNoQuorum)
	locktest.Must(t, servers[0].Restart())
	locktest.Must(t, servers[1].Restart())
	for k := range redlock.EventKind(len(l.Stats().Counts)) {
		if k != redlock.EventDropped && k != redlock.EventWarning {
			has(k)
		}
	}

	// An observer that is slow.
	mu.Lock()
	dropping = true
	mu.Unlock()
	redistest.Eventually(t, time.Minute, func() bool {
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				for range 100 {
					_, _ = l.TryLock(ctx, "v")
				}
			})
		}
		calls.Wait()
		return l.Stats().Counts[redlock.EventDropped] > 0
	}, "events that are dropped")
	close(block)
	has(redlock.EventDropped)
	has(redlock.EventWarning)
}

// wrongFields says what fields an event lacks, or has and should not have.
func wrongFields(e redlock.Event) string {
	each, some := e.Kind.Fields()
	v := reflect.ValueOf(e)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch is := !v.Field(i).IsZero(); {
		case !v.Type().Field(i).IsExported() || name == "Kind" || slices.Contains(some, name):
		case name == "Time" || slices.Contains(each, name):
			if !is {
				return fmt.Sprint("lacks ", name)
			}
		case is:
			return fmt.Sprint("has ", name)
		}
	}
	return ""
}
