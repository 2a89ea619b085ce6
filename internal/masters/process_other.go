//go:build !unix

package masters

import (
	"errors"
	"os"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr { return nil }

func suspend(*os.Process) error { return errors.ErrUnsupported }

func proceed(*os.Process) error { return errors.ErrUnsupported }
