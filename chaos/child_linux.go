package chaos

import "syscall"

// childAttr makes the kernel kill a child when this process dies, even a stopped child.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func (c *Child) pause() error  { return c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *Child) resume() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// killPid kills a server in a container by its process id, which counts on this machine only if
// the engine runs here.
func killPid(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
