package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock/bench/internal/contender"
)

const (
	answerWithin = time.Minute     // a call, which should end by itself after atMost
	endWithin    = 3 * time.Second // for closing; then the process is killed
)

// process is a worker process, seen from its parent.
type process struct {
	cmd    *exec.Cmd
	worker *rpc.Client
	errors bytes.Buffer // what it wrote to its standard error
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
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.worker = jsonrpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, in})
	return p, nil
}

// call calls a method of the worker. After an error the process cannot be used any more.
func (p *process) call(method string, args, reply any) error {
	overdue := time.AfterFunc(answerWithin, func() { _ = p.cmd.Process.Kill() })
	defer overdue.Stop()
	if err := p.worker.Call("Worker."+method, args, reply); err != nil {
		return fmt.Errorf("report: worker process: %s: %w", method, err)
	}
	return nil
}

// end returns when the process is gone.
func (p *process) end() error {
	_ = p.worker.Close()
	overdue := time.AfterFunc(endWithin, func() { _ = p.cmd.Process.Kill() })
	defer overdue.Stop()
	err := p.cmd.Wait()
	if p.errors.Len() > 0 {
		return fmt.Errorf("report: worker process: %w: %s", err, p.errors.Bytes())
	}
	return nil // it may have been killed: some contenders do not close while a call is stuck
}

// team has worker processes that use the same contender.
type team []*process

// newTeam starts n processes and lets each dial the masters.
func newTeam(ctx context.Context, n int, c contender.Contender, masters []string) (t team, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, t.end())
		}
	}()
	for range n {
		p, err := startProcess(ctx)
		if err != nil {
			return t, err
		}
		t = append(t, p)
	}
	return t, t.each(func(i int, p *process) error {
		return p.call("Dial", Dial{Who: c.Name, Masters: masters, Warm: fmt.Sprintf("warm:%s:%d", c.Name, i)}, nil)
	})
}

// each does something with all processes at the same time.
func (t team) each(do func(i int, p *process) error) error {
	var all errgroup.Group
	for i, p := range t {
		all.Go(func() error { return do(i, p) })
	}
	return all.Wait()
}

func (t team) end() error {
	return t.each(func(_ int, p *process) error { return p.end() })
}
