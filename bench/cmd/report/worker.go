package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
)

// workerEnv is set for the processes that this program starts from itself.
const workerEnv = "REDLOCK_BENCH_WORKER"

// Some contenders wait for ever for a server that does not answer.
const (
	patience = 3 * time.Second  // for calls without a fault
	atMost   = 50 * time.Second // for a whole order
)

// worker is one process that uses a contender.
type worker struct {
	clock  measure.Clock
	locker contender.Locker
}

// work executes orders until its input ends, which also happens when its parent dies.
func work(in io.Reader, out io.Writer) {
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // masters are broken on purpose
	w := worker{clock: measure.NewClock()}
	orders, replies := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), atMost)
		r, err := w.carryOut(ctx, o)
		cancel()
		if err != nil {
			r.Error = err.Error()
		}
		if replies.Encode(r) != nil {
			break
		}
	}
	if w.locker != nil {
		_ = w.locker.Close() // masters may be dead
	}
}

var errOrder = errors.New("report: an order for nothing, or for a worker that has not dialled")

func (w *worker) carryOut(ctx context.Context, o order) (reply, error) {
	switch {
	case o.Dial != nil && w.locker == nil:
		return reply{}, w.dial(ctx, *o.Dial)
	case w.locker == nil:
		return reply{}, errOrder
	case o.Cycles != nil:
		r := w.cycles(ctx, *o.Cycles)
		return reply{Cycles: &r}, nil
	case o.Contest != nil:
		r := o.Contest.Run(ctx, w.locker, w.clock)
		return reply{Contest: &r}, nil
	case o.Crowd != nil:
		r, err := o.Crowd.Run(ctx, w.locker)
		return reply{Crowd: &r}, err
	}
	return reply{}, errOrder
}

func (w *worker) dial(ctx context.Context, d dial) error {
	c, ok := contender.ByName(d.Who)
	if !ok {
		return fmt.Errorf("report: who is %s?", d.Who)
	}
	var err error
	if w.locker, err = c.Dial(d.Masters); err != nil {
		return err
	}
	crew := measure.NewCrew(w.locker, d.Warm, 1, false)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	crew.Run(ctx, 5, patience)
	if s := crew.Summary(); s.Failed > 0 {
		return fmt.Errorf("report: %s: warming up: %s", d.Who, s.Err)
	}
	return nil
}

func (w *worker) cycles(ctx context.Context, c cycles) cycled {
	crew := measure.NewCrew(w.locker, c.Name, c.Goroutines, c.Extend)
	ctx, cancel := context.WithTimeout(ctx, c.For+c.Patience)
	defer cancel()
	crew.Run(ctx, c.Warm, c.Patience)
	crew.Reset()
	start, cpu := time.Now(), measure.CPUTime()
	done := crew.Run(ctx, math.MaxInt32, c.For)
	return cycled{Done: done, Took: time.Since(start), CPU: measure.CPUTime() - cpu, Summary: crew.Summary()}
}
