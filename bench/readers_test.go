package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkReaders measures callers of which one in 20 writes, and the others read, beside callers that
// all lock exclusively. Each of 4 Lockers has 8 callers that hold one resource for a while. It also
// measures one reader alone, beside one writer alone.
func BenchmarkReaders(b *testing.B) {
	lockers := newLockers(b, 4)
	for _, how := range []struct {
		name string
		mode []redlock.LockOption
	}{{"shared", []redlock.LockOption{redlock.Shared()}}, {"exclusive", nil}} {
		b.Run("alone/how="+how.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				visit(b, lockers[0], 0, how.mode...)
			}
		})
		for _, work := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
			b.Run(fmt.Sprintf("1-in-20-writes/hold=%v/how=%s", work, how.name), func(b *testing.B) {
				var turns sync.WaitGroup
				left := make(chan int, b.N)
				for i := range b.N {
					left <- i
				}
				close(left)
				for i, l := range lockers {
					for k := range 8 {
						rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
						turns.Go(func() {
							for range left {
								if rng.IntN(20) == 0 {
									visit(b, l, work)
								} else {
									visit(b, l, work, how.mode...)
								}
							}
						})
					}
				}
				turns.Wait()
			})
		}
	}
}

// visit locks a resource, holds it for a while and unlocks it.
func visit(b *testing.B, l *redlock.Locker, work time.Duration, mode ...redlock.LockOption) {
	lease, err := l.Lock(b.Context(), "book", mode...)
	if err == nil {
		time.Sleep(work)
		err = lease.Unlock(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
}

// newLockers returns n Lockers of the same three masters, as n processes have them.
func newLockers(b *testing.B, n int) []*redlock.Locker {
	b.Helper()
	addrs := redistest.Addrs(votingMasters(b))
	lockers := make([]*redlock.Locker, n)
	for i := range lockers {
		lockers[i] = newLocker(b, addrs)
	}
	return lockers
}

// newLocker returns a Locker that ends with the benchmark.
func newLocker(b *testing.B, addrs []string) *redlock.Locker {
	b.Helper()
	l, err := redlock.New(addrs)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}
