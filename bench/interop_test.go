package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// This file tests what docs/migrating.md says of shared keys.

// kind is a library that meets another one on the same keys.
type kind struct {
	contender.Locker
	name  string
	try   func(ctx context.Context, resource string) (contender.Lease, error) // does not wait
	taken func(error) bool                                                    // whether an error says that the resource is taken
}

func oursKind(t testing.TB, addrs []string, opts ...redlock.Option) kind {
	t.Helper()
	l := newLocker(t, addrs, opts...)
	return kind{
		Locker: contender.Ours(l), name: "ours",
		try: func(ctx context.Context, resource string) (contender.Lease, error) {
			return leased(l.TryLock(ctx, resource))
		},
		taken: func(err error) bool { return errors.Is(err, redlock.ErrTaken) },
	}
}

func redsyncKind(t testing.TB, addrs []string) kind {
	t.Helper()
	// Its default delay of 50 to 250 ms would leave it few chances between the other kind's attempts.
	r := contender.NewRedsync(addrs, redis.Options{}, redsync.WithRetryDelay(2*time.Millisecond), redsync.WithTries(1<<20))
	t.Cleanup(func() { _ = r.Close() })
	return kind{
		Locker: r, name: "redsync",
		try: func(ctx context.Context, resource string) (contender.Lease, error) {
			m := r.Mutex(resource)
			return m, m.TryLockContext(ctx)
		},
		taken: func(err error) bool {
			var taken *redsync.ErrTaken
			return errors.As(err, &taken)
		},
	}
}

func redislockKind(t testing.TB, addr string) kind {
	t.Helper()
	c := contender.Named("redislock")[0]
	l := dial(t, c, []string{addr})
	return kind{
		Locker: l, name: "redislock",
		try: func(ctx context.Context, resource string) (contender.Lease, error) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // shorter than its pause
			defer cancel()
			return l.Lock(ctx, resource)
		},
		taken: func(err error) bool {
			return errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded)
		},
	}
}

// oneAtATime lets two kinds have a resource in turns, and each ask for it while the other one has it.
func oneAtATime(t testing.TB, one, other kind) {
	t.Helper()
	ctx := t.Context()
	const resource = "orders/42"
	for round := range 20 {
		for _, k := range [][2]kind{{one, other}, {other, one}} {
			first, second := k[0], k[1]
			lease, err := first.try(ctx, resource)
			if err != nil {
				t.Fatalf("round %d: %s: got %v for a free resource", round, first.name, err)
			}
			if _, err := second.try(ctx, resource); err == nil || !second.taken(err) {
				t.Fatalf("round %d: %s while %s holds: got %v, want that it is taken", round, second.name, first.name, err)
			}
			if err := lease.Unlock(ctx); err != nil {
				t.Fatalf("round %d: %s: unlock: %v", round, first.name, err)
			}
		}
	}
}

func TestOneAtATime(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, n := range []int{3, 5} {
		addrs := redistest.Addrs(redistest.Masters(t, n))
		oneAtATime(t, oursKind(t, addrs, redlock.WithKeyPrefix("")), redsyncKind(t, addrs))
	}
}

// redislock uses one Redis alone, and this library uses it together with a second one: a
// quorum of two is both, including the first. With three, a quorum can do without the first.
func TestRedislockOneAtATime(outer *testing.T) {
	t := redistest.Timed(outer)
	for n := 1; n <= 3; n++ {
		addrs := redistest.Addrs(redistest.Masters(t, n))
		us, they := oursKind(t, addrs, redlock.WithKeyPrefix("")), redislockKind(t, addrs[0])
		if n < 3 {
			oneAtATime(t, us, they)
			continue
		}
		if _, err := they.try(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := us.try(t.Context(), "a"); err != nil {
			t.Errorf("got %v, want a second holder: so docs/migrating.md has it", err)
		}
	}
}

// rueidislock has several keys on one Redis, and none of them has the name of one of ours.
func TestRueidislockSharesNoKeys(outer *testing.T) {
	t := redistest.Timed(outer)
	addrs := redistest.Addrs(redistest.Masters(t, 1))
	_, unlock, err := rueidisLocker(t, addrs[0]).WithContext(t.Context(), "a")
	must(t, err)
	defer unlock()
	for _, key := range []string{"rueidislock:0:a", "rueidislock:1:a"} {
		if n := redistest.Client(t, addrs[0]).Exists(t.Context(), key).Val(); n != 1 {
			t.Errorf("got no key %q, want it, as docs/migrating.md says", key)
		}
	}
	free, err := oursKind(t, addrs, redlock.WithKeyPrefix("")).try(t.Context(), "a")
	if err != nil {
		t.Fatalf("got %v, want a second holder: so docs/migrating.md has it", err)
	}
	if err := free.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestExclusion has twelve callers of each kind work on three resources. As a control, with different keys the
// two kinds do not exclude each other, which must show.
func TestExclusion(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, test := range []struct {
		name     string
		masters  int
		opts     []redlock.Option
		excludes bool
	}{
		{"N=3", 3, []redlock.Option{redlock.WithKeyPrefix("")}, true},
		{"N=5", 5, []redlock.Option{redlock.WithKeyPrefix("")}, true},
		{"control: other keys", 3, nil, false},
	} {
		t.Run(test.name, func(t *redistest.T) {
			const callers, enough = 12, 300
			addrs := redistest.Addrs(redistest.Masters(t, test.masters))
			load := measure.Load{
				Lockers: []contender.Locker{oursKind(t, addrs, test.opts...), redsyncKind(t, addrs)}, Callers: callers,
				Key:  func(c *measure.Caller) string { return fmt.Sprint("r", c.IntN(3)) },
				Hold: 200 * time.Microsecond, For: 500 * time.Millisecond, Exclusive: true,
			}
			overlaps, falls := 0, 0
			var turns [2]int
			for end := time.Now().Add(time.Minute); min(turns[0], turns[1]) < enough; {
				if time.Now().After(end) {
					t.Fatalf("got %d turns of ours and %d of redsync within a minute, want %d", turns[0], turns[1], enough)
				}
				r := load.Run(t.Context())
				if r.Err != nil && !errors.Is(r.Err, redlock.ErrNoQuorum) { // a release that is repeated: the machine is busy
					t.Fatal(r.Err)
				}
				overlaps, falls = overlaps+r.Overlaps, falls+r.Falls
				for caller, n := range r.Turns {
					turns[caller/callers] += n
				}
			}
			if (overlaps == 0) != test.excludes || falls > 0 {
				t.Errorf("got %d overlaps in %d turns, and %d tokens that did not rise", overlaps, turns, falls)
			}
		})
	}
}
