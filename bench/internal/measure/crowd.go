package measure

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
)

// Crowd has leases that are all held for a while.
type Crowd struct {
	Name   string // part of the keys
	Leases int
	For    time.Duration // how long all leases are held
	Renew  bool          // extend each lease from a goroutine, as the contender does not renew
}

// Held is the cost of a crowd.
type Held struct {
	Filled time.Duration // until all leases were held
	CPU    time.Duration // while all leases were held
	For    time.Duration // how long that was
	Memory int64         // heap and stacks in bytes for the leases, after a collection
	RSS    int64         // growth of the process in bytes
	Lost   int           // leases that could not be unlocked at the end
	Err    string        // one of the errors
}

// callers is the number of goroutines that take the leases and give them back.
const callers = 32

// Run takes the leases, holds them and gives them back.
func (c Crowd) Run(ctx context.Context, l contender.Locker) (Held, error) {
	var h Held
	leases := make([]contender.Lease, c.Leases)
	memory, rss := memoryInUse(), residentSet()
	start := time.Now()
	renewals, stop := context.WithCancel(ctx)
	defer stop()
	var renewers sync.WaitGroup
	err := inParallel(c.Leases, func(i int) (err error) {
		leases[i], err = l.Lock(ctx, fmt.Sprintf("bench:%s:%d", c.Name, i))
		if err == nil && c.Renew {
			renewers.Go(func() { renew(renewals, leases[i]) })
		}
		return err
	})
	if err != nil {
		return h, err
	}
	h.Filled = time.Since(start)
	h.Memory = memoryInUse() - memory
	cpu, start := CPUTime(), time.Now()
	time.Sleep(c.For)
	h.For, h.CPU = time.Since(start), CPUTime()-cpu
	h.RSS = residentSet() - rss
	stop()
	renewers.Wait()
	var mu sync.Mutex
	_ = inParallel(c.Leases, func(i int) error {
		if err := leases[i].Unlock(ctx); err != nil {
			mu.Lock()
			defer mu.Unlock()
			h.Lost++
			h.Err = err.Error()
		}
		return nil
	})
	return h, nil
}

// renew extends a lease three times in a TTL, as contenders do that renew.
func renew(ctx context.Context, lease contender.Lease) {
	tick := time.NewTicker(contender.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = lease.Extend(ctx) // if the lease is lost, Unlock reports it
		case <-ctx.Done():
			return
		}
	}
}

// inParallel calls do for each of n, and returns one of the errors.
func inParallel(n int, do func(i int) error) error {
	errs := make(chan error, callers)
	for caller := range callers {
		go func() {
			for i := caller; i < n; i += callers {
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var failed error
	for range callers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

// memoryInUse returns the bytes of heap and stacks in use.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // collects objects that the first collection finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
