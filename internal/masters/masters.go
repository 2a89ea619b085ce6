// Package masters runs independent Redis masters on this machine and breaks
// them on purpose, for tests, the chaos suite and the demo command.
//
// A [Process] is a real redis-server, a [Mini] is an in-process stand-in for
// machines without one; both are a [Master] that can be killed, paused, resumed
// and restarted on the same port. A [Proxy] in front of either adds the faults
// of a network: delay, loss, silence, refused and reset connections.
//
// Everything listens on 127.0.0.1 only, and on ports below the range from which
// operating systems take the source ports of outgoing connections. A port in that range
// can be lost while its server is down: a client that keeps dialling it may be given
// this port as its source port, and then connects to itself.
package masters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
)

// The kinds of master, as [Start] reports them.
const (
	KindProcess = "redis-server"
	KindMini    = "miniredis"
)

// ErrClosed is returned when a closed master or proxy is told to continue.
var ErrClosed = errors.New("masters: closed")

var errNotRunning = errors.New("masters: not running")

// Master is one independent Redis master. All methods are safe for concurrent
// use; calls that change its state run one after the other.
type Master interface {
	// Addr returns the host and port on which the master listens. It never changes.
	Addr() string

	// Kill ends the master at once, without a chance to save, and returns when it
	// is gone: its connections break and new ones are refused. Killing a master
	// that is down or closed does nothing.
	Kill() error

	// Pause freezes the master. It still accepts connections and requests, and
	// executes them when resumed, even if their client has left long ago. Pausing
	// twice has no further effect. A master that is down cannot be paused.
	Pause() error

	// Resume ends a pause. It does nothing for a master that is not paused.
	Resume() error

	// Restart starts the master again on its port, after a kill if it is still up
	// or paused, and returns when it answers. The master comes back empty unless it was
	// configured to persist.
	Restart() error

	// Close ends the master for good and removes its files. It works in every
	// state, and again.
	Close() error
}

// Start starts n masters: real ones if redis-server is on the PATH, otherwise in-process
// ones. kind tells which, even if starting them failed. The caller closes them; on an
// error there is nothing to close.
func Start(ctx context.Context, n int) (list []Master, kind string, err error) {
	kind = KindProcess
	start := func() (Master, error) { return StartProcess(ctx, ProcessConfig{}) }
	if _, err := LookPath(); err != nil {
		kind = KindMini
		start = func() (Master, error) { return StartMini() }
	}
	for range n {
		m, err := start()
		if err != nil {
			for _, m := range list {
				err = errors.Join(err, m.Close())
			}
			return nil, kind, err
		}
		list = append(list, m)
	}
	return list, kind, nil
}

// Ports are taken from [firstPort, lastPort), below the ephemeral ranges of
// Linux (from 32768), macOS and Windows (from 49152); see the package comment.
const (
	firstPort = 20000
	lastPort  = 32000
	blockSize = 1000
)

// ports are those of this process.
var ports = sync.OnceValue(claim)

// block is a range of ports that one process uses. A port that a master leaves for a moment, when
// it is killed or not yet started, is not given to another master, of this process or another.
type block struct {
	claimed     net.Listener // on the first port, as long as the process lives
	first, size uint32
	last        atomic.Uint32 // counts the ports tried
}

// claim takes a block that no other process has. If there is none, it takes all of them.
func claim() *block {
	const blocks = (lastPort - firstPort) / blockSize
	for i, from := 0, rand.IntN(blocks); i < blocks; i++ {
		first := firstPort + (from+i)%blocks*blockSize
		if claimed, err := listenOn(first); err == nil {
			return &block{claimed: claimed, first: uint32(first) + 1, size: blockSize - 1}
		}
	}
	all := &block{first: firstPort, size: lastPort - firstPort}
	all.last.Store(rand.Uint32N(all.size))
	return all
}

// listen returns a listener on a free port.
func listen() (*net.TCPListener, error) {
	b := ports()
	var err error
	for range 100 {
		var ln *net.TCPListener
		if ln, err = listenOn(int(b.first + b.last.Add(1)%b.size)); err == nil {
			return ln, nil
		}
	}
	return nil, fmt.Errorf("masters: no free port: %w", err)
}

// FreePort returns a port of 127.0.0.1 that was free a moment ago. It is below those that systems
// give to outgoing connections: a server that restarts gets its port again.
func FreePort() (int, error) {
	ln, err := listen()
	if err != nil {
		return 0, err
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}

func listenOn(port int) (*net.TCPListener, error) {
	return net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
}
