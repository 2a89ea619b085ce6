package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is the command that runs while the lock is held, in a process group of its own
// where there are such groups.
type child struct {
	cmd     *exec.Cmd
	changes chan change // told by the goroutine that waits for it; exited is the last
	tty     *terminal   // nil if there is none
	status  status      // valid once it was reaped
}

// change is what has become of a child.
type change int

const (
	stopped change = iota // as by Ctrl-Z
	exited
)

// status is how a child ended.
type status struct {
	code   int // its exit code, 128 and the signal's number as shells have it
	signal syscall.Signal
	ended  time.Time // when that was seen
}

// findCommand looks for the program before the lock is taken for it.
func findCommand(args []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(args[0])
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // the user's own PATH says so
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, exitf(exitNotFound, "%q is not found", args[0])
	default:
		return nil, exitf(exitCannotRun, "%q cannot be run: %w", args[0], err)
	}
	return &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, nil
}

// startChild starts cmd. Linux has it killed when the thread ends that started it. So one
// goroutine starts it, stays on its thread, and goes on until the child has ended.
func startChild(cmd *exec.Cmd, tty *terminal) (*child, error) {
	c := &child{cmd: cmd, changes: make(chan change, 1), tty: tty}
	cmd.SysProcAttr = ownGroup(tty)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.watch()
			c.changes <- exited
		}
	}()
	switch err := <-started; {
	case err == nil:
		return c, nil
	case errors.Is(err, fs.ErrNotExist): // since it was looked for, or its interpreter
		return nil, exitf(exitNotFound, "%q is not found: %w", cmd.Args[0], err)
	case isForkFailure(err):
		return nil, exitf(exitBroken, "no process for %q: %w", cmd.Args[0], err)
	default:
		return nil, exitf(exitCannotRun, "%q cannot be run: %w", cmd.Args[0], err)
	}
}
