//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const shell = "/bin/sh"

// forwarded are the signals that redlock forwards to the command. Before the command runs they
// end the waiting.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// jobSignals are the signals of job control. redlock handles them only while the command runs:
// while redlock waits for the lock, they stop it as usual.
var jobSignals = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

func isForkFailure(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM)
}

// signal sends a signal to the whole group of the child. The child must not have been reaped: until
// then no other process can have its number.
func (c *child) signal(sig os.Signal) {
	_ = syscall.Kill(-c.cmd.Process.Pid, sig.(syscall.Signal)) // ignore the error: the group may have ended
}

// end asks the child to end, even if it is stopped.
func (c *child) end(sig syscall.Signal) {
	c.signal(sig)
	c.signalContinue()
}

func (c *child) signalContinue() { c.signal(syscall.SIGCONT) }

// kill kills the whole group.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// statusOf converts the system's status of an ended process.
func statusOf(w syscall.WaitStatus) status {
	s := status{code: w.ExitStatus(), ended: time.Now()}
	if w.Signaled() {
		s.signal = w.Signal()
		s.code = exitSignalled + int(s.signal)
	}
	return s
}

// parseSignal reads TERM, SIGTERM or 15.
func parseSignal(s string) (syscall.Signal, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		name := "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
		n = int(unix.SignalNum(name))
	}
	if n <= 0 || n > 64 {
		return 0, fmt.Errorf("%q is no signal", s)
	}
	return syscall.Signal(n), nil
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}
