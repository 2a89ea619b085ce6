package redlock

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// Bounds and defaults of the options.
//
// Source: ALGORITHM section 1.
const (
	DefaultTTL       = 10 * time.Second
	DefaultMaxTTL    = 10 * time.Second
	DefaultDrift     = 0.01
	DefaultKeyPrefix = "redlock:"

	MinTTL            = 50 * time.Millisecond // shortest TTL of a lock
	LongestMaxTTL     = 24 * time.Hour        // largest value of WithMaxTTL
	MaxResourceLength = 512                   // bytes in the name of a resource
	MinDrift          = 0.001
	MaxDrift          = 0.25

	minNodeTimeout     = time.Millisecond
	defaultNodeTimeout = 250 * time.Millisecond
	maxKeyPrefix       = 256
)

// Option sets up a [Locker].
type Option interface{ apply(*config) }

// LockOption changes one call of Lock, TryLock or Do. Every LockOption is an
// [Option] too: given to New it holds for all calls.
type LockOption interface {
	Option
	applyLock(*lockConfig)
}

// config is what New was given. lockConfig is the part of it that a call may
// change.
type config struct {
	lockConfig
	maxTTL    time.Duration
	drift     float64
	keyPrefix string
	observers []Observer
	tracer    Tracer
	foreign   foreign
	clock     *clock.Lease
	guard     bool // restart guard
	trusted   bool // the nodes' disks
	logger    func() *slog.Logger
	rules     rules
	queue     queuePolicy
}

type lockConfig struct {
	ttl         time.Duration
	nodeTimeout time.Duration // 0: derived from the TTL
	grace       time.Duration
	maxHold     time.Duration // 0: no bound
	manual      bool          // no renewal
	reentry     bool

	timeoutSet, maxHoldSet, manualSet bool // given at this level, to tell a contradiction
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

type lockOption func(*lockConfig)

func (o lockOption) apply(c *config)         { o(&c.lockConfig) }
func (o lockOption) applyLock(c *lockConfig) { o(c) }

// WithTTL sets how long a node keeps the key of a lease that is not renewed, 10 s
// by default, from [MinTTL] to the value of [WithMaxTTL]. It is rounded up to
// whole milliseconds where it is sent to a node. A holder that dies blocks the
// resource for at most this long.
func WithTTL(ttl time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.ttl = ttl })
}

// WithoutRenewal leaves the lease to end with its TTL, unless Extend is called.
// By default it is renewed every third of the TTL. A lease without renewal learns of a
// [Locker.Break] by another Locker from Extend alone. It contradicts [WithMaxHold].
func WithoutRenewal() LockOption {
	return lockOption(func(c *lockConfig) { c.manual, c.manualSet = true, true })
}

// WithMaxHold bounds the whole life of a lease, renewals and Extend included:
// at its end the lease is lost with [ErrMaxHold]. A lease that was handed over from
// another caller counts from then. It must be at least the TTL;
// there is no bound by default.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.maxHold, c.maxHoldSet = d, true })
}

// WithGrace ends every lease this much earlier for its holder than for everybody
// else, so that messages sent by the holder at the last moment can still arrive
// before there is another one. It is 0 by default and at most a quarter of the TTL.
func WithGrace(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.grace = d })
}

// WithReentry lets Lock and TryLock, when their context descends from the context
// of a lease of the same Locker and resource, return another handle of that lease
// at once. The lease is released when as many handles are unlocked as were given
// out. Without it such a call fails with [ErrReentry].
func WithReentry() LockOption {
	return lockOption(func(c *lockConfig) { c.reentry = true })
}

// WithNodeTimeout sets how long one node may take to answer one request: the
// smaller of 250 ms and a tenth of the TTL by default, from 1 ms to a quarter of
// the TTL. Connecting to a node may take four times as long, in the background.
func WithNodeTimeout(d time.Duration) Option {
	return option(func(c *config) {
		c.nodeTimeout, c.timeoutSet = d, true
	})
}

