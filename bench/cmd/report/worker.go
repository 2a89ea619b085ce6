package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/rpc"
	"net/rpc/jsonrpc"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
)

// workerEnv is set for the processes that this program starts from itself.
const workerEnv = "REDLOCK_BENCH_WORKER"

// Some contenders wait for ever for a server that does not answer.
const (
	patience = 3 * time.Second  // for calls that are under way at the end
	atMost   = 50 * time.Second // for a whole order
)

// Worker is one process that uses a contender. Its methods are called by the parent process.
type Worker struct{ locker contender.Locker }

// work carries out calls until the input ends, which also happens when the parent dies.
func work(in io.ReadCloser, out io.Writer) {
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a busy machine is no news
	w := &Worker{}
	server := rpc.NewServer()
	if err := server.Register(w); err != nil {
		panic(err)
	}
	server.ServeCodec(jsonrpc.NewServerCodec(struct {
		io.ReadCloser
		io.Writer
	}{in, out}))
	if w.locker != nil {
		_ = w.locker.Close()
	}
}

// Dial is the first call.
type Dial struct {
	Who     string
	Masters []string
	Warm    string // key to lock a few times
}

// Dial connects to a contender.
func (w *Worker) Dial(d Dial, _ *struct{}) (err error) {
	c, ok := contender.ByName(d.Who)
	if !ok {
		return fmt.Errorf("report: who is %s?", d.Who)
	}
	if w.locker, err = c.Dial(d.Masters); err != nil {
		return err
	}
	crew := measure.NewCrew(w.locker, d.Warm, 1, false)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	crew.Run(ctx, 5, patience)
	if s := crew.Summary(); s.Failed > 0 {
		return fmt.Errorf("report: %s: warming up: %s", d.Who, s.Err)
	}
	return nil
}

var errDial = errors.New("report: the worker has not dialled")

// Cycles lets a crew lock and unlock for a time.
type Cycles struct {
	Name       string // part of the keys
	Goroutines int
	Warm       int // cycles before anything is measured
	For        time.Duration
}

// Cycled is the cost of cycles.
type Cycled struct {
	measure.Summary
	Done int // with or without success
	CPU  time.Duration
}

// Cycles measures cycles.
func (w *Worker) Cycles(c Cycles, r *Cycled) error {
	if w.locker == nil {
		return errDial
	}
	crew := measure.NewCrew(w.locker, c.Name, c.Goroutines, false)
	ctx, cancel := context.WithTimeout(context.Background(), c.For+patience)
	defer cancel()
	crew.Run(ctx, c.Warm, patience)
	crew.Reset()
	cpu := measure.CPUTime()
	r.Done = crew.Run(ctx, math.MaxInt32, c.For)
	r.CPU, r.Summary = measure.CPUTime()-cpu, crew.Summary()
	return nil
}

// Contest takes part in a contest.
func (w *Worker) Contest(c measure.Contest, r *measure.Attempts) error {
	if w.locker == nil {
		return errDial
	}
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	*r = c.Run(ctx, w.locker)
	return nil
}
