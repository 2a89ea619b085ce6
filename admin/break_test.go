package admin_test

import (
	"errors"
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
