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

// BenchmarkLeases measures what it costs one process to hold many leases, for several round-trip
// times to three masters: leases with a TTL of 10 s are held and renewed for 20 s (10 s with -short). The metrics are
// the time to lock them all, the processor time of the client and of the masters and the bytes to
// the masters, each for a second of holding, the memory of a lease, and how many leases were lost:
//
//	go test -run '^$' -bench Leases -benchtime 1x -timeout 30m .
func BenchmarkLeases(b *testing.B) {
	procs := votingMasters(b)
	servers, err := measure.NewServers(b.Context(), redistest.Addrs(procs))
	if err != nil {
		b.Fatal(err)
	}
	defer servers.Close()
	for _, roundTrip := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		for _, leases := range []int{10_000, 100_000} {
			b.Run(fmt.Sprintf("rtt=%v/leases=%d", roundTrip, leases), func(b *testing.B) {
				hold(b, over(b, procs, roundTrip), servers, fmt.Sprintf("%v:%d", roundTrip, leases), leases)
			})
		}
	}
}

// hold locks resources, holds the leases for 20 s, and unlocks them.
func hold(b *testing.B, l *redlock.Locker, servers *measure.Servers, name string, leases int) {
	during := 20 * time.Second
	if testing.Short() {
		during = contender.TTL
	}
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
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for range b.N {
		empty, began := memory(), time.Now()
		each(func(i int) {
			held[i], _ = l.Lock(b.Context(), fmt.Sprint(name, ":", i)) // nil if it failed, which is counted as lost
		})
		filled := time.Since(began)
		full := memory()
		var cpu time.Duration
		used, err := servers.During(b.Context(), nil, func() error {
			cpu = measure.CPUTime()
			time.Sleep(during) // the leases are renewed meanwhile
			cpu = measure.CPUTime() - cpu
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
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
		b.ReportMetric(filled.Seconds(), "fill-s")
		b.ReportMetric(cpu.Seconds()/during.Seconds(), "client-cores")
		b.ReportMetric(used.CPU.Seconds()/during.Seconds(), "masters-cores")
		b.ReportMetric(float64(used.Bytes)/during.Seconds()/1e6, "MB/s")
		b.ReportMetric(float64(full-empty)/float64(leases), "B/lease")
		b.ReportMetric(float64(lost), "lost")
	}
}
