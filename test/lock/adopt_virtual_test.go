package lock_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// A key that a renewal has filled, or that a late acquire has set with a larger counter, is no grant of its lease.
func TestAdoptWhatAnotherHad(t *testing.T) {
	const fill = true
	type held struct {
		blocks int64 // of the counter, behind that of the lease
		fill   bool
	}
	for name, nodes := range map[string][3]held{
		"the keys were filled":  {{1, fill}, {1, fill}, {1, fill}},
		"an acquire comes late": {{0, !fill}, {1, fill}, {2, !fill}},
	} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			le := locktest.HandOn(b, moved)
			l := b.WarmLocker()
			var before [3]string
			for i, n := range b.Nodes {
				counter := le.Fence() + 63 + 64*nodes[i].blocks
				before[i] = fmt.Sprintf("%s|%d", le.Token(), counter)
				if nodes[i].fill {
					before[i] = le.Token() + "|0"
				}
				n.Put("redlock:"+moved, before[i], time.Minute)
				n.Put("redlock:"+moved+"~fence", strconv.FormatInt(counter, 10), time.Minute)
			}
			_, err := l.Adopt(t.Context(), le.Handle())
			locktest.WantMatch(t, "Adopt", err, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum)
			for i, n := range b.Nodes {
				if got := n.Value(moved); got != before[i] {
					t.Errorf("node %d: got %q, want %q as before", i, got, before[i])
				}
			}
		})
	}
}

// A fencing token that no lease can have is refused before it is written anywhere. The clocks of
// the nodes decide that, not the local clock.
//
// Source: ALGORITHM section 4, "MaxAhead", and section 6.
func TestAdoptWithAFenceFromTheFuture(t *testing.T) {
	const most = 6150 * time.Millisecond // MaxSkew, half a quarantine of 10.3 s, plus 1 s
	for _, test := range []struct {
		name  string
		ahead time.Duration // of the median clock
		step  time.Duration // of one node's clock
		want  error
	}{
		{name: "as far as can be", ahead: most - time.Millisecond},
		{name: "further", ahead: most + 10*time.Millisecond, want: redlock.ErrConfig},
		{name: "a year", ahead: 365 * 24 * time.Hour, want: redlock.ErrConfig},
		{name: "292 years", ahead: math.MaxInt64, want: redlock.ErrConfig},
		{name: "a day, and one node's clock is there", ahead: 24 * time.Hour, step: 24 * time.Hour, want: redlock.ErrConfig},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			b.Nodes[2].RunClock(1, test.step)
			token := locktest.NewID()
			before := token + "|0" // filled: the counter is not known from it
			l := b.Locker()
			b.All(func(n *virtual.Node) { n.Put("redlock:"+moved, before, time.Minute) })
			fence := time.Now().UnixMicro() + min(test.ahead.Microseconds(), math.MaxInt64-time.Now().UnixMicro())
			le, err := l.Adopt(t.Context(), locktest.Handle(moved, token, fence))
			if test.want == nil {
				if err != nil || le.Fence() <= fence {
					t.Errorf("got %v, want a lease with a fence behind %d", err, fence)
				}
				return
			}
			locktest.WantMatch(t, "Adopt", err, []error{test.want}, redlock.ErrNotHeld)
			synctest.Wait()
			for i, n := range b.Nodes {
				if got := n.Get("redlock:" + moved + "~fence"); got != "" || n.Seen("adopt", moved) > 0 || n.Value(moved) != before {
					t.Errorf("node %d: got %q, counter %q, %d adopts; want it as it was", i, n.Value(moved), got, n.Seen("adopt", moved))
				}
			}
		})
	}
}
