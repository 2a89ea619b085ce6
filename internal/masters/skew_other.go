//go:build !linux

package masters

import (
	"errors"
	"fmt"
)

func (p *Process) installClock() error {
	return fmt.Errorf("masters: a clock that can be moved: %w", errors.ErrUnsupported)
}

func (p *Process) clockEnv() []string { return nil }

func (p *Process) checkClock() error { return nil }

func (p *Process) changeSkew(func(offset, ppm, run int64) (int64, int64)) error {
	return errors.ErrUnsupported
}
