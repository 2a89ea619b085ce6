package redlock

import (
	"log/slog"
	"time"

	"github.com/d0720281/redlock/internal/node"
)

// This file has the methods that packages on top of a Locker need beside those of leases.
// Packages election and jobs use the exported API alone.

// Settings are the values of the options for one lease: those of [New] and of the call together.
type Settings struct {
	TTL           time.Duration // how long a master keeps the key that is not renewed
	MasterTimeout time.Duration // how long one master may take to answer
	Grace         time.Duration // by how much the lease ends earlier for its holder
	MaxHold       time.Duration // bound on the life of the lease; 0 for none
	MinHold       time.Duration // how long the resource stays taken at least
	Quarantine    time.Duration // how long a master that is new or has lost data has no vote; twice as long with several groups
	Renewed       bool          // in the background: WithoutRenewal was not given
	Reentry       bool          // WithReentry was given
	Owner         string        // label of WithOwner; "" for none
}

// Settings returns the settings of a lease that is acquired with opts. It asks no master.
// The error matches [ErrConfig] if [Locker.Lock] would refuse the options.
func (l *Locker) Settings(opts ...LockOption) (Settings, error) {
	lc, err := l.conf.forCall(opts)
	if err != nil {
		return Settings{}, err
	}
	return Settings{
		TTL:           lc.ttl,
		MasterTimeout: lc.timeout(),
		Grace:         lc.grace,
		MaxHold:       lc.maxHold,
		MinHold:       lc.minHold,
		Quarantine:    l.quarantine(),
		Renewed:       !lc.manual,
		Reentry:       lc.reentry,
		Owner:         lc.owner,
	}, nil
}

// quarantine returns how long the masters of a new deployment have no vote at most.
//
// Source: ALGORITHM section 1, "Quarantine"; section 8, "Groups".
func (l *Locker) quarantine() time.Duration {
	one := node.QuarantineFor(l.conf.maxTTL, l.conf.drift)
	if l.survey != nil {
		return 2 * one
	}
	return one
}

// CheckResource returns nil if resource can be locked: it has from 1 to [MaxResourceLength]
// bytes, and its key is none of the library's own keys. Otherwise it returns the error of
// [Locker.Lock], which matches [ErrConfig]. It asks no master.
func (l *Locker) CheckResource(resource string) error {
	return l.conf.checkResource("CheckResource", resource)
}

// WhyWaiting returns the reason why calls of [Locker.Lock] or [Locker.Do] in this process wait
// for a resource. It asks no master. If no call waits, or none of their attempts has failed yet,
// the result is nil. If the process has the resource itself, the error matches [ErrTaken].
// Otherwise it is the [*QuorumError] of the last attempt.
func (l *Locker) WhyWaiting(resource string) error {
	return l.groupOf(resource).waitlines.whyNot(resource)
}

// Logger returns the logger that [WithLogger] has set, for warnings of code that uses the
// Locker. A panic of its handler is recovered.
func (l *Locker) Logger() *slog.Logger { return l.conf.guardedLogger() }

// Done returns a channel that is closed when [Locker.Close] is called. From then on calls
// fail with [ErrClosed].
func (l *Locker) Done() <-chan struct{} { return l.groups[0].closing }
