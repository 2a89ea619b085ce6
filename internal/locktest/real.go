package locktest

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// Open returns a Locker, which is closed when the test ends.
func Open(t testing.TB, addrs []string, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(addrs, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // some tests leave nothing to confirm a release
	return l
}

// Masters starts n real masters that have their votes. It skips the test where there is no
// redis-server.
func Masters(t testing.TB, n int) []*masters.Process {
	t.Helper()
	list := redistest.Masters(t, n)
	Bootstrap(t, redistest.Addrs(list))
	for _, m := range list {
		Vouch(t, redistest.Client(t, m.Addr()))
	}
	return list
}

// Bootstrap has new masters vote at once, as far as the tests' Lockers are concerned. It
// must not raise the largest TTL of those.
func Bootstrap(t testing.TB, addrs []string, opts ...redlock.Option) {
	t.Helper()
	opts = append([]redlock.Option{redlock.WithTTL(redlock.MinTTL), redlock.WithMaxTTL(redlock.MinTTL), redlock.WithMasterTimeout(12 * time.Millisecond)}, opts...)
	l, err := redlock.New(addrs, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for err = errors.New("not tried"); err != nil && t.Context().Err() == nil; {
		err = admin.Bootstrap(t.Context(), l) // under load a master may be too late
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Vouch has masters vote, whatever became of Bootstrap: a master that was too late for it on a
// busy machine has sat out the quarantine of Bootstrap's Locker, but not that of others.
func Vouch(t testing.TB, nodes ...*redis.Client) {
	t.Helper()
	for _, n := range nodes {
		if err := n.HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "born", 0, "servers", "").Err(); err != nil {
			t.Fatal(err)
		}
	}
}
