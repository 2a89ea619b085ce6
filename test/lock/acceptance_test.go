package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// The tests of this file turn complaints of users of other lock libraries into scenarios on real masters. Each test
// has the number of its row in the list of demands. The first sentence of its comment is the demand.

// Row 1: one hung master, or two of five, have no effect on callers.
func TestRow01HungMinority(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	// A wait for a node timeout this long would show: if each of twenty cycles waited once, the
	// context would end before.
	l := locktest.Open(t, c.Addrs, redlock.WithMasterTimeout(2*time.Second))
	c.Warm(t, l)
	for paused := range 2 {
		locktest.Must(t, c.Procs[paused].Pause())
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		for range 20 {
			le, err := l.Lock(ctx, "r")
			locktest.Must(t, err)
			locktest.Must(t, le.Extend(ctx))
			locktest.Must(t, le.Unlock(ctx))
		}
		cancel()
	}
	for paused := range 2 { // requests that were queued there leave no key behind
		locktest.Must(t, c.Procs[paused].Resume())
	}
	c.Empty(t, "redlock:r")
	c.Warm(t, l)
}

// Row 2: dead masters, and names that do not resolve, cost only their votes.
func TestRow02DeadMinority(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	locktest.Must(t, c.Procs[0].Kill())
	locktest.Must(t, c.Procs[1].Kill())
	l := locktest.Open(t, c.Addrs)
	locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context()))

	names := []string{"no-such-host.invalid:6379", "neither.invalid:6379"}
	l = locktest.Open(t, append(names, c.Addrs[2:]...), redlock.WithoutRestartGuard()) // the masters know the other list
	locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context()))
	locktest.Must(t, c.Procs[0].Restart())
	l = locktest.Open(t, c.Addrs)
	redistest.Eventually(t, 10*time.Second, func() bool {
		le := locktest.Lock(t, l, "r")
		defer func() { locktest.Must(t, le.Unlock(t.Context())) }()
		return c.Holders("redlock:r")[0] != ""
	}, "a master that is back takes part again")
}

// Row 3: without a quorum the error says which nodes failed, and no key is left on the others.
func TestRow03DeadMajority(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	l := locktest.Open(t, c.Addrs)
	c.Warm(t, l)
	for _, p := range c.Procs[2:] {
		locktest.Must(t, p.Kill())
	}
	for range 3 {
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
		if errors.Is(err, redlock.ErrTaken) {
			t.Errorf("got %v, want no ErrTaken: the resource is free", err)
		}
		var q *redlock.QuorumError
		if !errors.As(err, &q) {
			t.Fatalf("got %v, want a QuorumError", err)
		}
		var named []string
		for _, n := range q.Masters {
			named = append(named, n.Master)
		}
		for _, a := range c.Addrs[2:] {
			if !slices.Contains(named, a) || !strings.Contains(err.Error(), a) {
				t.Errorf("got %v, want the dead node %s named", err, a)
			}
		}
	}
	c.Empty(t, "redlock:r")
}

// Row 4: a lost reply leads to a lease or to a clean rollback, and never to a key that blocks its own client.
func TestRow04LostReplies(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.StartProxied(t, 5)
	l := locktest.Open(t, c.Via)
	c.Cluster.Warm(t, l)
	for _, p := range c.Proxies[:3] {
		p.LoseNextReply()
	}
	le, err := l.TryLock(t.Context(), "r")
	if err == nil {
		locktest.Unlock(t, le)
	} else {
		locktest.WantErr(t, err, redlock.ErrNoQuorum)
	}
	c.Empty(t, "redlock:r")
	locktest.Unlock(t, locktest.Lock(t, l, "r"))
}

// Row 4, in the other order of events: the connection dies with the reply. The request is
// repeated, and the attempt's own key counts as granted.
func TestRow04LostReplyAndReset(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.StartProxied(t, 3)
	l := locktest.Open(t, c.Via)
	c.Cluster.Warm(t, l)
	for i := range 20 {
		p := c.Proxies[i%3]
		before := p.Stats().Lost
		lost := func() bool { return p.Stats().Lost > before }
		p.LoseNextReply()
		done := make(chan error, 1)
		go func() {
			// Once is enough, unless the connection has just been given up: on a busy machine a reply can be late.
			for first := true; first || !lost(); first = false {
				le, err := l.Lock(t.Context(), "r")
				if err == nil {
					err = le.Unlock(t.Context())
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		redistest.Eventually(t, 10*time.Second, lost, "a reply is lost")
		p.ResetAll()
		locktest.Must(t, <-done)
	}
	c.Empty(t, "redlock:r")
}

// Row 6: the cancelled context of a request does not keep the key from being released.
func TestRow06CancelledRequest(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	l := locktest.Open(t, c.Addrs)
	ctx, cancel := context.WithCancel(t.Context())
	le, err := l.Lock(ctx, "r")
	locktest.Must(t, err)
	cancel()
	locktest.Must(t, le.Context().Err())
	locktest.Must(t, le.Unlock(ctx))
	c.Empty(t, "redlock:r")

	// In the middle of an attempt.
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Duration(i*10) * time.Microsecond) // spreads the moments over an attempt
			cancel()
		}()
		if le, err := l.TryLock(ctx, "r"); err == nil {
			locktest.Must(t, le.Unlock(ctx))
		} else {
			locktest.WantErr(t, err, redlock.ErrNotAcquired, context.Canceled)
		}
		cancel()
	}
	c.Empty(t, "redlock:r")
}

