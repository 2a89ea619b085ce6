// Package door is how other packages of the module get past the exported API of package redlock: admin to the nodes of a
// Locker, internal/telemetry to a Locker that is made, and tests to its lines.
package door

import (
	"context"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/node"
)

// Room is what package admin needs of a Locker.
type Room struct {
	Nodes  *node.Set
	Opened context.Context // ends when the Locker is closed
	Prefix string          // of all keys
	Quorum int
	Guard  bool // the restart guard is on
	Leave  func()

	// TellBroken tells the leases of this Locker on a resource which nodes have a placeholder in
	// the place of whose key: by index the token, or "".
	TellBroken func(resource string, taken []string)
}

// LeaseKey is the key of the innermost lease among the values of a context, for redlock.LeaseFrom. A value that is not of
// package redlock hides the leases outside.
type LeaseKey struct{}

// Made reports whether an argument is a Locker: it is not nil, and a *redlock.Locker was made by New. Package redlock sets
// Made.
var Made func(locker any) bool

// Inside returns an inside.Locker of package internal/inside. Package redlock sets Inside.
var Inside func(locker any) any

// Terms makes what package semaphore needs of several: its terms, of a *redlock.Locker and a []redlock.LockOption. Package
// several sets Terms.
var Terms func(locker, opts any) (any, error)

// Settings are the values of the options for one lease: those of New and of the call together.
type Settings struct {
	TTL           time.Duration // how long a master keeps the key that is not renewed
	MaxTTL        time.Duration // the largest TTL of any lease
	MasterTimeout time.Duration // how long one master may take to answer
	Grace         time.Duration // by how much the lease ends earlier for its holder
	MaxHold       time.Duration // bound on the life of the lease; 0 for none
	MinHold       time.Duration // how long the resource stays taken at least
	Quarantine    time.Duration // how long a master that is new or has lost data has no vote
	Renewed       bool          // in the background: WithoutRenewal was not given
	Reentry       bool          // WithReentry was given
	Shared        bool          // Shared was given
	Owner         string        // label of WithOwner; "" for none
	Clock         clock.Source  // of the Locker

	QuarantineWait time.Duration // how long TryLock may wait for masters in quarantine
}

// Wait is what calls of a process wait for.
type Wait struct {
	Resource string
	Mode     string // as redlock.Mode
	Calls    int
	Since    time.Time // of the call that comes first
	Own      bool      // the process has the resource itself
	Why      error     // why the last attempt failed; nil if none has
}

// GiveBack unlocks leases, and does not wait for the masters' answers. It skips nil.
func GiveBack[L interface {
	comparable
	Unlock(context.Context) error
}](leases ...L) {
	var none L
	for _, le := range leases {
		if le != none {
			go func() { _ = le.Unlock(context.Background()) }()
		}
	}
}

// Enter begins a call on a Locker, which is a *redlock.Locker. The caller calls Leave at its end.
// The error is that of a closed Locker. Package redlock sets Enter.
var Enter func(locker any) (Room, error)

// Sight is what tests look at in a Locker.
type Sight struct {
	QueueNode func(resource string) int        // index of the node that keeps the queue, as far as the Locker knows
	Lines     func() int                       // resources that the Locker holds, or has callers for
	Asking    func() (attempts, admitting int) // how many ask the nodes, and how many wait for admission
}

// Look returns a view of a Locker, which is a *redlock.Locker. Package redlock sets Look.
var Look func(locker any) Sight

// Clock returns a redlock.Option that sets the clock of a Locker, for tests: the present one goes on in suspend. Now is called
// under mutexes: it must not go back, block or call the Locker. Package redlock sets Clock.
//
// Source: ALGORITHM section 11.
var Clock func(source clock.Source) any

// Watched returns a redlock.Option that adds a redlock.Observer to a Locker, and calls made, a
// func(*redlock.Locker), with the Locker once New has made it. Package redlock sets Watched.
var Watched func(observer, made any) any
