package redlock

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/term"
	"github.com/d0720281/redlock/internal/wire"
)

// Bounds and defaults of the options. Source: ALGORITHM section 1.
const (
	DefaultTTL       = 10 * time.Second
	DefaultMaxTTL    = 10 * time.Second
	DefaultDrift     = 0.01
	DefaultKeyPrefix = "redlock:"

	MinTTL            = 50 * time.Millisecond // shortest TTL of a lock
	MaxResourceLength = 512                   // bytes in the name of a resource
	MaxOwnerLength    = wire.MaxLabel         // bytes in a label of WithOwner: 64
	MinDrift          = 0.001
	MaxDrift          = 0.25

	maxMaxTTL      = 24 * time.Hour
	minNodeTimeout = time.Millisecond
	maxKeyPrefix   = 256
)

// Option sets up a [Locker].
type Option interface{ apply(*config) }

// LockOption changes one call of Lock, TryLock, Do, Adopt or Extend. Given to [New], it holds for all calls.
type LockOption interface {
	Option
	applyLock(*lockConfig)
}

// config has the options given to New. lockConfig is the part that a call may change.
type config struct {
	lockConfig
	maxTTL    time.Duration
	drift     float64
	keyPrefix string
	observers []Observer
	made      []func(*Locker) // called by New
	tracer    Tracer
	clock     *clock.Lease
	guard     bool // restart guard
	trusted   bool // the nodes' disks
	logger    func() *slog.Logger
	rules     *rules.Rules
}

type lockConfig struct {
	term.Options
	minHold   time.Duration
	votesWait time.Duration // of one attempt, for masters in quarantine
	reentry   bool
	shared    bool   // the lease of a reader
	several   int    // of LockAny: the number of resources; otherwise 0
	owner     string // label of the lease; "": none

	ttlSet, timeoutSet, maxHoldSet, manualSet bool // by the options of New, or by those of this call: two that exclude each other must not come together
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

type lockOption func(*lockConfig)

func (o lockOption) apply(c *config)         { o(&c.lockConfig) }
func (o lockOption) applyLock(c *lockConfig) { o(c) }

// WithTTL sets how long a master keeps the key of a lease that is not renewed. A holder that dies
// blocks the resource for at most this long. The TTL is from [MinTTL] to the value of [WithMaxTTL],
// by default 10 s, or that value if it is less. The masters get it rounded up to whole
// milliseconds.
func WithTTL(ttl time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.TTL, c.ttlSet = ttl, true })
}

// WithoutRenewal turns off the background renewal, which is every third of the TTL. The lease ends with its
// TTL, unless Extend is called. Its holder learns from Extend alone that the lease was broken (Break of package
// admin). [WithMaxHold] is refused among the same options.
func WithoutRenewal() LockOption {
	return lockOption(func(c *lockConfig) { c.Manual, c.manualSet = true, true })
}

// WithMaxHold bounds the whole life of a lease, renewals and Extend included. A lease that reaches the bound is
// lost with [ErrMaxHold]. If another caller handed the lease over, the time counts from the hand-over. The
// bound must be at least the TTL. By default there is none, as with the largest Duration.
func WithMaxHold(d time.Duration) LockOption {
	if d == math.MaxInt64 {
		return lockOption(func(c *lockConfig) { c.MaxHold, c.maxHoldSet = 0, false })
	}
	return lockOption(func(c *lockConfig) { c.MaxHold, c.maxHoldSet = d, true })
}

// WithMinHold keeps a resource taken for at least d after its lease was granted or handed over, for work that
// is sometimes shorter than the clocks of its machines differ. An Unlock before that ends the lease for the
// holder, and returns nil at once. The library renews the keys until d is over or [Locker.Close]. If the
// process dies, they stay for the rest of the TTL. A lease that was lost is not kept. By default d is 0. It
// must be less than the value of [WithMaxHold], and with [WithoutRenewal] less than half of the TTL.
func WithMinHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.minHold = d })
}

// WithGrace ends every lease d earlier for its holder than for other processes: time for the last messages of
// the holder. It is 0 by default and at most a quarter of the TTL.
func WithGrace(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.Grace = d })
}