// Row 7: a lease that a bare quorum granted is completed by its renewals, and survives one
// empty restart after another.
func TestRow07RollingEmptyRestarts(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 5)
	locktest.Must(t, c.Procs[3].Kill())
	locktest.Must(t, c.Procs[4].Kill())
	var extended atomic.Int64
	forgot := make(chan string, 16)
	ttl := 1500 * time.Millisecond // a renewal must come before a node may have dropped the key
	l := locktest.Open(t, c.Addrs, redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), locktest.On(func(redlock.Event) { extended.Add(1) }, redlock.EventExtended),
		locktest.On(func(e redlock.Event) { forgot <- e.Master }, redlock.EventKeyLost))
	rival := locktest.Open(t, c.Addrs, redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl))
	le := locktest.Lock(t, l, "r")
	locktest.Must(t, c.Procs[3].Restart())
	locktest.Must(t, c.Procs[4].Restart())
	unreported := 0
	for i := range 5 {
		redistest.Eventually(t, 10*time.Second, func() bool { _, err := admin.Check(t.Context(), rival); return err == nil }, "no node is in quarantine")
		redistest.Eventually(t, 10*time.Second, func() bool { return c.Count("redlock:r") == 5 }, "all nodes hold the key")
		if i == 0 {
			// The renewal that set the key on the last node has been counted, too.
			seen := extended.Load()
			redistest.Eventually(t, 10*time.Second, func() bool { return extended.Load() > seen }, "another renewal")
		}
		locktest.Must(t, c.Procs[i].Restart())
		if _, err := rival.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
			t.Fatalf("restart %d: got %v, want the rival refused", i, err)
		}
		seen := extended.Load()
		redistest.Eventually(t, 10*time.Second, func() bool { return len(forgot) > 0 || extended.Load() > seen+3 }, "a report, or renewals")
		if len(forgot) == 0 {
			t.Logf("restart %d: no report: by then the key may have expired, or a clock was in doubt", i)
			unreported++
		} else if got := <-forgot; got != c.Addrs[i] {
			t.Errorf("restart %d: got %s reported to have forgotten, want %s", i, got, c.Addrs[i])
		}
		seen = extended.Load()
		redistest.Eventually(t, 10*time.Second, func() bool { return extended.Load() > seen }, "another renewal")
	}
	if unreported > 3 { // a busy machine excuses some
		t.Errorf("got no report of %d of 5 restarts", unreported)
	}
	locktest.Must(t, context.Cause(le.Context()))
	locktest.Must(t, le.Unlock(t.Context()))
	c.Empty(t, "redlock:r")
}

// Row 9: an attempt that uses up most of the TTL fails.
func TestRow09SlowAcquire(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.StartProxied(t, 5)
	l := locktest.Open(t, c.Via, redlock.WithTTL(time.Second), redlock.WithMasterTimeout(250*time.Millisecond))
	c.Cluster.Warm(t, l)
	for _, p := range c.Proxies {
		p.Latency(0, 900*time.Millisecond)
	}
	_, err := l.TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
	if !strings.Contains(fmt.Sprintf("%+v", err), "WithMasterTimeout") {
		t.Errorf("got %v, want the option named that bounds a node", err)
	}
	for _, p := range c.Proxies {
		p.Latency(0, 0)
	}
	c.Empty(t, "redlock:r")
}

// Row 10: a renewal that fails on all nodes does not end the lease while validity is left.
func TestRow10FailedRenewalHeals(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.StartProxied(t, 5)
	var failed, lost atomic.Int64
	extended := make(chan redlock.Event, 64)
	l := locktest.Open(t, c.Via, redlock.WithTTL(3*time.Second), redlock.WithMasterTimeout(100*time.Millisecond),
		locktest.On(func(e redlock.Event) { extended <- e }, redlock.EventExtended),
		locktest.On(func(redlock.Event) { failed.Add(1) }, redlock.EventExtendFailed),
		locktest.On(func(redlock.Event) { lost.Add(1) }, redlock.EventLost))
	le := locktest.Lock(t, l, "r")
	c.Set(t, masters.Blackhole)
	redistest.Eventually(t, 10*time.Second, func() bool { return failed.Load() > 0 }, "a renewal fails")
	c.Set(t, masters.Pass)
	for range 2 {
		select {
		case <-extended:
		case <-le.Context().Done():
		}
	}
	if lost.Load() != 0 || le.Context().Err() != nil {
		t.Errorf("got %d losses, cause %v, want the lease kept", lost.Load(), context.Cause(le.Context()))
	}
	locktest.Unlock(t, le)
}