// WithMaxTTL sets the largest TTL that any client of these masters uses, 10 s by
// default and from [MinTTL] to [LongestMaxTTL]. All clients must have the same
// value, as it bounds how long a key can outlive its holder: a node that may have
// forgotten keys is safe again after that time. A larger TTL is refused. A client with a
// larger value raises it on the nodes for good, for every client, and with it the
// quarantine of a node that is new or has restarted within that time.
func WithMaxTTL(d time.Duration) Option { return option(func(c *config) { c.maxTTL = d }) }

// WithDrift sets the part of a TTL, from [MinDrift] to [MaxDrift], by which the
// clocks of a client and a node may run apart over one lease; [DefaultDrift] is
// 1 %. Each lease is shorter by that part and 2 ms. Raise it where a clock is
// corrected by more than 0.5 %, as chrony may.
func WithDrift(factor float64) Option { return option(func(c *config) { c.drift = factor }) }

// WithKeyPrefix sets what comes before the resource in the key on the nodes,
// [DefaultKeyPrefix] by default, 256 bytes at most. Clients exclude each other
// only if they use the same prefix. With "" the key is the bare resource. A resource whose
// key, prefix and all, ends as the library's own keys do is refused with [ErrConfig], see
// [Locker.Lock].
func WithKeyPrefix(prefix string) Option { return option(func(c *config) { c.keyPrefix = prefix }) }

// WithObserver has o told of what happens, see [Observer]. Given more than once, all are
// told, in that order.
func WithObserver(o Observer) Option {
	return option(func(c *config) { c.observers = append(c.observers, o) })
}

// WithClock sets the clock that validities are judged by: [SystemClock] by
// default. It is there for tests, which give [RuntimeClock] or one of their own.
func WithClock(source Clock) Option {
	return option(func(c *config) {
		if c.clock = nil; source != nil {
			c.clock = clock.NewLease(source)
		}
	})
}

// WithoutRestartGuard lets a master vote at once after it restarted, was emptied or lost a
// key. This is unsafe: if one that had helped to grant a lease comes back without the key, another
// client can be granted the resource while the lease is valid. It is there for tests,
// and for a single master whose loss of data is meant to free all locks.
//
// The loss of a key that was noticed is told to the [Observer] (NodeForgot) and changes nothing.
// Clocks are watched all the same: this Locker does not count the vote of a master whose clock
// was stepped until the keys that it can have dropped would have expired (10.3 s by default), and
// nothing shortens that, as there is no [Locker.Bootstrap].
//
// All clients of some masters need the guard, or it guards none of them.
//
// Source: ALGORITHM section 8.
func WithoutRestartGuard() Option { return option(func(c *config) { c.guard = false }) }

// WithTrustedDisk lets a master vote at once after it restarted, if it still has its data.
// That is safe only where each write is on disk before it is answered, and where no replica
// can take the master's place: one that was promoted lacks the last writes and is not told
// from a restart any more.
//
// A master is trusted if INFO and CONFIG GET say so when it is connected to, and did so when
// this Locker was connected to it before: "appendonly yes", "appendfsync always" and
// "no-appendfsync-on-rewrite no". So keep these in its configuration file, and allow the
// user +config|get. [Locker.Check] says what is missing. A master that comes back empty is
// still caught.
//
// Source: ALGORITHM section 8, "TrustDisk".
func WithTrustedDisk() Option { return option(func(c *config) { c.trusted = true }) }

// WithLogger sets where a Locker says what an operator should know and no error tells:
// why a Lock waits for masters in quarantine, what is wrong with a master, a clock
// that was stepped, a callback that panicked. By default that is [slog.Default] of the
// moment. A nil logger silences it. A panic of the handler is recovered.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return option(func(c *config) { c.logger = func() *slog.Logger { return l } })
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		lockConfig: lockConfig{ttl: DefaultTTL},
		maxTTL:     DefaultMaxTTL,
		drift:      DefaultDrift,
		keyPrefix:  DefaultKeyPrefix,
		clock:      clock.NewLease(SystemClock()),
		guard:      true,
		logger:     slog.Default,
		rules:      algorithm(),
		queue:      defaultQueuePolicy,
	}
	for i, o := range opts {
		if o == nil {
			return nil, configErrorf("option %d is nil", i+1)
		}
		o.apply(c)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.manualSet, c.maxHoldSet = false, false
	return c, nil
}