// WithQuarantineWait lets [Locker.TryLock] wait for masters in quarantine before its attempt, 0 by default. It
// is for work that is due once, such as a nightly job: masters that restarted count their quarantine from the
// first request of a client, which may be that of the job. TryLock waits only if the quarantines end within d
// of the start of the call and before the deadline of its context. Otherwise it fails at once with
// [ErrQuarantine]. Masters that refuse the call for another such attempt are asked again for up to a third of a
// second. TryLock never waits for another holder, and [Locker.Lock] waits for a quarantine in any case.
func WithQuarantineWait(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.votesWait = d })
}

// WithReentry allows nested calls. If the context of Lock or TryLock descends from the context of a lease of
// the same Locker and resource, the call returns another hold on that lease at once. The lease is released when
// all its holds are unlocked. Without WithReentry such a call fails with [ErrReentry].
//
// The library does not recognize a nested call with another context, or of another Locker: Lock waits until its
// context ends. A nested call for a reader ([Shared]) under a writer's lease returns a hold that still keeps
// readers out.
func WithReentry() LockOption {
	return lockOption(func(c *lockConfig) { c.reentry = true })
}

// WithOwner labels the leases with their owner, for people: "web-3 4711 nightly", for example. By default the
// label is host:pid:program, and with "" there is none. It has at most [MaxOwnerLength] bytes of UTF-8:
// printable characters and spaces, but no "|". The masters keep it with the key. Package admin shows it, and so
// does the error of a caller that is refused because of the lease ([QuorumError.Holder]).
//
// The holder chooses its label, so nothing may be decided by it. All clients of the masters can read it. A
// lease is handed over only to a caller of the process with the same label.
func WithOwner(label string) LockOption {
	return lockOption(func(c *lockConfig) { c.owner = label })
}

// ownLabel is the default of WithOwner.
var ownLabel = sync.OnceValue(func() string {
	host, _ := os.Hostname() // "" on an error
	return wire.LabelOf(host, os.Getpid(), filepath.Base(os.Args[0]))
})

// WithMasterTimeout sets how long one master may take to answer one request, from 1 ms to a
// quarter of the TTL. By default it is a tenth of the TTL, and 250 ms at most. Connecting to a
// master may take four times as long, in the background, and looking up its name before that 6 s.
func WithMasterTimeout(d time.Duration) Option {
	return option(func(c *config) { c.NodeTimeout, c.timeoutSet = d, true })
}

// WithMaxTTL sets the largest TTL that any client of these masters uses: 10 s by default, from [MinTTL] to 24
// hours. A larger TTL is refused. All clients must have the same value, because it bounds how long a key can
// outlive its holder: a master that may have lost keys is safe again after that time.
//
// A client that hears from a master of a larger TTL than its own value warns, and counts with it until two
// quarantines for it are over since it was last asked for. A client that no master has told counts with its own
// value. So raise the value of all clients first, and their TTLs in a second deployment; go back in the other
// order, and wait for the larger TTL in between. Source: ALGORITHM section 8, "MaxTTL".
func WithMaxTTL(d time.Duration) Option { return option(func(c *config) { c.maxTTL = d }) }

// WithDrift sets the part of a TTL by which the clocks of a client and a master may run apart during one lease:
// from [MinDrift] to [MaxDrift], by default [DefaultDrift], which is 1 %. Each lease is shorter by that part
// and 2 ms. Raise it if a clock may be corrected by more than 0.5 %, for example by chrony. Clients may have
// different values: each shortens its own leases. The quarantine of a master grows with the largest one.
func WithDrift(factor float64) Option { return option(func(c *config) { c.drift = factor }) }

// WithKeyPrefix sets the prefix of all keys on the masters: [DefaultKeyPrefix] by default, 256 bytes at most.
// Clients exclude each other only if they use the same prefix. [Locker.Lock] describes the keys that it
// refuses. A prefix that was never used on the masters is a new deployment: they have no vote for it during a
// quarantine. No prefix in use should begin another one: with "app:" and "app:eu:" the resource "eu:x" of the
// first has the keys of the resource "x" of the second, and the clients of one prefix do not learn what those
// of the other find out about a master.
func WithKeyPrefix(prefix string) Option { return option(func(c *config) { c.keyPrefix = prefix }) }

// WithObserver adds an [Observer], which must not be nil. Several observers are called in the order
// in which they were given.
func WithObserver(o Observer) Option {
	return option(func(c *config) { c.observers = append(c.observers, o) })
}

