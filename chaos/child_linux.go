package chaos

import "syscall"

// childAttr has a child die with us, stopped or not.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func (c *Child) pause() error  { return c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *Child) resume() error { return c.cmd.Process.Signal(syscall.SIGCONT) }
