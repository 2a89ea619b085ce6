package servers_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// canBeDeaf reports whether listenDeaf works here.
const canBeDeaf = true

// listenDeaf listens at an address of which the queue of new connections is full: who dials it gets
// no answer.
func listenDeaf(addr string) (io.Closer, error) {
	at, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := &deaf{fd: fd}
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())})
	}
	if err == nil {
		err = syscall.Listen(fd, 0)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	for {
		conn, err := net.DialTimeout("tcp4", addr, 50*time.Millisecond)
		if err != nil {
			return d, nil
		}
		d.queue = append(d.queue, conn)
	}
}

type deaf struct {
	fd    int
	queue []net.Conn
}

func (d *deaf) Close() error {
	for _, conn := range d.queue {
		_ = conn.Close()
	}
	return syscall.Close(d.fd)
}
