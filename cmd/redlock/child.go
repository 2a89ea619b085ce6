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

// child is the command that runs while the lock is held. It has a process group of its own if
// the system has process groups.
type child struct {
	cmd    *exec.Cmd
	pid    int           // also of its process group
	stops  chan struct{} // has a value when it was stopped, for example by Ctrl-Z
	exited chan struct{} // closed when it has ended
	buried chan struct{} // closed when it has been reaped, and its group is done with
	tty    *terminal     // nil if there is no terminal
	status status        // valid once the child was reaped; the signal, once it has ended
}

// status says how a child ended.
type status struct {
	code   int // its exit code; 128 plus the signal's number, as in shells
	signal syscall.Signal
	ended  time.Time // when redlock noticed it
}

// findCommand looks up the program before the lock is taken.
func findCommand(args []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // the user's own PATH says so
		return nil, cannotRun(args[0], err)
	}
	return &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, nil
}

// startChild starts cmd. Linux kills the child when the thread that started it ends. So one
// goroutine starts it, stays on its thread, and runs until the child has ended.
func startChild(cmd *exec.Cmd, tty *terminal) (*child, error) {
	c := &child{cmd: cmd, stops: make(chan struct{}, 1), exited: make(chan struct{}), buried: make(chan struct{}), tty: tty}
	cmd.SysProcAttr = ownGroup(tty)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		adoptOrphans()
		err := cmd.Start()
		if err == nil {
			c.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			c.watch()
			close(c.exited)
			<-c.buried
			reapOrphans()
		}
	}()
	if err := <-started; err != nil {
		return nil, cannotRun(cmd.Args[0], err)
	}
	return c, nil
}

// cannotRun returns the error of a command that is not started.
func cannotRun(name string, err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return exitf(exitNotFound, "%q is not found", name)
	case errors.Is(err, fs.ErrNotExist): // no such file, or its interpreter is missing
		return exitf(exitNotFound, "%q is not found: %w", name, err)
	}
	return exitf(exitCannotRun, "%q cannot be run: %w", name, err)
}
