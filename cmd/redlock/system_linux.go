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

// adoptOrphans makes redlock the parent of each process that the command leaves behind, as it is anyway as process 1 of
// a container. So redlock knows when they have ended.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // an old kernel leaves them to process 1

// watch reports when the child is stopped, and returns when it has ended. It does not reap the
// child: its number stays reserved, so that its group can still be killed. It reaps orphans.
func (c *child) watch() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		of := (*childInfo)(unsafe.Pointer(&info))
		switch orphan := err == nil && int(of.pid) != c.pid; {
		case err == unix.EINTR:
		case err == nil && info.Code == cldStopped:
			_ = unix.Waitid(unix.P_PID, int(of.pid), nil, unix.WSTOPPED|unix.WNOHANG, nil) // otherwise it is reported again
			if !orphan {
				c.stops <- struct{}{}
			}
		case orphan:
			_, _ = syscall.Wait4(int(of.pid), nil, syscall.WNOHANG, nil)
		default:
			if err == nil && info.Code != cldExited {
				c.status.signal = syscall.Signal(of.status)
			}
			return
		}
	}
}

// reapOrphans returns when no process is left of what the command has started.
func reapOrphans() {
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR {
			return
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
	pid, _ int32      // uid
	status int32
}

// reap takes the status of a child that has ended.
func (c *child) reap() {
	var w syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(c.pid, &w, 0, nil); err != syscall.EINTR {
			break
		}
	}
	c.status = statusOf(w)
	_ = c.cmd.Process.Release()
}

// remains reports whether others of the group are left. The number of the group stays reserved then.
func (c *child) remains() bool {
	for {
		pid, err := syscall.Wait4(-c.pid, nil, syscall.WNOHANG, nil)
		if pid == 0 || err != nil && err != syscall.EINTR {
			return err == nil
		}
	}
}
