package guard_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
)

// A lease with a TTL of a minute counts for clients that expect ten seconds, until the last such lease must be over.
//
// Source: ALGORITHM section 8, "MaxTTL".
func TestVirtualLargerTTLIsForgotten(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		b.Vouch()
		large, usual := b.WarmLocker(redlock.WithMaxTTL(time.Minute)), b.WarmLocker()
		want := func(longest string) {
			t.Helper()
			b.Unlock(b.Lock(usual, "other"))
			b.Nodes[0].Inside(func(r *miniredis.Miniredis, _ time.Time) {
				if got := r.HGet(redlock.DefaultKeyPrefix+"~guard", "maxttl"); got != longest {
					t.Errorf("got %s ms for the largest TTL, want %s", got, longest)
				}
			})
		}
		want("10000")
		lease := b.Lock(large, "r", redlock.WithTTL(time.Minute))
		for range 10 {
			want("60000")
			time.Sleep(time.Minute) // it is renewed
		}
		b.Unlock(lease)
		want("60000")
		time.Sleep(55 * time.Second)
		want("60000") // the last renewal was up to 20 s before
		time.Sleep(25 * time.Second)
		want("10000")
	})
}