// withClock sets the clock by which the library judges validities, for tests. The default is CLOCK_BOOTTIME on Linux, which
// goes on while the machine is suspended. Elsewhere, and in a testing/synctest bubble, it is that of package time.
func withClock(source clock.Source) Option {
	return option(func(c *config) { c.clock = clock.NewLease(source) })
}

// WithoutRestartGuard lets a master vote at once after it restarted, was emptied or lost a key. This is unsafe:
// if a master that helped to grant a lease comes back without the key, another client can be granted the
// resource while the lease is valid. It is for tests, and for a single master whose loss of data is meant to
// free all locks. No client of the masters may have it where the guard is to protect: such a client tells the
// masters nothing that they compare.
//
// A lost key is an [EventKeyLost], and nothing else happens. Clocks are watched all the same: this Locker does
// not count the vote of a master whose clock was stepped for 10.3 s by default. Bootstrap of package admin,
// which could shorten that, refuses this Locker. Source: ALGORITHM section 8.
func WithoutRestartGuard() Option { return option(func(c *config) { c.guard = false }) }

// WithTrustedDisk lets a master vote at once after it restarted, if it still has its data. That is safe only if
// each write is on disk before the master answers, and if no replica can take the master's place: a promoted
// replica lacks the last writes, and the library cannot distinguish it from a restarted master.
//
// Give it to all clients of the masters, or to none: the first client that asks a master after its restart
// decides for all. A client that was connected before, and finds that another one has decided otherwise, logs a
// warning.
//
// The library trusts a master if INFO and CONFIG GET report "appendonly yes", "appendfsync always" and
// "no-appendfsync-on-rewrite no", at this connection and at the one before. So keep these in its configuration
// file, and allow the user +config|get. Check of package admin reports what is missing. Source: ALGORITHM
// section 8, "TrustDisk".
func WithTrustedDisk() Option { return option(func(c *config) { c.trusted = true }) }

// WithLogger sets the logger: by default the [slog.Default] at the time of each line. A nil logger silences the
// library. The first call of the Locker asks whether the logger takes level Debug.
//
//   - Level Warn is for operators. Calls wait, because no attempt has found a quorum for a second or because
//     masters are in quarantine: "reason" has the word of [Reason], and "masters" the answer of each master.
//     Renewals find no quorum: "leases" has how many leases end, "first_ends_in" and "last_ends_in" when.
//     Events of a lost or dropped lease, of masters and of clocks follow. Of warnings of one kind with one
//     reason about one master, the library logs the first, after a second the last of those that came together
//     with it, and then one in 10 s; "more" has the number of the others.
//   - Level Info: a quorum votes again after an outage that was logged, with its length; a master is up again;
//     another client has another list of masters that does not conflict; the number of masters is even; a Lock
//     waits for another holder for 10 s, and then each minute: "holder" has its label, and "processes_before"
//     how many processes come first. If that holder is of its own process, the level is Warn.
//   - Level Debug: every other [Event], but [EventExchange] and a failed attempt of a call whose attempt before
//     failed for the same reason and holder.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return option(func(c *config) { c.logger = func() *slog.Logger { return l } })
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		lockConfig: lockConfig{owner: ownLabel()},

		maxTTL:    DefaultMaxTTL,
		drift:     DefaultDrift,
		keyPrefix: DefaultKeyPrefix,
		clock:     clock.NewLease(clock.System()),
		guard:     true,
		logger:    slog.Default,
		rules:     rules.New(),
	}
	for i, o := range opts {
		if o == nil {
			return nil, reason.Configf("option %d is nil", i+1)
		}
		o.apply(c)
	}
	if !c.ttlSet {
		c.TTL = min(DefaultTTL, max(c.maxTTL, MinTTL))
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.ttlSet, c.manualSet, c.maxHoldSet = false, false, false
	return c, nil
}

