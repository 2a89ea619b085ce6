package lock_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// An impossible counter in a master's reply is not believed, and reaches no other master.
//
// Source: ALGORITHM section 4.
func TestVirtualGrantThatIsNotBelieved(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithLogger(nil))
		defer l.Close() // before the script is as it was again
		inject.Script(t, func(script string) string {
			return strings.Replace(script, "if code ~= 1 then counter = 0 end", "counter = 9e18", 1)
		})
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNoQuorum}, reason.WrongType, redlock.ErrTaken)
		ahead := 0
		for i, n := range b.Nodes {
			said := locktest.RefusedBy(b, i, err)
			if strings.Contains(said, "ahead") {
				ahead++
			} else if said != "" && !strings.Contains(said, "by the time it was decided") {
				t.Errorf("node %d: got %q, want what is wrong with its counter", i, said)
			}
			if got := n.CallsOf("raise", "r"); len(got) > 0 {
				t.Errorf("node %d: got %d raised counters, want none", i, len(got))
			}
		}
		if ahead == 0 {
			t.Errorf("got %v, want a master whose counter is ahead", err)
		}
	})
}

// A client whose MaxTTL is larger than all TTLs that it asks for has no counter started further ahead of a master's clock
// than the masters count on after a restart.
//
// Source: ALGORITHM section 4, "A counter that came back".
func TestVirtualCounterOfAClockBehind(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const behind = 20 * time.Second
		b.Nodes[2].RunClock(1, -behind)
		l := b.WarmLocker(redlock.WithMaxTTL(time.Minute))
		for range 2 {
			b.Unlock(b.Lock(l, "r"))
		}
		b.Nodes[2].Inside(func(r *miniredis.Miniredis, now time.Time) {
			most := now.Add(node.MaxSkew(redlock.DefaultTTL, redlock.DefaultDrift) + time.Second).UnixMicro()
			text, _ := r.Get(redlock.DefaultKeyPrefix + "r~fence") // an error is that of a counter which is missing
			if counter, _ := strconv.ParseInt(text, 10, 64); counter > most {
				t.Errorf("got a counter of %d on a clock %v behind, want none above %d", counter, behind, most)
			}
		})
	})
}
