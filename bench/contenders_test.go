package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// Every contender works, and cleans up.
func TestContenders(t *testing.T) {
	for _, c := range contender.All() {
		t.Run(c.Name, func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, c.Masters(3)))
			size := 8
			if c.Name == "rueidislock" {
				size = 1 // with more goroutines some of its calls may get stuck, see README.md
			}
			cr := measure.NewCrew(dial(t, c, addrs), c.Name, size, c.Extends)
			if done := cr.Run(t.Context(), 200, time.Minute, patience); done != 200 {
				t.Errorf("got %d cycles done, want 200", done)
			}
			s := cr.Summary()
			if s.Failed > 0 {
				t.Errorf("%d cycles failed, for example with: %s", s.Failed, s.Err)
			}
			if got := s.Cycle.Count(); got != 200 {
				t.Errorf("got %d latencies, want 200", got)
			}
			if c.Name == "redsync-failfast" {
				return // it gives up some nodes without a release
			}
			for _, addr := range addrs {
				client := redistest.Client(t, addr)
				redistest.Eventually(t, 5*time.Second, func() bool { return len(locks(t, client)) == 0 },
					"no lock is left on "+addr)
			}
		})
	}
}

// locks returns the keys of a node except fencing counters and the marker.
func locks(t *testing.T, client *redis.Client) []string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var locks []string
	for _, key := range keys {
		if !strings.HasSuffix(key, "~fence") && !strings.HasSuffix(key, "~guard") {
			locks = append(locks, key)
		}
	}
	return locks
}

// A contender that waits does so as long as another holder has the key, and excludes it.
func TestContendersExclude(t *testing.T) {
	for _, c := range contender.All() {
		if !c.Waits || c.Needs == contender.None { // one mutex does not know the other
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, c.Masters(3)))
			one, other := dial(t, c, addrs), dial(t, c, addrs)
			lease, err := one.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := other.Lock(ctx, "k"); err == nil || ctx.Err() == nil {
				t.Errorf("got %v while another has the key, and the context with %v: want that it waits", err, ctx.Err())
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if lease, err = other.Lock(t.Context(), "free"); err != nil {
				t.Fatal(err)
			}
			if err := lease.Extend(t.Context()); errors.Is(err, errors.ErrUnsupported) == c.Extends {
				t.Errorf("extend: got %v, want it to extend: %v", err, c.Extends)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
