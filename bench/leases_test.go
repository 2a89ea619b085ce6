package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkLeases measures what it costs one process to hold many leases with a TTL of 10 s over three masters. They
// are held and renewed for 20 s, or for 5 s with -quick. cores are of that time.
func BenchmarkLeases(b *testing.B) {
	during := 2 * contender.TTL
	sizes := []int{10_000, 100_000}
	if *quick {
		during, sizes = contender.TTL/2, sizes[:1]
	}
	addrs := redistest.Addrs(redistest.Masters(b, 3))
	servers, err := measure.NewServers(b.Context(), addrs)
	must(b, err)
	defer servers.Close()
	for _, leases := range sizes {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			l := newLocker(b, addrs, redlock.WithTTL(contender.TTL))
			rounds(b, 2, contender.Named("ours"), func(b *testing.B, _ contender.Contender) {
				hold(b, l, servers, leases, during)
			})
		})
	}
}

// hold locks resources, holds the leases for a while, and unlocks them.
func hold(b *testing.B, l *redlock.Locker, servers *measure.Servers, leases int, during time.Duration) {
	held := make([]*redlock.Lease, leases)
	each := func(do func(i int)) {
		var working sync.WaitGroup
		for w := range 512 {
			working.Go(func() {
				for i := w; i < leases; i += 512 {
					do(i)
				}
			})
		}
		working.Wait()
	}
	memory := func() float64 { // the heap and the stacks in use
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	empty := memory()
	each(func(i int) {
		held[i], _ = l.Lock(b.Context(), fmt.Sprint("lease:", i)) // nil if it failed, which is counted as lost
	})
	full := memory()
	var cpu time.Duration
	used, err := servers.During(b.Context(), nil, func() {
		cpu = measure.CPU(func() { time.Sleep(during) }) // the leases are renewed meanwhile
	})
	must(b, err)
	lost := 0
	for _, lease := range held {
		if lease == nil || lease.Context().Err() != nil {
			lost++
		}
	}
	each(func(i int) {
		if held[i] != nil {
			_ = held[i].Unlock(context.Background()) // a lost lease returns an error
		}
	})
	report(b, map[string]float64{
		"ns/op": 0, "client-cores": cpu.Seconds() / during.Seconds(), "masters-cores": used.CPU.Seconds() / during.Seconds(),
		"MB/s": float64(used.Bytes) / during.Seconds() / 1e6, "B/lease": (full - empty) / float64(leases), "lost": float64(lost),
	})
}
