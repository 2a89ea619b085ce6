package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
)

// What is compared has to work, and to clean up.
func TestContenders(t *testing.T) {
	for _, c := range contenders() {
		t.Run(c.name, func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, 3))
			cr := newCrew(dial(t, c, addrs), c.name, 8)
			if done := cr.run(t.Context(), 200, time.Minute); done != 200 {
				t.Errorf("got %d cycles done, want 200", done)
			}
			s := cr.summary()
			if s.failed > 0 {
				t.Errorf("%d cycles failed, one of them with: %v", s.failed, s.err)
			}
			if got := s.cycle.TotalCount(); got != 200 {
				t.Errorf("got %d latencies, want 200", got)
			}
			if c.name == "redsync-failfast" {
				return // it gives some nodes up without a release
			}
			for _, addr := range addrs {
				client := redistest.Client(t, addr)
				redistest.Eventually(t, 5*time.Second, func() bool { return len(locks(t, client)) == 0 },
					"no lock is left on "+addr)
			}
		})
	}
}

// locks are the keys on a node that are no fencing counters, and not the marker.
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

func TestFloorNeedsAQuorum(t *testing.T) {
	list := redistest.Masters(t, 3)
	f, err := dialFloor(redistest.Addrs(list))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for taken, want := range []error{nil, nil, errFloorRefused, errFloorRefused} {
		if taken > 0 {
			c := redistest.Client(t, list[taken-1].Addr())
			if err := c.Set(t.Context(), "k", "another", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := f.Cycle(t.Context(), "k"); !errors.Is(err, want) {
			t.Errorf("taken on %d of 3: got %v, want %v", taken, err, want)
		}
	}
	for down, want := range []error{nil, nil, errFloorRefused, errFloorRefused} {
		if down > 0 {
			if err := list[down-1].Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := f.Cycle(t.Context(), "free"); !errors.Is(err, want) {
			t.Errorf("%d of 3 down: got %v, want %v", down, err, want)
		}
	}
}

func TestFloorHeedsItsContext(t *testing.T) {
	list := redistest.Masters(t, 1)
	f, err := dialFloor(redistest.Addrs(list))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := list[0].Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := f.Cycle(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
}
