package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
)

// A process that had to wait for the key of another library leaves the resource free now and then. With a
// prefix of its own, and no such key, it does not.
//
// Source: ALGORITHM section 10, "Other libraries".
func TestVirtualRoomForAnotherLibrary(t *testing.T) {
	for _, met := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, b *bubble) {
			l := b.warmLocker()
			value := "MTIzNDU2Nzg5MGFiY2RlZg==" // as redsync sets it
			if !met {
				value += "|0"
			}
			b.all(func(n *bubbleNode) { n.put(redlock.DefaultKeyPrefix+"r", value, 200*time.Millisecond) })
			b.unlock(b.got(b.wait(t.Context(), l)))
			longest := time.Duration(0)
			for range 100 {
				start := time.Now()
				lease := b.got(b.wait(t.Context(), l))
				longest = max(longest, time.Since(start))
				time.Sleep(5 * time.Millisecond)
				b.unlock(lease)
				synctest.Wait()
			}
			if paused := longest > 30*time.Millisecond; paused != met {
				t.Errorf("another library met %v: the longest wait for a free resource was %v", met, longest)
			}
		})
	}
}
