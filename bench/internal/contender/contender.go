// Package contender has the contenders: this library, others, and floors, which show the
// least that a lock can cost. All are behind one interface.
package contender

import (
	"context"
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

	// Dial connects to masters.
	Dial func(ctx context.Context, masters []string) (Locker, error)
}

// All returns the contenders, this library first.
func All() []Contender {
	return []Contender{
		{Name: "ours", Waits: true, Extends: true, Dial: dialOurs},
		{Name: "redsync", Waits: true, Extends: true, Sends: []string{"set"}, Dial: dialRedsync},
		{Name: "redsync-failfast", Waits: true, Extends: true, Sends: []string{"set"}, Dial: dialFailFast},
		{Name: "redislock", Needs: Single, Waits: true, Extends: true, Dial: dialRedislock},
		{Name: "rueidislock", Needs: Single, Waits: true, Dial: dialRueidislock(1)},
		{Name: "rueidislock-3", Needs: Single, Waits: true, Dial: dialRueidislock(2)}, // two of three keys
		{Name: "floor", Extends: true, Sends: []string{"set"}, Dial: dialFloor},
		{Name: "mutex", Needs: None, Waits: true, Dial: dialMutex},
	}
}

// Named returns the contenders of these names.
func Named(names ...string) (list []Contender) {
	all := map[string]Contender{}
	for _, c := range All() {
		all[c.Name] = c
	}
	for _, name := range names {
		c, ok := all[name]
		if !ok {
			panic("contender: who is " + name + "?")
		}
		list = append(list, c)
	}
	return list
}

// On returns those of some masters that the contender uses.
func (c Contender) On(masters []string) []string {
	switch c.Needs {
	case Single:
		return masters[:1]
	case None:
		return nil
	default:
		return masters
	}
}
