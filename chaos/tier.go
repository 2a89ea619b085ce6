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

// Tier is a kind of cluster, or a set of kinds.
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

// Data says which data a server has when it is back.
type Data int

// The values.
const (
	Kept  Data = iota // all data
	Empty             // no data
	Stale             // the data of the last Mark: later writes never got to disk
)

// ErrUnable is returned by a node that cannot do on this machine what a fault needs.
var ErrUnable = errors.New("chaos: cannot be done here")

// Cluster is N independent masters of one tier. Close ends them.
type Cluster interface {
	Tier() Tier
	Nodes() []Node
	Masters() []*redis.Options // what clients need to reach the nodes
	Close() error
}

// Apart puts the masters at distances: the first stays where it is, and a round trip to each
// further one takes step longer than to the one before.
func Apart(c Cluster, step time.Duration) {
	for i, n := range c.Nodes() {
		n.Away(time.Duration(i) * step)
	}
}

// Node is one master and the network in front of it. Each method returns when its effect
// is there.
type Node interface {
	// Kill ends the server as SIGKILL does. Restart starts it again, and kills it before if it
	// is up. Mark sets the moment to which Stale goes back.
	Kill() error
	Restart(Data) error
	Mark() error

	// Replace puts another server in its place, behind the same address, as a fail-over or a
	// changed DNS entry does. Kept: a server that was a replica until then. Empty: a new
	// server.
	Replace(Data) error

	// Pause stops the server as SIGSTOP does.
	Pause() error
	Resume() error

	// Net sets the fault of the network.
	Net(masters.Fault) error
	Latency(request, reply time.Duration)
	Away(trip time.Duration) // puts the node that much farther away, for good
	Drip(perByte time.Duration)
	Reset()

	// Do sends a command, bypassing the network of the clients.
	Do(ctx context.Context, args ...any) error

	// Step moves the wall clock of the server.
	Step(time.Duration) error
	Drift(ppm int) error

	// Look returns what the node has, for the history. With rest it also lists all other keys.
	Look(ctx context.Context, prefix string, resources []string, rest bool) history.Look
}
