package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// Every contender works, and cleans up. A call of rueidislock may get stuck:
// then the rest of its turns proves nothing about it, and is left out.
func TestContenders(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, c := range contender.All() {
		t.Run(c.Name, func(t *redistest.T) {
			addrs := redistest.Addrs(redistest.Masters(t, 3))
			callers, stuck := 8, strings.HasPrefix(c.Name, "rueidislock")
			if stuck {
				callers = 1 // with more of them more calls get stuck
			}
			r := measure.Load{
				Lockers: []contender.Locker{dial(t, c, addrs)}, Callers: callers, Key: measure.Own("k"), Extend: c.Extends,
				Turns: 200, For: patience, Grace: time.Second,
			}.Run(t.Context())
			if stuck && r.Done() > 0 && errors.Is(r.Err, context.DeadlineExceeded) {
				t.Logf("a call got stuck after %d cycles", r.Done())
				return
			}
			if r.Done() != 200 || r.Failed > 0 {
				t.Errorf("got %d cycles, and %d calls failed with %v", r.Done(), r.Failed, r.Err)
			}
			if c.Name == "redsync-failfast" {
				return // it gives up some masters without a release
			}
			for _, addr := range c.On(addrs) {
				client := redistest.Client(t, addr)
				redistest.Eventually(t, 5*time.Second, func() bool {
					keys, err := client.Keys(t.Context(), "*").Result()
					for _, key := range keys {
						if !strings.HasSuffix(key, "~fence") && !strings.HasSuffix(key, "~guard") {
							return false
						}
					}
					return err == nil
				}, "no lock is left on "+addr)
			}
		})
	}
}

// A contender that waits does so as long as another holder has the key, and excludes it.
func TestContendersExclude(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, c := range contender.All() {
		if !c.Waits || c.Needs == contender.None { // one mutex does not know the other
			continue
		}
		t.Run(c.Name, func(t *redistest.T) {
			lockers := dials(t, c, redistest.Addrs(redistest.Masters(t, 3)), 2)
			lease, err := lockers[0].Lock(t.Context(), "k")
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := lockers[1].Lock(ctx, "k"); err == nil || ctx.Err() == nil {
				t.Errorf("got %v while another has the key, and the context with %v: want that it waits", err, ctx.Err())
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
