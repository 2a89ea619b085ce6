package lock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// Clocks of nodes may drift by less than half the drift allowance, and may be set to anything.
//
// Source: ALGORITHM section 1, A1; section 9.
func TestVirtualClocksOfNodes(t *testing.T) {
	locktest.Subtest(t, "an hour without a word makes no request late", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithTTL(50 * time.Millisecond)) // a node timeout of 5 ms
		b.All(func(n *virtual.Node) { n.RunClock(1.004, 0) })
		time.Sleep(time.Hour)
		lease, err := l.TryLock(t.Context(), "r")
		locktest.Must(t, err)
		b.Unlock(lease)
	})
	locktest.Subtest(t, "a step of all costs one attempt at most", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		for name, step := range map[string]time.Duration{"back": -time.Hour, "ahead": time.Hour} {
			b.All(func(n *virtual.Node) { n.RunClock(1, step) })
			lease, err := l.TryLock(t.Context(), name)
			if err == nil { // the second reply showed that all had stepped before the first was counted
				b.Unlock(lease)
			} else {
				locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum})
			}
			b.WantHolding(name)
			start := time.Now()
			lease, err = l.Lock(t.Context(), name)
			locktest.Must(t, err)
			locktest.WantSince(t, "Lock", start, 0)
			b.Unlock(lease)
		}
	})
}

// A caller hands its lease to the next one of its process: that has a larger token and at least half of its TTL, and
// the first one has nothing. With a rule of hand-overs left out the test notices.
//
// Source: ALGORITHM section 10, "In one process"; section 13, I1, I2 and "Negative controls".
func TestVirtualHandOverControls(t *testing.T) {
	for way, want := range map[string]string{
		"none": "", "sameToken": "I2 ", "keepsHandle": "works after ", "lateHandOver": "granted with ",
	} {
		t.Run(way, func(t *testing.T) {
			if want != "" {
				inject.Rules(t, way)
			}
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				seen := locktest.NewBook()
				l := b.WarmLocker(redlock.WithoutRenewal())
				take := func() (*redlock.Lease, error) {
					return seen.Take("r", true, func() (*redlock.Lease, error) { return l.Lock(t.Context(), "r") })
				}
				var problems []string
				handed := 0
				for _, hold := range []time.Duration{0, locktest.TTL * 6 / 10} {
					first, err := take()
					locktest.Must(t, err)
					work := first.Context()
					w := locktest.Begin(take)
					time.Sleep(hold)
					locktest.Must(t, seen.Free(t.Context(), first))
					next := b.Got(w)
					if next.Token() == first.Token() {
						handed++
					}
					if work.Err() == nil {
						problems = append(problems, "works after Unlock")
					}
					if left := next.Validity(); left < locktest.TTL/2 {
						problems = append(problems, fmt.Sprintf("granted with %v left", left))
					}
					_ = seen.Free(t.Context(), next)
				}
				problems = append(problems, seen.Problems()...)
				found := slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want) })
				if handed == 0 || found == (want == "") {
					t.Errorf("got the problems %q and %d hand-overs, want %q and some", problems, handed, want)
				}
			})
		})
	}
}