// Row 11: a holder that is cut off learns of the loss before another client can get the resource.
func TestRow11HolderCutOff(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.StartProxied(t, 5)
	l := locktest.Open(t, c.Via, redlock.WithTTL(2*time.Second)) // a timer may be 60 ms late
	rival := locktest.Open(t, c.Addrs)
	c.Cluster.Warm(t, l)
	c.Cluster.Warm(t, rival)
	for range 2 {
		le := locktest.Lock(t, l, "r")
		ctx := le.Context()
		c.Set(t, masters.Blackhole)
		next := locktest.Lock(t, rival, "r")
		if left := le.Validity(); left > 0 {
			redistest.Broken(t, fmt.Sprintf("another holder was granted the resource while the lease was valid for %v more", left))
		}
		if ctx.Err() == nil {
			redistest.Broken(t, "another holder was granted the resource before the lease's context ended")
		}
		locktest.WantErr(t, context.Cause(ctx), redlock.ErrLost, reason.Expired)
		var last *redlock.QuorumError // which has the text of each master's answer to the last renewal
		if text := context.Cause(ctx).Error(); !errors.As(context.Cause(ctx), &last) || last.Op != "extend" || !strings.HasSuffix(text, ": timeout") {
			t.Errorf("got %v with the verdict %v, want a verdict on the last renewal: timeout", text, last)
		}
		if next.Fence() <= le.Fence() {
			redistest.Broken(t, fmt.Sprintf("fence %d after %d", next.Fence(), le.Fence()))
		}
		locktest.Must(t, next.Unlock(t.Context()))
		c.Set(t, masters.Pass)
	}
}

// Row 12: Unlock after the end of the lease returns at once, with an error of its own, whether
// or not the nodes answer.
func TestRow12UnlockAfterExpiry(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	l := locktest.Open(t, c.Addrs)
	for _, paused := range []bool{false, true} {
		le := locktest.Lock(t, l, "r", redlock.WithTTL(60*time.Millisecond), redlock.WithoutRenewal())
		if paused {
			for _, p := range c.Procs {
				locktest.Must(t, p.Pause())
			}
		}
		<-le.Context().Done()
		redistest.Eventually(t, 5*time.Second, func() bool { return le.Validity() <= 0 }, "the validity ends")
		locktest.WantErr(t, le.Unlock(t.Context()), redlock.ErrNotHeld, redlock.ErrLost, reason.Expired)
	}
	for _, p := range c.Procs {
		locktest.Must(t, p.Resume())
	}
}

// Row 14: a master that loads its data costs its vote, and comes back by itself.
func TestRow14Loading(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	c.Warm(t, l)
	n := c.Nodes[0]
	pipe := n.Pipeline()
	for i := range 400 {
		pipe.Set(t.Context(), fmt.Sprint("data", i), strings.Repeat("x", 4096), 0)
	}
	_, err := pipe.Exec(t.Context())
	locktest.Must(t, err)
	for k, v := range map[string]string{"loading-process-events-interval-bytes": "1024", "key-load-delay": "5000"} {
		if err := n.ConfigSet(t.Context(), k, v).Err(); err != nil {
			t.Skipf("this server cannot be made to load slowly: %v", err)
		}
	}
	reloaded := make(chan error, 1)
	go func() {
		slow := redis.NewClient(&redis.Options{Addr: c.Addrs[0], ReadTimeout: 30 * time.Second, MaxRetries: -1})
		defer slow.Close()
		reloaded <- slow.Do(context.Background(), "debug", "reload").Err()
	}()
	redistest.Eventually(t, 10*time.Second, func() bool {
		return redis.IsLoadingError(n.Get(context.Background(), "x").Err())
	}, "the node says LOADING")
	for range 10 {
		locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context()))
	}
	locktest.Must(t, <-reloaded)
	redistest.Eventually(t, 10*time.Second, func() bool {
		le := locktest.Lock(t, l, "r")
		defer func() { locktest.Must(t, le.Unlock(t.Context())) }()
		return c.Holders("redlock:r")[0] != ""
	}, "the node takes part again")
}

