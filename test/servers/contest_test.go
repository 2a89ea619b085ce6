package servers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

// Client y reaches the masters b and c, and b leads it to another server than x. Both reach c, at all times. Client x is
// new each time, or was idle for longer than a quarantine: whichever answer comes first, it must not take what y holds.
//
// Source: ALGORITHM section 8, "Servers".
func TestTwoServersAndOneCommonMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	w := newNetwork(t, 4)
	w.lose("y", "a")
	opts := []redlock.Option{redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(300 * time.Millisecond)}
	y := w.locker("y", [3]int{0, 3, 2}, opts...)
	held, err := y.Lock(t.Context(), "r")
	locktest.Must(t, err)
	two := func(when string, l *redlock.Locker) bool {
		lease, err := l.TryLock(t.Context(), "r")
		if err != nil {
			return false
		}
		mine, its := lease.Validity(), held.Validity()
		if its > 0 && mine > 0 {
			redistest.Broken(t, fmt.Sprintf("%s: two holders: x for %v, y for %v", when, mine, its))
		}
		for its > 0 && mine > 0 {
			time.Sleep(20 * time.Millisecond)
			mine, its = lease.Validity(), held.Validity()
		}
		_ = lease.Unlock(t.Context())
		return true
	}
	n, bad := redistest.Rounds(8, 30), 0
	for range n {
		x := w.locker("x", [3]int{0, 1, 2}, opts...)
		if two("new", x) {
			bad++
		}
		locktest.Must(t, x.Close())
	}
	t.Logf("new: %d of %d", bad, n)
	x := w.locker("x", [3]int{0, 1, 2}, opts...)
	bad = 0
	for range redistest.Rounds(3, 10) {
		if two("idle", x) {
			bad++
		}
		for range 3 {
			_, _ = x.TryLock(t.Context(), "r")
		}
		time.Sleep(ttl + ttl/10)
	}
	t.Logf("idle: %d", bad)
	if held.Err() != nil {
		t.Logf("y: %v", held.Err())
	}
}

// claimTTL is the TTL of the clients of meetingAtA.
const claimTTL = 3 * time.Second

// meetingAtA returns client x, which has used the masters a and b, and cannot reach c. A client y with the same options, of
// a, another server for b, and c, hears a first.
func meetingAtA(t *redistest.T, more ...redlock.Option) (*network, []redlock.Option, *redlock.Locker) {
	w := newNetwork(t, 4)
	w.lose("x", "c")
	w.delay = map[string]time.Duration{"yb": 50 * time.Millisecond, "yc": 50 * time.Millisecond}
	opts := append(more, redlock.WithTTL(claimTTL), redlock.WithMaxTTL(claimTTL), redlock.WithMasterTimeout(300*time.Millisecond))
	x := w.locker("x", [3]int{0, 1, 2}, opts...)
	used(t, x, "of x")
	return w, opts, x
}

// Client x has a lease on a and b that it does not renew; it was granted a little less than half a quarantine after the last
// join. Client y reaches a, too, where the claim of x has to last as long as the lease.
//
// Source: ALGORITHM section 8, "Servers".
func TestServerIsInUseAsLongAsALease(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w, opts, x := meetingAtA(t, redlock.WithoutRenewal())
	y := w.locker("y", [3]int{0, 3, 2}, opts...)
	for i := range 3 {
		used(t, y, fmt.Sprint("of y", i))
	}
	if _, err := admin.Check(t.Context(), y); !errors.Is(err, reason.OtherServer) {
		t.Fatalf("got %v: client y has not heard of the server of x", err)
	}
	used(t, x, "of x")                  // a join
	time.Sleep(1400 * time.Millisecond) // less than half of 3.16 s
	held, err := x.TryLock(t.Context(), "r")
	locktest.Must(t, err)
	neverBeside(t.Context(), t, held, y)
}

// The clock of a master was far ahead for a while, when clients of another version joined there. None of them is left.
//
// Source: ALGORITHM section 8, "Version".
func TestVersionOfAClockThatWasAhead(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w := newNetwork(t, 3)
	for _, m := range w.nodes {
		locktest.Must(t, redistest.Client(t, m.Addr()).HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "protocol", fmt.Sprint("0 ", time.Now().AddDate(1, 0, 0).UnixMilli())).Err())
	}
	l := w.locker("l", [3]int{0, 1, 2}, redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(250*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if lease, err := l.Lock(ctx, "r"); err != nil {
		t.Errorf("got %v, want a lease after a quarantine", err)
	} else {
		locktest.Must(t, lease.Unlock(ctx))
	}
}

// Client x was idle for longer than a quarantine, and takes a lease on a and b, which it renews. Client y comes after that,
// and reaches a, too.
//
// Source: ALGORITHM section 8, "Servers".
func TestServerOfAnIdleClient(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w, opts, x := meetingAtA(t)
	time.Sleep(claimTTL + claimTTL/5)
	held, err := x.TryLock(t.Context(), "r")
	locktest.Must(t, err)
	t.Logf("servers at a: %q", redistest.Client(t, w.nodes[0].Addr()).HGet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "servers").Val())
	y := w.locker("y", [3]int{0, 3, 2}, opts...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*claimTTL)
	defer cancel()
	neverBeside(ctx, t, held, y)
}
