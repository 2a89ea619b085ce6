package chaos

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/masters"
)

// Tier is a kind of cluster, or several kinds.
type Tier uint

// The tiers.
const (
	Virtual    Tier = 1 << iota // fakes in a testing/synctest bubble
	Processes                   // redis-server processes behind fault proxies
	Containers                  // the same in containers

	Real = Processes | Containers
	All  = Virtual | Real
)

func (t Tier) String() string {
	var names []string
	for i, name := range []string{"virtual", "processes", "containers"} {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Data is what a server has of its data when it is back.
type Data int

// What can have become of it.
const (
	Kept  Data = iota // all
	Empty             // nothing
	Stale             // what it had when it was last marked: the rest never got to disk
)

// ErrUnable is reported by a node that cannot do what a fault needs on this machine.
var ErrUnable = errors.New("chaos: cannot be done here")

// Cluster is N independent masters of one tier. Closing it ends them.
type Cluster interface {
	Tier() Tier
	Nodes() []Node
	Masters() []*redis.Options // what a client needs to reach them
	Close() error
}

// Node is one master and the network in front of it. What is done to it has happened
// when the call returns.
type Node interface {
	// Kill ends the server as SIGKILL does; Restart starts it again, after a kill if
	// it is up; Mark is the moment that Stale goes back to.
	Kill() error
	Restart(Data) error
	Mark() error

	// Replace puts another server in its place, behind the same address, as a
	// fail-over or a name that was pointed elsewhere does. Kept: one that was a replica
	// until then. Empty: a new one.
	Replace(Data) error

	// Pause stops the server as SIGSTOP does.
	Pause() error
	Resume() error

	// The network.
	Net(masters.Fault) error
	Latency(request, reply time.Duration)
	Drip(perByte time.Duration)
	Reset()

	// Do sends a command past the network that clients use.
	Do(ctx context.Context, args ...any) error

	// The wall clock of the server.
	Step(time.Duration) error
	Drift(ppm int) error

	// Look is for the history. rest asks for everything else that is there, too.
	Look(ctx context.Context, prefix string, resources []string, rest bool) history.Look
}
