package measure

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
)

// Crowd is a number of leases that are all held for a while.
type Crowd struct {
	Name   string // is in the keys
	Leases int
	For    time.Duration // how long they are held once all are
	Renew  bool          // the contender does not, so that each gets a goroutine that does
}

// Held is what a crowd cost.
type Held struct {
	Filled time.Duration // until all were held
	CPU    time.Duration // while they were
	For    time.Duration // how long that was, on the clock
	Memory int64         // bytes in use for them: heap and stacks, after a collection
	RSS    int64         // by which the process has grown
	Lost   int           // could not be unlocked in the end
	Err    string        // one of the failures
}

// callers is how many take the leases, and give them back.
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

// renew extends a lease three times in a TTL, as the others do by themselves.
func renew(ctx context.Context, lease contender.Lease) {
	tick := time.NewTicker(contender.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = lease.Extend(ctx) // if it is lost, Unlock tells
		case <-ctx.Done():
			return
		}
	}
}

// inParallel calls do for each of n and returns one of the errors.
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

// memoryInUse is what heap and stacks have in use.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
