// Package inside has the methods of a Locker that packages on top need, and users do not.
package inside

import (
	"context"
	"log/slog"
	"sync"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/door"
)

// Locker has the methods of a *redlock.Locker.
type Locker interface {
	// CheckResource returns nil if resource can be locked, and otherwise an ErrConfig that begins with name.
	CheckResource(name, resource string) error

	// WhyWaiting returns the reason why calls of Lock or Do in this process wait for a resource, or calls of LockAny
	// for a name. If no call waits, or none of their attempts has failed yet, the result is nil. If the process has
	// the resource itself, the error matches ErrTaken. Otherwise it is the *QuorumError of the last attempt.
	WhyWaiting(resource string) error

	// Waiting returns what calls of Lock and Do, and waits for permits, wait for.
	Waiting() []door.Wait

	// Settings returns the settings of a lease with some options. The error is that of Lock.
	Settings(opts ...redlock.LockOption) (door.Settings, error)

	// Logger returns the logger of WithLogger, or the slog.Default of this moment.
	Logger() *slog.Logger

	// Done returns a channel that is closed when Close is called.
	Done() <-chan struct{}

	// LockAny returns a lease on one of the resources name~1 to name~n, whichever is free first.
	LockAny(ctx context.Context, name string, n int, opts ...redlock.LockOption) (*redlock.Lease, error)
}

// WithClock sets the clock of a Locker, for tests: see door.Clock.
func WithClock(source clock.Source) redlock.Option { return door.Clock(source).(redlock.Option) }

// Of returns the methods of a Locker, and panics if New has not made it.
func Of(l *redlock.Locker) Locker { return door.Inside(l).(Locker) }

// Campaign is an Elector of package election whose Run has not returned.
type Campaign struct {
	Locker   *redlock.Locker
	Election string      // the resource
	Leads    func() bool // whether this process leads
}

// Campaigns has each *Campaign of the process as a key.
var Campaigns sync.Map
