//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const shell = "/bin/sh"

// endSignals are the signals that end programs, and redlock while it holds the lock on behind the command.
var endSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// forwarded are the signals that redlock forwards to the command. Before the command runs they
// end the waiting.
var forwarded = append(slices.Clone(endSignals), syscall.SIGUSR1, syscall.SIGUSR2)

// brokenOutput are the signals to a process that writes to a pipe which no process reads any more, or to a connection
// that is closed at the other end, or more to a file than it may.
var brokenOutput = []syscall.Signal{syscall.SIGPIPE, syscall.SIGXFSZ}

// surviveOutput lets this process go on when its output is broken: a write returns an error. The
// signal is not ignored, because the command would ignore it, too.
func surviveOutput() {
	unread := make(chan os.Signal, 1)
	for _, sig := range brokenOutput {
		signal.Notify(unread, sig)
	}
}

// isBroken reports whether such a signal is about the output of this process.
func isBroken(sig os.Signal) bool {
	if sig != syscall.SIGPIPE {
		return true
	}
	output := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	_, _ = unix.Poll(output, 0) // an error leaves what it says empty
	return (output[0].Revents|output[1].Revents)&(unix.POLLERR|unix.POLLHUP) != 0
}

// jobSignals are the signals of job control. redlock handles them only while the command runs:
// while redlock waits for the lock, they stop it as usual.
var jobSignals = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

// signal sends a signal to the whole group of the child, and to the child if it has moved to another group.
// The child must not have been reaped: until then no other process can have its number.
func (c *child) signal(sig os.Signal) {
	_ = syscall.Kill(-c.pid, sig.(syscall.Signal)) // ignore the error: the group may have ended
	if group, err := syscall.Getpgid(c.pid); err == nil && group != c.pid {
		_ = syscall.Kill(c.pid, sig.(syscall.Signal))
	}
}

// end asks the child to end, even if it is stopped.
func (c *child) end(sig syscall.Signal) {
	c.signal(sig)
	c.signal(syscall.SIGCONT)
}

// kill kills the whole group.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// killRest kills what is left of the group of a child that has been reaped.
func (c *child) killRest() { _ = syscall.Kill(-c.pid, syscall.SIGKILL) }

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

// terminal is the standard input if that is a terminal. While the command runs, its process
// group is in the foreground, so that it can read and gets Ctrl-C and Ctrl-Z itself.
type terminal struct {
	fd   int
	lent bool
}

// openTerminal returns nil if the file is no terminal, or not the controlling terminal.
func openTerminal(f *os.File) *terminal {
	t := &terminal{fd: int(f.Fd())}
	if !term.IsTerminal(t.fd) {
		return nil
	}
	if _, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil {
		return nil
	}
	return t
}

// lendable reports whether the child gets the terminal when it starts: only if redlock has it,
// and is no background job.
func (t *terminal) lendable() (foreground bool, fd int) {
	if t == nil || !t.ours() {
		return false, 0
	}
	t.lent = true
	return true, t.fd
}

func (t *terminal) ours() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// lend puts a group into the foreground, if redlock is there.
func (t *terminal) lend(group int) {
	if t != nil && t.ours() {
		t.lent = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
	}
}

// takeBack puts redlock into the foreground. While the terminal is lent, redlock is in the
// background, and would be stopped here if SIGTTOU were not ignored.
func (t *terminal) takeBack() {
	if t != nil && t.lent {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, syscall.Getpgrp()) // it may have been hung up
		t.lent = false
	}
}

// ignoreTTOU keeps redlock from being stopped when it writes to the terminal while that is
// lent. Children that were started before keep the default.
func ignoreTTOU() { signal.Ignore(syscall.SIGTTOU) }

// suspend stops this process as Ctrl-Z does, after that has stopped the command. It returns
// when the process continues, with the signals that came meanwhile. While the process is
// stopped no lease is renewed. With group it stops the whole foreground group, as a script may
// be waiting for redlock.
func suspend(signals chan os.Signal, group bool) (others []os.Signal) {
	if sid, err := unix.Getsid(0); err != nil || sid == syscall.Getpgrp() {
		return nil // there is no shell that could continue us
	}
	if group { // but not this process: on continuing it would see one more signal to stop
		signal.Ignore(syscall.SIGTSTP)
		_ = syscall.Kill(0, syscall.SIGTSTP)
		signal.Notify(signals, syscall.SIGTSTP)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	timer := time.NewTimer(resumeWithin) // it comes to another thread, a little later
	defer timer.Stop()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGCONT {
				return others
			}
			others = append(others, sig)
		case <-timer.C:
			return others
		}
	}
}

const resumeWithin = 100 * time.Millisecond

// pass forwards a signal to the command.
func (w *watchdog) pass(sig os.Signal) {
	w.log.Info("forwarding a signal", "signal", sig)
	switch sig {
	case syscall.SIGTSTP:
		w.stopWanted = true
	case syscall.SIGCONT:
		w.child.tty.lend(w.child.pid) // redlock may be in the foreground only now
	case syscall.SIGUSR1, syscall.SIGUSR2:
		w.signalled = true
	default:
		w.signalled, w.ended = true, true
	}
	w.child.signal(sig)
}

// stopped is called when the command was stopped. If it was stopped by Ctrl-Z, or because it read
// from the terminal in the background, redlock stops too, so that the shell sees the job stopped.
// If another process stopped the command, redlock goes on and keeps the lock for it.
func (w *watchdog) stopped() {
	tty := w.child.tty
	if tty == nil && !w.stopWanted {
		w.log.Info("the command is stopped")
		return
	}
	w.stopWanted = false
	inFront := tty != nil && tty.lent
	tty.takeBack()
	for _, sig := range suspend(w.signals, inFront) {
		w.child.signal(sig)
	}
	w.look() // a command that was stopped for too long is killed, and not continued
	if !w.killed {
		tty.lend(w.child.pid)
		w.child.signal(syscall.SIGCONT)
	}
}
