package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest latency that is told apart from longer ones.
const longest = 2 * time.Minute

// crew is a number of workers that put cycles on one locker, each with a key of
// its own.
type crew struct {
	locker  locker
	workers []worker
}

// worker is used by one goroutine at a time.
type worker struct {
	key                 string
	lock, unlock, cycle *hdrhistogram.Histogram // ns, to 1 %
	failed              int
	err                 error // the first
}

func newCrew(l locker, name string, size int) *crew {
	c := &crew{locker: l, workers: make([]worker, size)}
	for i := range c.workers {
		c.workers[i] = worker{
			key:    fmt.Sprintf("bench:%s:%d", name, i),
			lock:   newHistogram(),
			unlock: newHistogram(),
			cycle:  newHistogram(),
		}
	}
	return c
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest), 2) }

// run has the workers put n cycles on the locker in all, in which they take turns
// as they get ready. After limit none is begun, so that fewer may have been done.
func (c *crew) run(ctx context.Context, n int, limit time.Duration) (done int) {
	var begun, ended atomic.Int64
	stopAt := time.Now().Add(limit)
	var wg sync.WaitGroup
	for i := range c.workers {
		wg.Go(func() {
			for begun.Add(1) <= int64(n) && time.Now().Before(stopAt) {
				c.workers[i].cycleOnce(ctx, c.locker)
				ended.Add(1)
			}
		})
	}
	wg.Wait()
	return int(ended.Load())
}

// reset forgets what was measured.
func (c *crew) reset() {
	for i := range c.workers {
		w := &c.workers[i]
		w.lock.Reset()
		w.unlock.Reset()
		w.cycle.Reset()
		w.failed, w.err = 0, nil
	}
}

// cycleOnce counts a lock that failed with the time that took, as its caller had to
// wait for that.
func (w *worker) cycleOnce(ctx context.Context, l locker) {
	lock, unlock, err := l.Cycle(ctx, w.key)
	record(w.lock, lock)
	record(w.cycle, lock+unlock)
	if unlock > 0 {
		record(w.unlock, unlock)
	}
	if err != nil {
		w.failed++
		if w.err == nil {
			w.err = err
		}
	}
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(d, longest))) // in range by that
}

// summary is what all workers saw since the last reset.
type summary struct {
	lock, unlock, cycle *hdrhistogram.Histogram
	failed              int
	err                 error // one of the failures
}

func (c *crew) summary() summary {
	s := summary{lock: newHistogram(), unlock: newHistogram(), cycle: newHistogram()}
	for i := range c.workers {
		w := &c.workers[i]
		s.lock.Merge(w.lock)
		s.unlock.Merge(w.unlock)
		s.cycle.Merge(w.cycle)
		s.failed += w.failed
		if s.err == nil {
			s.err = w.err
		}
	}
	return s
}

// micros is a percentile of h in microseconds.
func micros(h *hdrhistogram.Histogram, percentile float64) float64 {
	return float64(h.ValueAtQuantile(percentile)) / 1e3
}
