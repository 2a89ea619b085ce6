//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the standard input if that is one. The command's process group is in its
// foreground while it runs, so that it can read and gets Ctrl-C and Ctrl-Z itself.
type terminal struct {
	fd   int
	lent bool
}

// openTerminal is nil if the file is no terminal, or not the one we are run from.
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

// lendable says whether the child gets the terminal when it starts: only if it is ours to
// give, and we are no background job.
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

// lend puts a group in the foreground, if we are there.
func (t *terminal) lend(group int) {
	if t != nil && t.ours() {
		t.lent = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
	}
}

// takeBack puts us in the foreground. We are in the background while the terminal is lent,
// and would be stopped for that if SIGTTOU were not ignored.
func (t *terminal) takeBack() {
	if t != nil && t.lent {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, syscall.Getpgrp()) // it may have been hung up
		t.lent = false
	}
}

// ignoreTTOU keeps us from being stopped because of what we write to the terminal while
// it is lent. What was started before keeps the default.
func ignoreTTOU() { signal.Ignore(syscall.SIGTTOU) }

// suspend stops this process as Ctrl-Z would, after the command has been stopped by that,
// and returns when it goes on, with the signals that came meanwhile. While it is stopped
// nothing is renewed. group has all be stopped that was in the foreground with us, as a
// script that waits for us may be.
func suspend(signals chan os.Signal, group bool) (others []os.Signal) {
	if sid, err := unix.Getsid(0); err != nil || sid == syscall.Getpgrp() {
		return nil // there is no shell that could have us go on
	}
	if group { // but for us: it would be told as one more wish to stop when we go on
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

// isStop and isContinue tell what job control wants.
func isStop(s os.Signal) bool     { return s == syscall.SIGTSTP }
func isContinue(s os.Signal) bool { return s == syscall.SIGCONT }
