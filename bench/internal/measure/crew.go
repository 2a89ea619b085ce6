package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
)

// maxRecorders bounds the memory of a large crew: its histograms are shared.
const maxRecorders = 16

// Crew has goroutines that lock and unlock with one locker, each with a key of its own.
type Crew struct {
	locker    contender.Locker
	keys      []string
	extend    bool
	recorders []recorder
}

// recorder records the cycles of some goroutines.
type recorder struct {
	mu sync.Mutex
	Summary
}

// Summary sums up the cycles of a crew.
type Summary struct {
	Lock, Extend, Unlock, Cycle Latency

	Failed int
	Err    string        // one of the errors
	Last   time.Duration // from the start of Run until the last cycle without a failure
}

func newSummary() Summary {
	return Summary{Lock: NewLatency(), Extend: NewLatency(), Unlock: NewLatency(), Cycle: NewLatency()}
}

// NewCrew makes a crew with name in its keys. With extend each cycle also extends its lease
// once.
func NewCrew(l contender.Locker, name string, size int, extend bool) *Crew {
	c := &Crew{locker: l, extend: extend, keys: make([]string, size)}
	for i := range c.keys {
		c.keys[i] = fmt.Sprintf("bench:%s:%d", name, i)
	}
	c.recorders = make([]recorder, min(size, maxRecorders))
	c.Reset()
	return c
}

// Size returns the number of goroutines.
func (c *Crew) Size() int { return len(c.keys) }

// Run makes n cycles in total; each goroutine takes the next one when it is ready. After
// limit no cycle begins, so that fewer than n may be done. Some contenders wait for ever for a
// server that does not answer: if no cycle ends for grace, the calls under way are cancelled,
// and no other cycle begins.
func (c *Crew) Run(ctx context.Context, n int, limit, grace time.Duration) (done int) {
	var begun, ended atomic.Int64
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(grace)
		defer tick.Stop()
		for before := int64(0); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := ended.Load()
			if now == before {
				cancel()
			}
			before = now
		}
	})
	start := time.Now()
	stopAt := start.Add(limit)
	var wg sync.WaitGroup
	for i, key := range c.keys {
		r := &c.recorders[i%len(c.recorders)]
		wg.Go(func() {
			for begun.Add(1) <= int64(n) && time.Now().Before(stopAt) && ctx.Err() == nil {
				c.cycle(ctx, key, r, start)
				ended.Add(1)
			}
		})
	}
	wg.Wait()
	cancel()
	watcher.Wait()
	return int(ended.Load())
}

// cycle makes one cycle. A failed lock counts with the time that it took, as its caller had
// to wait for it.
func (c *Crew) cycle(ctx context.Context, key string, r *recorder, began time.Time) {
	var lock, extend, unlock time.Duration
	var extendErr, unlockErr error
	lease, err := timed(&lock, func() (contender.Lease, error) { return c.locker.Lock(ctx, key) })
	locked := err == nil
	if locked {
		if c.extend {
			_, extendErr = timed(&extend, func() (struct{}, error) { return struct{}{}, lease.Extend(ctx) })
		}
		_, unlockErr = timed(&unlock, func() (struct{}, error) { return struct{}{}, lease.Unlock(ctx) })
	}
	err = errors.Join(err, extendErr, unlockErr)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.Lock.Record(lock)
	r.Cycle.Record(lock + extend + unlock)
	if locked {
		r.Unlock.Record(unlock)
		if c.extend {
			r.Extend.Record(extend)
		}
	}
	if err != nil {
		r.Failed++
		r.Err = err.Error()
		return
	}
	r.Last = max(r.Last, time.Since(began))
}

func timed[T any](took *time.Duration, call func() (T, error)) (T, error) {
	start := time.Now()
	result, err := call()
	*took = time.Since(start)
	return result, err
}

// Reset clears the recorders.
func (c *Crew) Reset() {
	for i := range c.recorders {
		c.recorders[i].Summary = newSummary()
	}
}

// Summary sums up all cycles since the last reset.
func (c *Crew) Summary() Summary {
	s := newSummary()
	for i := range c.recorders {
		r := &c.recorders[i]
		s.Lock.Merge(r.Lock)
		s.Extend.Merge(r.Extend)
		s.Unlock.Merge(r.Unlock)
		s.Cycle.Merge(r.Cycle)
		s.Failed += r.Failed
		s.Last = max(s.Last, r.Last)
		if r.Err != "" {
			s.Err = r.Err
		}
	}
	return s
}
