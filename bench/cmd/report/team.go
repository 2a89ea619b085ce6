package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
)

const (
	answerWithin = time.Minute     // an order, which should end by itself after atMost
	endWithin    = 3 * time.Second // for closing; then the process is killed
)

// process is a worker process, seen from its parent.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	orders  *json.Encoder
	replies *json.Decoder
	errors  bytes.Buffer // what it wrote to its standard error
}

func startProcess(ctx context.Context) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), workerEnv+"=1")
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.orders, p.replies = json.NewEncoder(p.in), json.NewDecoder(out)
	return p, p.cmd.Start()
}

// do lets the process execute an order. After an error the process cannot be used any more.
func (p *process) do(o order) (reply, error) {
	var r reply
	overdue := time.AfterFunc(answerWithin, func() { _ = p.cmd.Process.Kill() })
	err := p.orders.Encode(o)
	if err == nil {
		err = p.replies.Decode(&r)
	}
	if !overdue.Stop() {
		err = fmt.Errorf("no answer within %v: %w", answerWithin, err)
	}
	if err != nil {
		return r, fmt.Errorf("report: worker process: %w", err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("report: worker process: %s", r.Error)
	}
	return r, nil
}

// end returns when the process is gone.
func (p *process) end() error {
	_ = p.in.Close()
	overdue := time.AfterFunc(endWithin, func() { _ = p.cmd.Process.Kill() })
	defer overdue.Stop()
	err := p.cmd.Wait()
	if p.errors.Len() > 0 {
		return fmt.Errorf("report: worker process: %w: %s", err, p.errors.Bytes())
	}
	return nil // it may have been killed: with dead masters that can be the only way
}

// team has worker processes that use the same contender.
type team []*process

// newTeam starts n processes and lets each dial the masters.
func newTeam(ctx context.Context, n int, c contender.Contender, masters []string) (team, error) {
	var t team
	for range n {
		p, err := startProcess(ctx)
		if err != nil {
			return nil, errors.Join(err, t.end())
		}
		t = append(t, p)
	}
	_, err := t.do(func(i int) order {
		return order{Dial: &dial{Who: c.Name, Masters: masters, Warm: fmt.Sprintf("warm:%s:%d", c.Name, i)}}
	})
	if err != nil {
		return nil, errors.Join(err, t.end())
	}
	return t, nil
}

// do gives each process its order and returns when all have answered.
func (t team) do(of func(i int) order) ([]reply, error) {
	replies, errs := make([]reply, len(t)), make([]error, len(t))
	var wg sync.WaitGroup
	for i, p := range t {
		wg.Go(func() { replies[i], errs[i] = p.do(of(i)) })
	}
	wg.Wait()
	return replies, errors.Join(errs...)
}

func (t team) end() error {
	errs := make([]error, len(t))
	var wg sync.WaitGroup
	for i, p := range t {
		wg.Go(func() { errs[i] = p.end() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
