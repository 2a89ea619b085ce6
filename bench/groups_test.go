package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/sharded"
)

// BenchmarkGroups measures locking and unlocking free resources with 256 goroutines over several
// groups of three masters. The processor time of client and masters is that of one cycle: the
// masters of this machine share its processors, so the locks a second can rise here only as long
// as processors are idle. With REDLOCK_QUOTA=5 each master gets at most 5 % of a processor, as if it had a
// slow machine of its own, and the locks a second show what more groups add. That takes root on Linux.
func BenchmarkGroups(b *testing.B) {
	const most = 4
	procs := redistest.Masters(b, 3*most)
	addrs := redistest.Addrs(procs)
	if text := os.Getenv("REDLOCK_QUOTA"); text != "" {
		percent, err := strconv.Atoi(text)
		if err != nil || percent < 5 || percent > 100 {
			b.Fatalf("REDLOCK_QUOTA=%s: must be from 5 to 100", text)
		}
		var pids []int
		for _, p := range procs {
			pids = append(pids, p.Pid())
		}
		limit(b, percent, pids)
	}
	for _, k := range []int{1, 2, most} {
		b.Run(fmt.Sprintf("groups=%d", k), func(b *testing.B) {
			var groups [][]string
			for i := range k {
				groups = append(groups, addrs[3*i:3*i+3])
			}
			l, err := sharded.New(groups, redlock.WithKeyPrefix(fmt.Sprintf("groups-%d:", k)))
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			for _, g := range l.Groups() {
				if err := admin.Bootstrap(b.Context(), g); err != nil {
					b.Fatal(err)
				}
			}
			servers, err := measure.NewServers(b.Context(), addrs[:3*k])
			if err != nil {
				b.Fatal(err)
			}
			defer servers.Close()
			cycles(b, l, 2048) // warm up
			var cpu time.Duration
			b.ReportAllocs()
			used, err := servers.During(b.Context(), nil, func() error {
				cpu = measure.CPUTime()
				b.ResetTimer()
				cycles(b, l, b.N)
				b.StopTimer()
				cpu = measure.CPUTime() - cpu
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
			b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N), "client-us")
			b.ReportMetric(float64(used.CPU.Nanoseconds())/1e3/float64(b.N), "masters-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cycles locks and unlocks n times, each of 256 goroutines a resource of its own.
func cycles(b *testing.B, l *sharded.Locker, n int) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var working sync.WaitGroup
	for g := range 256 {
		working.Go(func() {
			resource := fmt.Sprint("own:", g)
			for left.Add(-1) >= 0 {
				lease, err := l.Lock(b.Context(), resource)
				if err == nil {
					err = lease.Unlock(context.Background())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
}
