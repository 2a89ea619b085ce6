package admin_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

const stuck, moved = "stuck", "moved"

// A holder that renews its lease loses it before another client has it. No node is reported as one
// that lost data, and the waiting callers get their turns.
func TestBreakALiveHolder(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 3)
	var blamed atomic.Int32
	watch := locktest.On(func(redlock.Event) { blamed.Add(1) }, redlock.EventKeyLost, redlock.EventQuarantined)
	holder := locktest.Open(t, c.Addrs, watch)
	le := locktest.Lock(t, holder, stuck, redlock.WithTTL(3*time.Second))
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:"+stuck) == 3 }, "all nodes have the key")
	next := make(chan *redlock.Lease)
	for range 2 {
		l := locktest.Open(t, c.Addrs, watch)
		go func() {
			mine, err := l.Lock(t.Context(), stuck)
			if err != nil || le.Context().Err() == nil || le.Validity() > 0 {
				t.Errorf("got %v, want a lease when the broken one is over", err)
			}
			next <- mine
		}()
		inVain := func() bool { return l.Stats().Counts[redlock.EventTaken] > 0 }
		redistest.Eventually(t, 10*time.Second, inVain, "it has asked in vain, and waits")
	}
	in, err := admin.Break(t.Context(), locktest.Open(t, c.Addrs), stuck)
	locktest.Must(t, err)
	wantVerdict(t, in, nil, admin.VerdictHeld)
	if in.Token != le.Token() || in.Fence != le.Fence() || in.Resource != stuck {
		t.Errorf("got %+v, want the lease %s, %d", in, le.Token(), le.Fence())
	}
	if in.FreeIn() <= time.Second || in.FreeIn() > 3*time.Second {
		t.Errorf("got it free in %v, want what was left of 3s", in.FreeIn())
	}
	for _, n := range in.Masters {
		if !n.Broken || n.Token != le.Token() {
			t.Errorf("got %+v, want a key of the holder that was broken", n)
		}
	}
	for _, v := range c.Holders("redlock:" + stuck) {
		if v != "" && v != "~broken:"+le.Token()+"|0" { // or the holder has released it already
			t.Errorf("got %q on a node, want a placeholder", v)
		}
	}
	free := time.Now().Add(in.FreeIn())
	locktest.WantDone(t, le.Context(), []error{reason.QuorumLost})
	if err := le.Unlock(t.Context()); !errors.Is(err, redlock.ErrNotHeld) {
		t.Errorf("got %v, want %v", err, redlock.ErrNotHeld)
	}
	for range 2 {
		mine := <-next
		if mine == nil || mine.Fence() <= le.Fence() {
			t.Fatalf("got %+v after fence %d, want a lease with a larger fence", mine, le.Fence())
		}
		locktest.Must(t, mine.Unlock(t.Context()))
	}
	if late := time.Since(free); late > 5*time.Second {
		t.Errorf("the queue went on %v after the lock was free", late)
	}
	locktest.Must(t, holder.Close())
	if n := blamed.Load(); n != 0 {
		t.Errorf("got %d nodes blamed for lost keys, want none", n)
	}
}

func TestBreakWithMastersDown(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	le := locktest.Lock(t, locktest.Open(t, c.Addrs), stuck)
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:"+stuck) == 3 }, "all nodes have the key")
	locktest.Must(t, c.Procs[0].Kill())
	in, err := admin.Break(t.Context(), l, stuck)
	locktest.Must(t, err)
	if in.Masters[0].Broken || in.Masters[0].Err == nil || !in.Masters[1].Broken || !in.Masters[2].Broken {
		t.Errorf("got %+v, want the last two broken", in.Masters)
	}
	if err := le.Extend(t.Context()); err == nil {
		t.Error("got a lease that was extended, want it to be over")
	}
	locktest.WantDone(t, le.Context(), []error{reason.QuorumLost})
	const another = "another" // the broken lease may or may not be released by now
	locktest.Lock(t, locktest.Open(t, c.Addrs), another, redlock.WithoutRenewal())
	locktest.Must(t, c.Procs[1].Kill())
	in, err = admin.Break(t.Context(), l, another)
	locktest.WantMatch(t, "Break", err, []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld)
	var failed *redlock.QuorumError
	if !errors.As(err, &failed) || failed.Op != "break" || failed.Granted != 1 || failed.Need != 2 || len(failed.Masters) != 2 {
		t.Errorf("got %#v, want two nodes that did not answer", err)
	}
	if !in.Masters[2].Broken {
		t.Errorf("got %+v, want the last broken", in.Masters)
	}
}

