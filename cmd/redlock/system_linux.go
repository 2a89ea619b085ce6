package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownGroup puts the child into a process group of its own, in the foreground of the terminal if
// redlock has the terminal. The kernel kills the child when redlock dies.
func ownGroup(tty *terminal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	a.Foreground, a.Ctty = tty.lendable()
	return a
}

// watch reports when the child is stopped, and returns when it has ended. It does not reap the
// child: its number stays reserved, so that its group can still be killed.
func (c *child) watch() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || info.Code != cldStopped:
			if err == nil && info.Code != cldExited {
				c.status.signal = syscall.Signal((*childInfo)(unsafe.Pointer(&info)).status)
			}
			return
		default:
			_ = unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOHANG, nil) // otherwise it is reported again
			c.stops <- struct{}{}
		}
	}
}

const (
	cldExited  = 1 // CLD_EXITED
	cldStopped = 5 // CLD_STOPPED
)

// childInfo is the part of siginfo_t that is about a child.
type childInfo struct {
	_      [3]int32
	_      [0]uintptr // what follows is aligned like a pointer
	_, _   int32      // pid, uid
	status int32
}

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
