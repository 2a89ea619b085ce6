package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/chaos/history"
)

// A client in a process of its own is this program, started once more. It writes its
// records to a pipe, line by line and without buffering, as it may be killed at any
// moment. It ends when its standard input ends.

const childEnv = "REDLOCK_CHAOS_CLIENT"

// line is one line that a child writes.
type line struct {
	R *history.Record `json:"r,omitempty"`
	A *history.Access `json:"a,omitempty"`
}

// Child is a client in a process of its own.
type Child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	read  chan error // the error with which reading its pipe ended

	mu sync.Mutex // held for one command at a time
}

// StartChild starts a client that runs until it is told to stop.
func StartChild(conf ClientConfig, sink func(history.Record), accesses func(history.Access)) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(encoded))
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = childAttr()
	c := &Child{cmd: cmd, read: make(chan error, 1)}
	if c.stdin, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	_ = w.Close()
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	go func() {
		defer r.Close()
		c.read <- listen(r, sink, accesses)
	}()
	return c, nil
}

func listen(r io.Reader, sink func(history.Record), accesses func(history.Access)) error {
	lines := bufio.NewReaderSize(r, 1<<16)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // a last line may be torn: its writer was killed
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("a child said %q: %w", text, err)
		}
		switch {
		case l.R != nil:
			sink(*l.R)
		case l.A != nil:
			accesses(*l.A)
		}
	}
}

// Tell sends a command: "gc", or "stall" and for how long.
func (c *Child) Tell(command string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := fmt.Fprintln(c.stdin, command)
	return err
}

// Stop has the client end its work and close its Locker.
func (c *Child) Stop() error {
	c.mu.Lock()
	err := c.stdin.Close()
	c.mu.Unlock()
	timer := time.AfterFunc(30*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	return errors.Join(err, c.cmd.Wait(), <-c.read)
}

// Kill ends the child at once. The lines that it had written count.
func (c *Child) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = c.cmd.Wait() // killed
	_ = c.stdin.Close()
	return <-c.read
}

// beChild is the main function of a child. It reports whether this process is one.
func beChild() bool {
	encoded := os.Getenv(childEnv)
	if encoded == "" {
		return false
	}
	var conf ClientConfig
	if err := json.Unmarshal([]byte(encoded), &conf); err != nil {
		panic(err)
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.NewFile(3, "history"))
	say := func(l line) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(l)
	}
	list := make([]*redis.Options, len(conf.Masters))
	for i, addr := range conf.Masters {
		list[i] = &redis.Options{Addr: addr}
	}
	c, err := NewClient(conf, list, Now, func(r history.Record) { say(line{R: &r}) }, func(a history.Access) { say(line{A: &a}) })
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		commands := bufio.NewScanner(os.Stdin)
		for commands.Scan() {
			obey(commands.Text())
		}
	}()
	c.Run(ctx)
	_ = c.Close() // it may fail: perhaps no quorum confirms
	return true
}

// obey executes a command.
func obey(command string) {
	var what string
	var long time.Duration
	_, _ = fmt.Sscan(command, &what)
	if rest := command[len(what):]; len(rest) > 1 {
		long, _ = time.ParseDuration(rest[1:])
	}
	until := time.Now().Add(long)
	switch what {
	case "gc":
		var keep [][]byte
		for time.Now().Before(until) {
			keep = append(keep, make([]byte, 1<<20))
			if len(keep) > 32 {
				keep = nil
			}
			runtime.GC()
		}
	case "stall": // busy loops without a yield take every thread
		var spin sync.WaitGroup
		for range 2 * runtime.GOMAXPROCS(0) {
			spin.Go(func() {
				for time.Now().Before(until) {
				}
			})
		}
		spin.Wait()
	}
}
