//go:build !linux

package chaos

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }

func (c *Child) pause() error  { return ErrUnable }
func (c *Child) resume() error { return ErrUnable }

func killPid(int) error { return ErrUnable } // the engine runs in a virtual machine