func (c *config) validate() error {
	switch {
	case c.maxTTL < MinTTL || c.maxTTL > maxMaxTTL:
		return reason.Configf("WithMaxTTL(%v): must be from %v to %v", c.maxTTL, MinTTL, maxMaxTTL)
	case !(c.drift >= MinDrift && c.drift <= MaxDrift): // NaN is out of bounds, too
		return reason.Configf("WithDrift(%v): must be from %v to %v", c.drift, MinDrift, MaxDrift)
	case len(c.keyPrefix) > maxKeyPrefix:
		return reason.Configf("WithKeyPrefix(%.16q): must have at most %d bytes, and has %d", c.keyPrefix, maxKeyPrefix, len(c.keyPrefix))
	case slices.ContainsFunc(c.observers, func(o Observer) bool { return o == nil }):
		return reason.Configf("WithObserver(nil): there must be an observer")
	case !c.guard && c.trusted:
		return reason.Configf("WithTrustedDisk relaxes the restart guard, which WithoutRestartGuard switches off: give one of them")
	}
	return c.lockConfig.validate(c)
}

// validate checks the options that a call may change, against the TTL of that call.
func (c *lockConfig) validate(of *config) error {
	drift := driftAllowance(c.TTL, of.drift)
	switch {
	case c.TTL < MinTTL:
		return reason.Configf("WithTTL(%v): must be at least %v", c.TTL, MinTTL)
	case c.TTL > of.maxTTL:
		return reason.Configf("TTL of %v: must be at most %v, the value of WithMaxTTL", c.TTL, of.maxTTL)
	case c.timeoutSet && (c.NodeTimeout < minNodeTimeout || c.NodeTimeout > c.TTL/4):
		return reason.Configf("WithMasterTimeout(%v): must be from %v to %v, a quarter of the TTL", c.NodeTimeout, minNodeTimeout, c.TTL/4)
	case c.Grace < 0 || c.Grace > c.TTL/4:
		return reason.Configf("WithGrace(%v): must be from 0 to %v, a quarter of the TTL", c.Grace, c.TTL/4)
	case c.TTL-drift-c.Grace <= c.minValidity():
		return reason.Configf("drift of %v and WithGrace(%v): must leave more than half of the TTL of %v", drift, c.Grace, c.TTL)
	case (c.maxHoldSet || c.MaxHold != 0) && c.MaxHold < c.TTL:
		return reason.Configf("WithMaxHold(%v): must be at least %v, the TTL", c.MaxHold, c.TTL)
	case c.minHold < 0:
		return reason.Configf("WithMinHold(%v): must not be negative", c.minHold)
	case c.several != 0 && (c.shared || c.reentry):
		return reason.Configf("Shared and WithReentry: a call for any of several resources cannot have them")
	case c.votesWait < 0:
		return reason.Configf("WithQuarantineWait(%v): must not be negative", c.votesWait)
	case c.MaxHold != 0 && c.minHold >= c.MaxHold:
		return reason.Configf("WithMinHold(%v): must be less than %v, the value of WithMaxHold", c.minHold, c.MaxHold)
	case c.Manual && c.minHold >= c.minValidity():
		return reason.Configf("WithMinHold(%v): must be less than %v, half of the TTL, as WithoutRenewal is given", c.minHold, c.minValidity())
	case c.owner != "" && !wire.IsLabel(c.owner):
		return reason.Configf("WithOwner(%.80q): must have at most %d bytes of printable characters and spaces, without |", c.owner, MaxOwnerLength)
	case c.maxHoldSet && c.manualSet:
		return reason.Configf("WithMaxHold bounds renewal, which WithoutRenewal switches off: give one of them")
	}
	return nil
}

// forCall returns the configuration of one call.
func (c *config) forCall(opts []LockOption) (lockConfig, error) {
	if len(opts) == 0 {
		return c.lockConfig, nil
	}
	lc := c.lockConfig
	for i, o := range opts {
		if o == nil {
			return lc, reason.Configf("lock option %d is nil", i+1)
		}
		o.applyLock(&lc)
	}
	err := lc.validate(c)
	lc.ttlSet, lc.manualSet, lc.maxHoldSet = false, false, false // the same values make the same lease
	return lc, err
}

// nodeTimeoutOfAll returns the bound on one exchange with a node: the node timeout of a lock
// with the largest TTL.
func (c *config) nodeTimeoutOfAll() time.Duration {
	longest := c.lockConfig
	longest.TTL = c.maxTTL
	return longest.Timeout()
}

// minValidity returns how much validity a lease must have left when the caller gets it.
//
// Source: ALGORITHM section 1, "MinValidity".
func (c *lockConfig) minValidity() time.Duration { return c.TTL / 2 }
