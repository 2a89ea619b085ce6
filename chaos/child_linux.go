package chaos

import "syscall"

// childAttr makes the kernel kill a child when this process dies, even a stopped child.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func (c *Child) pause() error  { return c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *Child) resume() error { return c.cmd.Process.Signal(syscall.SIGCONT) }