// rule is one line of a table of bounds: what must hold, and what to say.
type rule struct {
	ok  bool
	msg string
}

func firstBroken(rules []rule) error {
	for _, r := range rules {
		if !r.ok {
			return configErrorf("%s", r.msg)
		}
	}
	return nil
}

func (c *config) validate() error {
	err := firstBroken([]rule{
		{c.maxTTL >= MinTTL && c.maxTTL <= LongestMaxTTL,
			fmt.Sprintf("WithMaxTTL(%v): must be from %v to %v", c.maxTTL, MinTTL, LongestMaxTTL)},
		{c.drift >= MinDrift && c.drift <= MaxDrift, // false for NaN
			fmt.Sprintf("WithDrift(%v): must be from %v to %v", c.drift, MinDrift, MaxDrift)},
		{len(c.keyPrefix) <= maxKeyPrefix,
			fmt.Sprintf("WithKeyPrefix of %d bytes: must be at most %d", len(c.keyPrefix), maxKeyPrefix)},
		{c.clock != nil, "WithClock(nil): there must be a clock"},
		{c.guard || !c.trusted, "WithTrustedDisk relaxes the restart guard, which WithoutRestartGuard switches off: give one of them"},
	})
	if err != nil {
		return err
	}
	return c.lockConfig.validate(c)
}

// validate checks what a call may change, against the TTL of that call.
func (c *lockConfig) validate(of *config) error {
	drift := driftAllowance(c.ttl, of.drift)
	return firstBroken([]rule{
		{c.ttl >= MinTTL, fmt.Sprintf("WithTTL(%v): must be at least %v", c.ttl, MinTTL)},
		{c.ttl <= of.maxTTL, fmt.Sprintf("TTL of %v: must be at most %v, the value of WithMaxTTL", c.ttl, of.maxTTL)},
		{!c.timeoutSet || c.nodeTimeout >= minNodeTimeout && c.nodeTimeout <= c.ttl/4,
			fmt.Sprintf("WithNodeTimeout(%v): must be from %v to %v, a quarter of the TTL", c.nodeTimeout, minNodeTimeout, c.ttl/4)},
		{c.grace >= 0 && c.grace <= c.ttl/4,
			fmt.Sprintf("WithGrace(%v): must be from 0 to %v, a quarter of the TTL", c.grace, c.ttl/4)},
		{c.ttl-drift-c.grace > c.minValidity(),
			fmt.Sprintf("drift of %v and WithGrace(%v): must leave more than half of the TTL of %v", drift, c.grace, c.ttl)},
		{!c.maxHoldSet && c.maxHold == 0 || c.maxHold >= c.ttl,
			fmt.Sprintf("WithMaxHold(%v): must be at least %v, the TTL", c.maxHold, c.ttl)},
		{!c.maxHoldSet || !c.manualSet, "WithMaxHold bounds renewal, which WithoutRenewal switches off: give one of them"},
	})
}

// forCall is the configuration of one call.
func (c *config) forCall(opts []LockOption) (lockConfig, error) {
	if len(opts) == 0 {
		return c.lockConfig, nil
	}
	lc := c.lockConfig
	for i, o := range opts {
		if o == nil {
			return lc, configErrorf("lock option %d is nil", i+1)
		}
		o.applyLock(&lc)
	}
	return lc, lc.validate(c)
}

// timeout is the node timeout of a call.
//
// Source: ALGORITHM section 1, "NodeTimeout".
func (c *lockConfig) timeout() time.Duration {
	if c.nodeTimeout > 0 {
		return c.nodeTimeout
	}
	return min(defaultNodeTimeout, c.ttl/10)
}

// nodeTimeoutOfAll bounds one exchange with a node: the node timeout of the longest lock
// there may be.
func (c *config) nodeTimeoutOfAll() time.Duration {
	longest := c.lockConfig
	longest.ttl = c.maxTTL
	return longest.timeout()
}

// minValidity is what must be left of a lease when it is handed to the caller.
//
// Source: ALGORITHM section 1, "MinValidity".
func (c *lockConfig) minValidity() time.Duration { return c.ttl / 2 }
