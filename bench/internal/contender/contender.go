// Package contender has the contenders: this library, others, and floors, which show the
// least that a lock can cost. All are behind one interface.
package contender

import (
	"context"
	"slices"
	"time"
)

// TTL is how long a lease that is not renewed lasts, with every contender.
const TTL = 10 * time.Second

// Locker is a contender as one process uses it. It is safe for concurrent use.
type Locker interface {
	// Lock waits for key until ctx ends, or until the contender gives up.
	Lock(ctx context.Context, key string) (Lease, error)

	// Close closes the connections.
	Close() error
}

// Lease is a held lock.
type Lease interface {
	// Extend makes it last for the TTL from now. Contenders without such a call return
	// [errors.ErrUnsupported].
	Extend(ctx context.Context) error

	// Unlock ends it.
	Unlock(ctx context.Context) error
}

// Fenced is also implemented by a [Lease] with a fencing token.
type Fenced interface{ Fence() int64 }

// Needs says where a contender keeps its keys.
type Needs int

const (
	Quorum Needs = iota // on a quorum of any number of masters
	Single              // on one server
	None                // in the memory of the process
)

// Contender is one contender.
type Contender struct {
	Name  string
	Needs Needs

	Waits   bool // Lock waits for another holder
	Extends bool // Lease.Extend works

	// Sends are the data commands that it sends outside of scripts; it uses others in
	// scripts only. See measure.Usage.
	Sends []string

	// Dial connects to the masters that Prepare has prepared.
	Dial func(masters []string) (Locker, error)

	// Prepare prepares new masters, once for all processes; nil if nothing is needed.
	Prepare func(ctx context.Context, masters []string) error
}

// All returns the contenders, this library first.
func All() []Contender {
	return []Contender{
		{Name: "ours", Waits: true, Extends: true, Dial: dialOurs, Prepare: bootstrap},
		{Name: "ours-unguarded", Waits: true, Extends: true, Dial: dialUnguarded},
		{Name: "redsync", Waits: true, Extends: true, Sends: []string{"set"}, Dial: dialRedsync},
		{Name: "redsync-failfast", Waits: true, Extends: true, Sends: []string{"set"}, Dial: dialFailFast},
		{Name: "redislock", Needs: Single, Waits: true, Extends: true, Dial: dialRedislock},
		{Name: "rueidislock", Needs: Single, Waits: true, Dial: dialRueidislock},
		{Name: "floor", Extends: true, Sends: []string{"set"}, Dial: dialFloor, Prepare: prepareFloor},
		{Name: "mutex", Needs: None, Waits: true, Dial: dialMutex},
	}
}

// ByName returns the contender of that name.
func ByName(name string) (Contender, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		return Contender{}, false
	}
	return all[i], true
}

// Masters returns how many of n masters the contender uses.
func (c Contender) Masters(n int) int {
	switch c.Needs {
	case Single:
		return min(n, 1)
	case None:
		return 0
	default:
		return n
	}
}
