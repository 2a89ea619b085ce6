package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
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

const inspected = "inspected"

// inspection inspects with a new Locker.
func inspection(t testing.TB, addrs []string, opts ...redlock.Option) (admin.Inspection, error) {
	t.Helper()
	l, err := redlock.New(addrs, append([]redlock.Option{redlock.WithLogger(nil)}, opts...)...)
	locktest.Must(t, err)
	defer func() { locktest.Must(t, l.Close()) }()
	return admin.Inspect(t.Context(), l, inspected)
}

func wantVerdict(t testing.TB, in admin.Inspection, err error, want admin.Verdict) {
	t.Helper()
	if in.Verdict != want || (err != nil) != (want == admin.VerdictUnknown) {
		t.Fatalf("got %v, %v (%+v); want %v", in.Verdict, err, in, want)
	}
}

// A key that is no fencing counter stands in its place: no lease is granted, and the resource is not FREE.
func TestInspectWithAWrongCounter(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	const counter = "redlock:" + inspected + "~fence"
	for _, set := range [][]any{{"set", counter, "x"}, {"set", counter, "-5"}, {"set", counter, ""}, {"lpush", counter, "x"}} {
		for _, n := range c.Nodes {
			locktest.Must(t, errors.Join(n.Del(t.Context(), counter).Err(), n.Do(t.Context(), set...).Err()))
		}
		l := locktest.Open(t, c.Addrs)
		if _, err := l.TryLock(t.Context(), inspected); redlock.Reason(err) != "wrong_type" {
			t.Errorf("%v: got %v, want the reason wrong_type", set, err)
		}
		in, err := admin.Inspect(t.Context(), l, inspected)
		wantVerdict(t, in, err, admin.VerdictQuarantined)
	}
	for _, value := range []string{"1e15", "0x100", " 77 ", "1.0"} { // which the scripts read as numbers
		for _, n := range c.Nodes {
			locktest.Must(t, n.Set(t.Context(), "redlock:"+inspected+"~fence", value, 0).Err())
		}
		l := locktest.Open(t, c.Addrs)
		in, err := admin.Inspect(t.Context(), l, inspected)
		wantVerdict(t, in, err, admin.VerdictFree)
		locktest.Unlock(t, locktest.Lock(t, l, inspected))
	}
	for _, n := range c.Nodes { // the largest number
		locktest.Must(t, n.Set(t.Context(), "redlock:far~fence", int64(math.MaxInt64), 0).Err())
	}
	l := locktest.Open(t, c.Addrs)
	in, err := admin.Inspect(t.Context(), l, "far")
	wantVerdict(t, in, err, admin.VerdictQuarantined)
	why := in.Masters[0].NoVote
	_, err = l.TryLock(t.Context(), "far")
	if !errors.Is(err, redlock.ErrNoQuorum) || strings.Contains(fmt.Sprint(err, why), "is -") {
		t.Errorf("got %v and %v, want ErrNoQuorum, and how far it is ahead", err, why)
	}
}

// Each verdict, on real masters. Source: ALGORITHM section 2.
func TestInspect(outer *testing.T) {
	t := redistest.Timed(outer)
	nodes := redistest.Masters(t, 3)
	addrs := redistest.Addrs(nodes)
	in, err := inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictQuarantined)
	for _, n := range in.Masters {
		if n.Quarantine < 9*time.Second || n.NoVote == nil || n.Err != nil {
			t.Errorf("got %+v, want a quarantine", n)
		}
	}

	l := locktest.Open(t, addrs)
	locktest.Must(t, admin.Bootstrap(t.Context(), l))
	in, err = inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictFree)
	if in.Resource != inspected || in.Quorum != 2 || len(in.Masters) != 3 || in.Token != "" || in.Fence != 0 {
		t.Errorf("got %+v, want a free resource on three masters", in)
	}

	le := locktest.Lock(t, l, inspected)
	redistest.Eventually(t, 5*time.Second, func() bool { // the last node may be a little later
		in, err = inspection(t, addrs)
		return err == nil && in.Masters[0].Token != "" && in.Masters[1].Token != "" && in.Masters[2].Token != ""
	}, "the key is everywhere")
	wantVerdict(t, in, err, admin.VerdictHeld)
	if in.Token != le.Token() || in.Fence != le.Fence() {
		t.Errorf("got %q, %d; want %q, %d", in.Token, in.Fence, le.Token(), le.Fence())
	}
	if in.HeldFor <= 0 || in.HeldFor > time.Minute {
		t.Errorf("held for %v, want what has passed since Lock", in.HeldFor)
	}
	for i, n := range in.Masters {
		if n.Master != addrs[i] || n.Token != le.Token() || n.Fence != le.Fence() || n.TTL <= 5*time.Second || n.TTL > 10*time.Second ||
			n.RoundTrip <= 0 || n.NoVote != nil || n.Quarantine != 0 {
			t.Errorf("got %+v, want what the lease has", n)
		}
	}
	for i, n := range nodes { // the last node may have a larger counter, which is not that of the lease
		locktest.Must(t, redistest.Client(t, n.Addr()).Set(t.Context(), redlock.DefaultKeyPrefix+inspected+"~fence", le.Fence()+63+int64(i/2)*1000, time.Minute).Err())
	}
	if in, err = inspection(t, addrs); err != nil || in.Fence != le.Fence() || in.Masters[2].Fence != le.Fence()+1000 {
		t.Errorf("got %+v, %v; want %d still", in, err, le.Fence())
	}
	wrong, err := inspection(t, addrs, redlock.WithKeyPrefix("other:"), redlock.WithoutRestartGuard())
	wantVerdict(t, wrong, err, admin.VerdictFree)

	locktest.Must(t, nodes[0].Kill())
	in, err = inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictHeld)
	if in.Masters[0].Err == nil || in.Masters[1].Err != nil {
		t.Errorf("got %+v, want the first of them down", in.Masters)
	}
	locktest.Must(t, nodes[1].Kill())
	in, err = inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictUnknown)
	var failed *redlock.QuorumError
	if !errors.Is(err, redlock.ErrNoQuorum) || !errors.As(err, &failed) || len(failed.Masters) != 2 || failed.Granted != 1 {
		t.Errorf("got %v, want two that did not answer", err)
	}
}