// Row 15: masters that are out of memory, or cannot write to disk, still release keys.
func TestRow15ReleaseOnNodesThatRefuseWrites(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	l := locktest.Open(t, c.Addrs)
	c.Warm(t, l)
	hold := func() *redlock.Lease {
		le := locktest.Lock(t, l, "r")
		c.Fill(t, le)
		return le
	}
	le := hold()
	for _, n := range c.Nodes[:2] {
		locktest.Must(t, n.ConfigSet(t.Context(), "maxmemory", "1").Err())
	}
	locktest.Must(t, le.Extend(t.Context()))
	locktest.Must(t, le.Unlock(t.Context()))
	c.Empty(t, "redlock:r")
	locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context())) // three nodes are a quorum
	for _, n := range c.Nodes[:2] {
		locktest.Must(t, n.ConfigSet(t.Context(), "maxmemory", "0").Err())
	}

	// A node that takes no writes at all is reported, and the release is repeated until it succeeds.
	if redistest.IsRedisBefore(t, 7, 0) {
		return // there min-replicas-to-write does not affect scripts
	}
	le = hold()
	for _, n := range c.Nodes[:3] {
		locktest.Must(t, n.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	}
	err := le.Unlock(t.Context())
	locktest.WantErr(t, err, redlock.ErrNoQuorum)
	if !strings.Contains(err.Error(), "NOREPLICAS") || !strings.Contains(err.Error(), c.Addrs[0]) {
		t.Errorf("got %v, want each node's own reason", err)
	}
	for _, n := range c.Nodes[:3] {
		locktest.Must(t, n.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	}
	c.Empty(t, "redlock:r")
}

// Row 17: the events count contenders and their waits.
func TestRow17Contention(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	var acquired, failed, released atomic.Int64
	opts := []redlock.Option{locktest.On(func(redlock.Event) { acquired.Add(1) }, redlock.EventAcquired),
		locktest.On(func(redlock.Event) { failed.Add(1) }, redlock.EventTaken, redlock.EventAttemptFailed),
		locktest.On(func(redlock.Event) { released.Add(1) }, redlock.EventReleased)}
	lockers := []*redlock.Locker{locktest.Open(t, c.Addrs, opts...), locktest.Open(t, c.Addrs, opts...)}
	le := locktest.Lock(t, lockers[0], "r")
	_, err := lockers[1].TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrTaken)
	locktest.Must(t, le.Unlock(t.Context()))
	var inside, overlaps atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			err := lockers[i%2].Do(t.Context(), "r", func(context.Context, *redlock.Lease) error {
				if inside.Add(1) != 1 {
					overlaps.Add(1)
				}
				time.Sleep(time.Millisecond) // the work
				inside.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, l := range lockers {
		locktest.Must(t, l.Close()) // delivers all events
	}
	if n := overlaps.Load(); n != 0 {
		redistest.Broken(t, fmt.Sprintf("%d overlaps", n))
	}
	if acquired.Load() != 65 || released.Load() != 65 || failed.Load() == 0 {
		t.Errorf("got %d acquired, %d released, %d failed attempts; want 65, 65 and some",
			acquired.Load(), released.Load(), failed.Load())
	}
}

// Row 21: Close releases all leases, and leaves no goroutine (TestMain checks).
func TestRow21Close(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	l := locktest.Open(t, c.Addrs)
	var held []*redlock.Lease
	for i := range 20 {
		held = append(held, locktest.Lock(t, l, fmt.Sprint("r", i)))
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := l.Lock(t.Context(), "r0")
		waiting <- err
	}()
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:r19") == 5 }, "all nodes hold the last key")
	locktest.Must(t, l.Close())
	locktest.WantErr(t, <-waiting, redlock.ErrClosed)
	for i, le := range held {
		if got := c.Count(fmt.Sprint("redlock:r", i)); got != 0 {
			t.Errorf("r%d: got the key on %d nodes, want it released", i, got)
		}
		locktest.WantErr(t, le.Unlock(t.Context()), redlock.ErrNotHeld, redlock.ErrReleased)
	}
}

// A flushed script cache, and connections that the server kills, have no effect on callers.
func TestScriptFlushAndClientKill(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs, redlock.WithMasterTimeout(2*time.Second))
	c.Warm(t, l)
	for range 20 {
		for _, n := range c.Nodes {
			locktest.Must(t, n.ScriptFlush(t.Context()).Err())
			locktest.Must(t, n.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
		}
		le, err := l.TryLock(t.Context(), "r")
		locktest.Must(t, err)
		for _, n := range c.Nodes {
			locktest.Must(t, n.ScriptFlush(t.Context()).Err())
		}
		locktest.Must(t, le.Extend(t.Context()))
		locktest.Must(t, le.Unlock(t.Context()))
	}
	c.Empty(t, "redlock:r")
}

// A service with 10,000 leases lives through a rolling upgrade of its masters, each of which comes back empty. No lease
// ends, and the log has one line for each fact.
func TestRollingUpgradeWith10000Leases(outer *testing.T) {
	t := redistest.Timed(outer)
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
