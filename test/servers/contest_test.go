package servers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// A client hears of a larger TTL from a master that it has lost and reaches again, when it has just joined at a master that
// was emptied, where nothing is known of that TTL. That master has no vote for it from then on.
//
// Source: ALGORITHM section 8, "MaxTTL".
func TestLargerTTLIsHeardAfterAJoin(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w := newNetwork(t, 3)
	w.lose("l", "c")
	logger, said := locktest.LogText()
	small := w.locker("s", [3]int{0, 1, 2}, redlock.WithMaxTTL(3*time.Second), redlock.WithTTL(2*time.Second), redlock.WithMasterTimeout(250*time.Millisecond), redlock.WithLogger(logger))
	used(t, small, "of small")
	w.lose("s", "a")
	large := w.locker("l", [3]int{0, 1, 2}, redlock.WithMaxTTL(20*time.Second), redlock.WithTTL(20*time.Second), redlock.WithoutRenewal())
	held, err := large.Lock(t.Context(), "r")
	locktest.Must(t, err)
	locktest.Must(t, redistest.Client(t, w.nodes[1].Addr()).FlushAll(t.Context()).Err())
	used(t, small, "of small") // after its quarantine
	w.reach("s", "a", true)
	for end := time.Now().Add(30 * time.Second); !strings.Contains(said(), "another client has a TTL of 20s") && time.Now().Before(end); {
		if lease, err := small.TryLock(t.Context(), "of small"); err == nil {
			locktest.Must(t, lease.Unlock(t.Context()))
		}
	}
	lease, err := small.TryLock(t.Context(), "r")
	if left := held.Validity(); err == nil && left > 0 {
		redistest.Broken(t, fmt.Sprintf("two holders: %v of the first one's validity was left, %v of the second one's", left, lease.Validity()))
	}
}

// A master was emptied. The client that has a lease with a large TTL asks it for a small one after that, or a client with
// the same MaxTTL does. So the master hears of the large TTL, and tells a client that comes later.
//
// Source: ALGORITHM section 8, "MaxTTL".
func TestLargerTTLIsToldToAnEmptiedMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	for _, name := range []string{"l", "m"} { // the client that tells
		w := newNetwork(t, 3)
		w.lose("l", "c")
		w.lose("m", "a")
		w.lose("s", "a")
		opts := []redlock.Option{redlock.WithMaxTTL(15 * time.Second), redlock.WithTTL(time.Second), redlock.WithMasterTimeout(250 * time.Millisecond)}
		clients := map[string]*redlock.Locker{"l": w.locker("l", [3]int{0, 1, 2}, opts...), "m": w.locker("m", [3]int{0, 1, 2}, opts...)}
		held, err := clients["l"].Lock(t.Context(), "r", redlock.WithTTL(15*time.Second), redlock.WithoutRenewal())
		locktest.Must(t, err)
		used(t, clients["m"], "of m")
		locktest.Must(t, errors.Join(w.nodes[1].Kill(), w.nodes[1].Restart()))
		b := redistest.Client(t, w.nodes[1].Addr())
		redistest.Eventually(t, 30*time.Second, func() bool {
			_, _ = clients[name].TryLock(t.Context(), "other")
			return b.HGet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "ttls").Val() != ""
		}, "the client joins")
		small := w.locker("s", [3]int{0, 1, 2}, redlock.WithMaxTTL(time.Second), redlock.WithTTL(time.Second), redlock.WithMasterTimeout(250*time.Millisecond))
		for end := time.Now().Add(5 * time.Second); held.Validity() > 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			_, err := small.TryLock(t.Context(), "r")
			if left := held.Validity(); err == nil && left > 0 {
				redistest.Broken(t, fmt.Sprintf("%s tells: two holders: %v of the first one's validity was left", name, left))
				break
			}
		}
	}
}

