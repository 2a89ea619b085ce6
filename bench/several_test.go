package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/several"
)

// BenchmarkSeveral measures one goroutine that locks and unlocks some free resources, all at once and
// one after the other.
func BenchmarkSeveral(b *testing.B) {
	addrs := redistest.Addrs(redistest.Masters(b, 3))
	l, err := redlock.New(addrs)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if err := admin.Bootstrap(b.Context(), l); err != nil {
		b.Fatal(err)
	}
	for _, k := range []int{1, 2, 8} {
		var names []string
		for i := range k {
			names = append(names, fmt.Sprint("part:", i))
		}
		b.Run(fmt.Sprintf("resources=%d/how=several", k), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				m, err := several.Lock(b.Context(), l, several.Names{Write: names})
				if err == nil {
					err = m.Unlock(context.Background())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("resources=%d/how=one-by-one", k), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				var leases []*redlock.Lease
				for _, n := range names {
					lease, err := l.Lock(b.Context(), n)
					if err != nil {
						b.Fatal(err)
					}
					leases = append(leases, lease)
				}
				for _, lease := range leases {
					if err := lease.Unlock(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
