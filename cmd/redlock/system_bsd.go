//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import "syscall"

// ownGroup puts the child into a process group of its own, in the foreground of the terminal if
// redlock has the terminal. The child survives redlock.
func ownGroup(tty *terminal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	a.Foreground, a.Ctty = tty.lendable()
	return a
}

// watch reports when the child is stopped, and returns when it has ended.
func (c *child) watch() {
	var w syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.pid, &w, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err == nil && w.Stopped():
			c.stops <- struct{}{}
		default:
			c.status = statusOf(w)
			return
		}
	}
}

// reap is for systems on which watch does not take the status.
func (c *child) reap() { _ = c.cmd.Process.Release() }

// remains reports whether others of the group are left.
func (c *child) remains() bool { return syscall.Kill(-c.pid, 0) == nil }

func adoptOrphans() {}
func reapOrphans()  {}