// Keys that no Locker sets: a lock of no holder, one without expiry, one of another library, one of another type.
func TestBreakOddKeys(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	const key = "redlock:" + stuck
	in, err := admin.Break(t.Context(), l, stuck)
	wantVerdict(t, in, err, admin.VerdictFree)
	if n := c.Count(key); n != 0 || in.FreeIn() != 0 {
		t.Errorf("got keys on %d nodes of a lock that is free in %v, want it left alone", n, in.FreeIn())
	}

	locktest.Must(t, c.Nodes[0].Set(t.Context(), key, "redsync", 0).Err())
	locktest.Must(t, c.Nodes[1].Set(t.Context(), key, "redsync", time.Minute).Err())
	locktest.Must(t, c.Nodes[2].HSet(t.Context(), key, "a", "b").Err())
	if in, err = admin.Inspect(t.Context(), l, stuck); err != nil || in.FreeIn() >= 0 {
		t.Errorf("got it free in %v, %v; want never", in.FreeIn(), err)
	}
	in, err = admin.Break(t.Context(), l, stuck)
	wantVerdict(t, in, err, admin.VerdictHeld)
	if n := in.Masters[0]; !n.Broken || n.TTL != redlock.DefaultMaxTTL {
		t.Errorf("got %+v, want the largest TTL for what was there for ever", n)
	}
	if n := in.Masters[1]; !n.Broken || n.TTL <= 50*time.Second || in.FreeIn() != n.TTL {
		t.Errorf("got %+v, want what was left", n)
	}
	if n := in.Masters[2]; n.Broken || !errors.Is(n.Err, reason.WrongType) || c.Nodes[2].HGet(t.Context(), key, "a").Val() != "b" {
		t.Errorf("got %+v, want it untouched", n)
	}
	for i, want := range []time.Duration{redlock.DefaultMaxTTL, time.Minute} {
		if left := c.Nodes[i].PTTL(t.Context(), key).Val(); left <= want-5*time.Second || left > want {
			t.Errorf("got a key that lives for %v, want up to %v", left, want)
		}
	}

	for _, n := range c.Nodes {
		locktest.Must(t, n.Del(t.Context(), key).Err())
	}
	locktest.Must(t, c.Nodes[0].Set(t.Context(), key, "a|1000", 0).Err()) // left over: no holder has it
	in, err = admin.Break(t.Context(), l, stuck)
	wantVerdict(t, in, err, admin.VerdictMinority)
	if !in.Masters[0].Broken || in.FreeIn() != redlock.DefaultMaxTTL {
		t.Errorf("got %+v, want an end to what was left over", in.Masters[0])
	}
}

// A user with the rights of the ACL line may inspect, break and adopt.
func TestAdminWithTheACLLine(outer *testing.T) {
	t := redistest.Timed(outer)
	n := redistest.Masters(t, 1)[0]
	c := aclCluster{addrs: []string{n.Addr()}, admins: []*redis.Client{aclAdmin(t, n)}}
	c.setUser(t, aclRights(t))
	l := locktest.Open(t, []string{"redis://redlock:secret@" + n.Addr()})
	in, err := admin.Inspect(t.Context(), l, stuck)
	wantVerdict(t, in, err, admin.VerdictQuarantined)
	locktest.Must(t, admin.Bootstrap(t.Context(), l))
	le := locktest.Lock(t, l, stuck)
	handle, err := le.Detach()
	locktest.Must(t, err)
	le, err = l.Adopt(t.Context(), handle)
	locktest.Must(t, err)
	if in, err := admin.Break(t.Context(), l, stuck); err != nil || !in.Masters[0].Broken {
		t.Errorf("got %+v, %v; want it broken", in, err)
	}
	if err := le.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
		t.Errorf("got %v, want %v", err, redlock.ErrLost)
	}
}
