package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// The claims of docs/migrating.md about shared keys.

func redislockKind(t *testing.T, addr string) kind {
	t.Helper()
	c := redislock.New(redistest.Client(t, addr))
	try := func(ctx context.Context, resource string) (func(context.Context) error, error) {
		l, err := c.Obtain(ctx, resource, 10*time.Second, nil)
		if err != nil {
			return nil, err
		}
		return l.Release, nil
	}
	return kind{name: "redislock", lock: try, try: try, taken: func(err error) bool { return errors.Is(err, redislock.ErrNotObtained) }}
}

// redislock uses one Redis alone, and this library uses it together with a second one: a
// quorum of two is both, including the first.
func TestRedislockOneAtATime(t *testing.T) {
	for n := 1; n <= 2; n++ {
		addrs := redistest.Addrs(redistest.Masters(t, n))
		us, they := oursKind(t, addrs, redlock.WithKeyPrefix("")), redislockKind(t, addrs[0])
		oneAtATime(t, us, they)
		oneAtATime(t, they, us)
	}
}

// Control: with three masters a quorum can do without the first.
func TestRedislockWithThree(t *testing.T) {
	addrs := redistest.Addrs(redistest.Masters(t, 3))
	us, they := oursKind(t, addrs, redlock.WithKeyPrefix("")), redislockKind(t, addrs[0])
	if _, err := they.try(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := us.try(t.Context(), "a"); err != nil {
		t.Errorf("got %v, want a second holder: so docs/migrating.md has it", err)
	}
}

// rueidislock has several keys on one Redis, and none of them has the name of one of ours.
func TestRueidislockSharesNoKeys(t *testing.T) {
	addr := redistest.Addrs(redistest.Masters(t, 1))[0]
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, unlock, err := l.WithContext(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for _, key := range []string{"rueidislock:0:a", "rueidislock:1:a"} {
		if n := redistest.Client(t, addr).Exists(t.Context(), key).Val(); n != 1 {
			t.Errorf("got no key %q, want it, as docs/migrating.md says", key)
		}
	}
	free, err := oursKind(t, []string{addr}, redlock.WithKeyPrefix("")).try(t.Context(), "a")
	if err != nil {
		t.Fatalf("got %v, want a second holder: so docs/migrating.md has it", err)
	}
	if err := free(t.Context()); err != nil {
		t.Error(err)
	}
}