// Keys that no Locker sets: of several holders, on too few masters, of another library, without
// expiry, of another type.
func TestInspectOddKeys(outer *testing.T) {
	t := redistest.Timed(outer)
	nodes := redistest.Masters(t, 3)
	addrs := redistest.Addrs(nodes)
	locktest.Must(t, admin.Bootstrap(t.Context(), locktest.Open(t, addrs)))
	clients := clientsOf(t, nodes)
	const key = redlock.DefaultKeyPrefix + inspected
	set := func(i int, value string, ttl time.Duration) {
		t.Helper()
		locktest.Must(t, clients[i].Set(t.Context(), key, value, ttl).Err())
	}
	set(0, "a|1000", time.Minute)
	in, err := inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictMinority)
	if in.Token != "a" || in.Fence != 0 {
		t.Errorf("got %+v, want a, which has no quorum to have a fencing token from", in)
	}
	set(1, "b|2000", time.Minute)
	in, err = inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictSplit)
	set(2, "b|0", 0)
	in, err = inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictHeld)
	if in.Token != "b" || in.Fence != 0 || in.Masters[2].TTL >= 0 {
		t.Errorf("got %+v, want b, and for ever on the last", in)
	}
	for i := range nodes {
		set(i, "redsync", time.Minute)
	}
	in, err = inspection(t, addrs)
	wantVerdict(t, in, err, admin.VerdictHeld)
	if in.Token != "redsync" || in.Fence != 0 {
		t.Errorf("got %+v, want the value of another library", in)
	}
	for _, value := range []string{"", "|5", "~readers|7", "~unowned|0"} { // with no id
		for i := range nodes {
			set(i, value, time.Minute)
		}
		in, err = inspection(t, addrs)
		wantVerdict(t, in, err, admin.VerdictHeld)
		l := locktest.Open(t, addrs)
		if _, err := l.TryLock(t.Context(), inspected); !errors.Is(err, redlock.ErrTaken) {
			t.Errorf("%q: got %v, want ErrTaken", value, err)
		}
		if names, err := listed(t, l); err != nil || len(names) != 1 {
			t.Errorf("%q: got %v, %v, want it listed", value, names, err)
		}
		in, err = admin.Break(t.Context(), l, inspected)
		wantVerdict(t, in, err, admin.VerdictHeld)
		in, err = inspection(t, addrs)
		wantVerdict(t, in, err, admin.VerdictBroken)
	}
	locktest.Must(t, clients[0].Del(t.Context(), key).Err())
	locktest.Must(t, clients[0].HSet(t.Context(), key, "a", "b").Err())
	if in, err = inspection(t, addrs); err != nil || !errors.Is(in.Masters[0].Err, reason.WrongType) {
		t.Errorf("got %+v, %v; want %v of the first", in, err, reason.WrongType)
	}
}

func clientsOf(t testing.TB, nodes []*masters.Process) (list []*redis.Client) {
	for _, n := range nodes {
		list = append(list, redistest.Client(t, n.Addr()))
	}
	return list
}

func TestVerdictNames(t *testing.T) {
	for v, want := range map[admin.Verdict]string{
		admin.VerdictUnknown: "UNKNOWN", admin.VerdictFree: "FREE", admin.VerdictHeld: "HELD", admin.VerdictSplit: "SPLIT",
		admin.VerdictMinority: "MINORITY", admin.VerdictQuarantined: "QUARANTINED", admin.VerdictBroken: "BROKEN", admin.VerdictShared: "SHARED", -1: "Verdict(-1)", 8: "Verdict(8)",
	} {
		if got := v.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if text, err := json.Marshal(v); err != nil || string(text) != strconv.Quote(want) {
			t.Errorf("in JSON: got %s, %v; want %q", text, err, want)
		}
	}
}
