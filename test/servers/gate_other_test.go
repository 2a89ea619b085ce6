//go:build !linux

package servers_test

import (
	"errors"
	"io"
)

const canBeDeaf = false

func listenDeaf(string) (io.Closer, error) { return nil, errors.ErrUnsupported }
