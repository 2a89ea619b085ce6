// Package contender has what is compared: this library, others, and floors, which
// show what a lock costs at the least. All are behind one interface.
package contender

import (
	"context"
	"slices"
	"time"
)

// TTL is how long a lease lasts that is not renewed, with every contender.
const TTL = 10 * time.Second

// Locker is one process's use of a contender. It is safe for concurrent use.
type Locker interface {
	// Lock waits for key until ctx ends, or until the contender has had enough.
	Lock(ctx context.Context, key string) (Lease, error)

	// Close gives back what was opened.
	Close() error
}

// Lease is a lock that is held.
type Lease interface {
	// Extend makes it last for the TTL from now. Those without such a call give
	// [errors.ErrUnsupported].
	Extend(ctx context.Context) error

	// Unlock ends it.
	Unlock(ctx context.Context) error
}

// Fenced is what a [Lease] with a fencing token is, too.
type Fenced interface{ Fence() int64 }

// Needs says where the keys of a contender are.
type Needs int

const (
	Quorum Needs = iota // on a quorum of any number of masters
	Single              // on one server
	None                // in the memory of the process
)

// Contender is one of those that are compared.
type Contender struct {
	Name  string
	Needs Needs

	Waits   bool // Lock waits for another holder
	Extends bool // Lease.Extend works
	Renews  bool // leases are renewed until Unlock, without a call

	// Sends are the data commands that it sends by themselves; those not listed are
	// only in its scripts. See measure.Usage.
	Sends []string

	// Dial connects to the masters that Prepare has prepared.
	Dial func(masters []string) (Locker, error)

	// Prepare readies new masters, once for all processes; nil if that needs nothing.
	Prepare func(ctx context.Context, masters []string) error
}

// All are the contenders, this library first.
func All() []Contender {
	return []Contender{
		{Name: "ours", Waits: true, Extends: true, Renews: true, Dial: dialOurs, Prepare: bootstrap},
		{Name: "ours-unguarded", Waits: true, Extends: true, Renews: true, Dial: dialUnguarded},
		{Name: "redsync", Waits: true, Extends: true, Sends: []string{"set"}, Dial: dialRedsync},
		{Name: "redsync-failfast", Waits: true, Extends: true, Sends: []string{"set"}, Dial: dialFailFast},
		{Name: "redislock", Needs: Single, Waits: true, Extends: true, Dial: dialRedislock},
		{Name: "rueidislock", Needs: Single, Waits: true, Renews: true, Dial: dialRueidislock},
		{Name: "floor", Extends: true, Sends: []string{"set"}, Dial: dialFloor},
		{Name: "mutex", Needs: None, Waits: true, Dial: dialMutex},
	}
}

// ByName finds a contender.
func ByName(name string) (Contender, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		return Contender{}, false
	}
	return all[i], true
}

// Takes tells whether the contender can have n masters.
func (c Contender) Takes(n int) bool {
	switch c.Needs {
	case Quorum:
		return n > 0
	case Single:
		return n == 1
	default:
		return n == 0
	}
}
