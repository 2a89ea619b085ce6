package lock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkLockUnlock measures a cycle of Lock and Unlock on N real masters. Each goroutine has a
// resource of its own. bench/ compares it with other libraries.
func BenchmarkLockUnlock(b *testing.B) {
	for _, n := range []int{1, 3, 5, 7} {
		l := locktest.Open(b, locktest.Start(b, n).Addrs)
		for _, g := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("N=%d/g=%d", n, g), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var workers sync.WaitGroup
				for w := range g {
					resource := fmt.Sprint("r", w)
					workers.Go(func() {
						for left.Add(-1) >= 0 {
							le, err := l.Lock(b.Context(), resource)
							if err == nil {
								err = le.Unlock(b.Context())
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				workers.Wait()
			})
		}
	}
}

// A cycle of Lock and Unlock on three masters makes nine allocations. A few more may come from what goes on beside it.
func TestAllocations(outer *testing.T) {
	t := redistest.Timed(outer)
	l := locktest.Open(t, locktest.Start(t, 3).Addrs)
	if got := testing.AllocsPerRun(500, func() { locktest.Must(t, locktest.Lock(t, l, "r").Unlock(t.Context())) }); got > 16 {
		t.Errorf("got %v allocations, want at most 16", got)
	}
}
