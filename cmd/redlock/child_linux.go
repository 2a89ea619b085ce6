package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts the child in a process group of its own, in the foreground of the
// terminal if that is ours, and has it killed if we die, however we die.
func ownGroup(tty *terminal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	a.Foreground, a.Ctty = tty.lendable()
	return a
}

// watch tells when the child is stopped, and returns when it has ended. It leaves the dead
// child's number to it, so that its group can be told apart and killed.
func (c *child) watch() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || info.Code != cldStopped:
			return
		default:
			_ = unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOHANG, nil) // or it is told again
			c.changes <- stopped
		}
	}
}

const cldStopped = 5 // CLD_STOPPED

// reap takes the status of a child that has ended.
func (c *child) reap() {
	var w syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(c.cmd.Process.Pid, &w, 0, nil); err != syscall.EINTR {
			break
		}
	}
	c.status = statusOf(w)
	_ = c.cmd.Process.Release()
}