// Two clients use one master by two database numbers, where keys and markers are apart: as two servers behind one name.
//
// Source: ALGORITHM section 8, "Membership".
func TestTwoDatabasesOfAMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	w := newNetwork(t, 3)
	w.db = map[string]int{"yb": 1}
	run := redistest.Client(t, w.nodes[1].Addr()).HGet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "run").Val()
	other := redis.NewClient(&redis.Options{Addr: w.nodes[1].Addr(), DB: 1})
	t.Cleanup(func() { _ = other.Close() })
	locktest.Must(t, other.HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "run", run, "born", 0).Err())
	x, y := w.locker("x", [3]int{0, 1, 2}), w.locker("y", [3]int{0, 1, 2})
	used(t, x, "r")
	_, err := y.TryLock(t.Context(), "r")
	locktest.WantErr(t, err, redlock.ErrMasterSetup, reason.Membership)
	w.lose("x", "c")
	w.lose("y", "a")
	held, err := x.Lock(t.Context(), "r")
	locktest.Must(t, err)
	if _, err := y.TryLock(t.Context(), "r"); err == nil && held.Validity() > 0 {
		redistest.Broken(t, "two holders")
	}
}

// Two names are swapped for the client that comes second. Nothing changes for the first one.
//
// Source: ALGORITHM section 8, "Servers".
func TestNamesAreSwappedForALaterClient(outer *testing.T) {
	t := redistest.Timed(outer)
	w := newNetwork(t, 3)
	x := w.locker("x", [3]int{0, 1, 2})
	used(t, x, "r")
	y := w.locker("y", [3]int{1, 0, 2})
	for range 5 {
		if _, err := y.TryLock(t.Context(), "r"); !errors.Is(err, reason.OtherServer) {
			t.Errorf("got %v, want reason.OtherServer", err)
		}
		used(t, x, "r")
	}
}

// Another client reaches a server for the first time, and has requests for the other masters while that server is slow to answer. They
// hear of the server all the same.
//
// Source: ALGORITHM section 8, "Servers".
func TestServerIsToldWhenItIsMet(outer *testing.T) {
	t := redistest.Timed(outer)
	w := newNetwork(t, 3)
	w.lose("x", "b")
	w.delay = map[string]time.Duration{"xb": 100 * time.Millisecond}
	logger, said := locktest.LogText()
	x := w.locker("x", [3]int{0, 1, 2}, redlock.WithLogger(logger), redlock.WithTTL(5*time.Second)) // a join each 2.6 s
	used(t, x, "r")
	w.reach("x", "b", true)
	redistest.Eventually(t, 30*time.Second, func() bool { used(t, x, "r"); return strings.Contains(said(), "is up again") }, "b is up")
	used(t, x, "r")
	if servers := redistest.Client(t, w.nodes[0].Addr()).HGet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "servers").Val(); !strings.Contains(servers, "b:6379") {
		t.Errorf("got the servers %q, want that of b among them", servers)
	}
}

// A list came into use when the clock of a master was ahead, and no client has it any more. It does not keep the others out
// until that time has come.
//
// Source: ALGORITHM section 8, "Membership".
func TestListOfAClockThatWasAhead(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	w := newNetwork(t, 3)
	locktest.Must(t, redistest.Client(t, w.nodes[0].Addr()).HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard",
		"lists", fmt.Sprint(time.Now().AddDate(1, 0, 0).UnixMilli(), " a:6379 b:6379 d:6379")).Err())
	l := w.locker("l", [3]int{0, 1, 2}, redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(250*time.Millisecond))
	redistest.Eventually(t, 20*time.Second, func() bool { _, err := l.TryLock(t.Context(), "r"); return err == nil }, "a lease when the list is out of use")
}

// Two masters that lose nothing restart twice, and no client joins in between. They have their votes at once.
//
// Source: ALGORITHM section 8, "Servers".
func TestTrustedMastersRestartTwice(outer *testing.T) {
	t := redistest.Timed(outer)
	w := newNetwork(t, 3, locktest.OnDisk...)
	x := w.locker("x", [3]int{0, 1, 2}, redlock.WithTrustedDisk())
	used(t, x, "r")
	for range 2 {
		for i := range 2 {
			locktest.Must(t, errors.Join(w.nodes[i].Kill(), w.nodes[i].Restart()))
		}
		other := w.locker("other", [3]int{0, 1, 2}, redlock.WithTrustedDisk())
		_, _ = admin.Check(t.Context(), other) // the masters note who they are
		locktest.Must(t, other.Close())
	}
	used(t, x, "r")
}
