package order_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// A process that had to wait for the key of another library leaves the resource free now and then. With a
// prefix of its own, and no such key, it does not.
//
// Source: ALGORITHM section 10, "Other libraries".
func TestVirtualRoomForAnotherLibrary(t *testing.T) {
	for _, met := range []bool{false, true} {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			value := "MTIzNDU2Nzg5MGFiY2RlZg==" // as redsync sets it
			if !met {
				value += "|0"
			}
			b.All(func(n *virtual.Node) { n.Put(redlock.DefaultKeyPrefix+"r", value, 200*time.Millisecond) })
			b.Unlock(b.Got(b.Wait(t.Context(), l)))
			longest := time.Duration(0)
			for range 100 {
				start := time.Now()
				lease := b.Got(b.Wait(t.Context(), l))
				longest = max(longest, time.Since(start))
				time.Sleep(5 * time.Millisecond)
				b.Unlock(lease)
				synctest.Wait()
			}
			if paused := longest > 30*time.Millisecond; paused != met {
				t.Errorf("another library met %v: the longest wait for a free resource was %v", met, longest)
			}
		})
	}
}
