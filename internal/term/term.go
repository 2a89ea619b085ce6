// Package term decides until when a lease lasts, and what is due by then. It does no I/O, and knows no clock, goroutine
// or mutex: the caller passes the present moment, and for how long the clock is known to have stood still in all.
package term

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/rules"
)

// Term is the time of a lease, as a state machine. Before the grant it is Standing and has no deadline yet.
//
// Source: ALGORITHM sections 6, 7 and 11.
type Term struct {
	options *Options
	rules   *rules.Rules

	phase    Phase
	ends     atomic.Int64  // the deadline D, an instant; the one field that is read without the grant's mutex
	uncapped instant       // the deadline without a maximum hold
	since    instant       // when the time of the present holder began
	stood    time.Duration // for how long the clock had stood still in all when the deadline was last set
	renewAt  instant       // when the next renewal begins
	keptTo   instant       // if Kept: the end of the minimum hold, by a clock that has never stood still
	dropAt   instant       // if Broken: when the keys are dropped
	cause    error         // why the lease is over; nil while it is not
}

type instant = clock.Instant

// Options are the options that the term of a lease depends on.
type Options struct {
	TTL         time.Duration
	NodeTimeout time.Duration // 0: derived from the TTL
	Grace       time.Duration
	MaxHold     time.Duration // 0: no bound
	Manual      bool          // no renewal
}

// Timeout returns the node timeout of a call.
//
// Source: ALGORITHM section 1, "NodeTimeout".
func (o *Options) Timeout() time.Duration {
	if o.NodeTimeout > 0 {
		return o.NodeTimeout
	}
	return min(250*time.Millisecond, o.TTL/10)
}

// Phase is how far a lease has come. It moves as phases says.
type Phase uint8

// The phases.
const (
	Standing Phase = iota // a holder has the lease, or will have it
	Kept                  // the holder has unlocked before the end of the minimum hold, and the library keeps the lease
	Broken                // the lease was taken away by Break, and its keys are dropped when the holder has wound down
	Over
)

// phases are the phases that may follow a phase.
var phases = [...][]Phase{
	Standing: {Kept, Broken, Over},
	Kept:     {Standing, Broken, Over}, // Standing: another caller of the process has got the lease
	Broken:   {Over},
	Over:     {},
}

// Causes with which a lease ends that its term knows of.
var (
	ErrExpired    = lost(reason.Expired)
	ErrStoodStill = reason.Errorf("%w: %w", ErrExpired, reason.Suspended)
	ErrMaxHold    = lost(reason.MaxHold)
	ErrBroken     = reason.Errorf("%w: %w: %w", reason.Lost, reason.QuorumLost, reason.Broken)
)

func lost(why error) error { return reason.Errorf("%w: %w", reason.Lost, why) }

// Duty is an action that is due for a lease.
type Duty uint8

// The duties.
const (
	Nothing  Duty = iota
	ToEnd         // the deadline has come, or comes so soon that the holder's context ends
	ToRenew       // a renewal begins
	ToUnlock      // the minimum hold is over: the library unlocks the lease
	ToDrop        // the holder of a broken lease has wound down: the keys go
)

// enter moves the lease to a phase, if that may follow.
func (t *Term) enter(p Phase) {
	if slices.Contains(phases[t.phase], p) {
		t.phase = p
	}
}

// Init makes the term of a lease with some options.
func (t *Term) Init(o *Options, r *rules.Rules) {
	t.options, t.rules = o, r
	t.ends.Store(math.MinInt64) // a clock may show anything
	t.uncapped = math.MinInt64
}

// Begin sets when the time of the first holder begins.
func (t *Term) Begin(since instant) { t.since = since }

// Phase returns how far the lease has come.
func (t *Term) Phase() Phase { return t.phase }

// Cause returns why the lease is over; nil while it is not.
func (t *Term) Cause() error { return t.cause }

// Deadline returns D. It may be called at any time by any goroutine.
func (t *Term) Deadline() clock.Instant { return instant(t.ends.Load()) }

// MayEnd reports whether the time of the holder may be over at now. It may be called at any time by any goroutine.
func (t *Term) MayEnd(now clock.Instant) bool {
	return now.Add(cancelLead(t.options.TTL)) >= t.Deadline()
}

// Uncapped returns the deadline without a maximum hold.
func (t *Term) Uncapped() clock.Instant { return t.uncapped }

// Stands reports whether the lease is neither broken nor over.
func (t *Term) Stands() bool { return t.phase < Broken }

// Extend takes the deadline that a quorum's yes is good for. The deadline never moves back.
//
// Source: ALGORITHM section 13, I8.
func (t *Term) Extend(d clock.Instant, stood time.Duration) {
	t.uncapped = max(t.uncapped, d)
	d = min(d, t.holdEnd())
	if d > t.Deadline() {
		t.ends.Store(int64(d))
		t.stood = stood
	}
}

// Shorten ends the lease at d at the latest: the nodes keep its keys no longer.
func (t *Term) Shorten(d clock.Instant) { t.ends.Store(min(t.ends.Load(), int64(d))) }

// holdEnd returns the end of the lease by its maximum hold, or never.
func (t *Term) holdEnd() instant {
	if t.options.MaxHold == 0 {
		return clock.Never
	}
	return t.since.Add(t.options.MaxHold)
}

// Renewed sets the renewal that follows a round that began at start, or the grant.
//
// Source: ALGORITHM section 1, "RenewEvery".
func (t *Term) Renewed(start clock.Instant) {
	every := t.options.TTL / 3
	t.renewAt = start.Add(every - rand.N(every/10))
}

// Hurry has the next renewal begin at a moment.
func (t *Term) Hurry(at clock.Instant) { t.renewAt = at }

// Failed takes the verdict on a round that too few nodes have extended.
//
// Source: ALGORITHM section 6, "Failure of a round".
func (t *Term) Failed(now clock.Instant) {
	left := t.Deadline().Sub(now)
	t.renewAt = now.Add(max(min(t.options.Timeout(), left/8), time.Millisecond))
}

// PassTo gives the lease to its next holder, whose time begins now. It reports whether the deadline has moved.
func (t *Term) PassTo(now clock.Instant) (moved bool) {
	t.enter(Standing)
	if t.options.MaxHold == 0 {
		return false
	}
	t.since = now
	t.ends.Store(int64(min(t.uncapped, t.holdEnd())))
	return true
}

// KeepFor keeps a lease whose holder has unlocked it, for the rest of its minimum hold. A correction of the clock,
// which a master's clock may have caused, ends leases earlier, and must not end a minimum hold earlier.
func (t *Term) KeepFor(left time.Duration, now clock.Instant, stood time.Duration) {
	t.enter(Kept)
	t.keptTo = now.Add(left - stood)
}

// KeptUntil returns when a lease that is kept is unlocked: just before its maximum hold, which would end the lease as lost.
func (t *Term) KeptUntil(stood time.Duration) clock.Instant {
	return min(t.keptTo.Add(stood), t.holdEnd().Add(-1))
}

// End ends the lease for a cause. An expired lease keeps its last moments, in which the holder winds down. So does
// a holder whose lease was taken away by Break, before the keys are dropped.
//
// Source: ALGORITHM section 5 ("D := 0 before anything is sent", "Break") and section 7.
func (t *Term) End(cause error, now clock.Instant) {
	t.cause = cause
	if cause == ErrBroken {
		t.enter(Broken)
		t.dropAt = now.Add(t.options.Grace + dropLead(t.options.TTL))
	} else {
		t.enter(Over)
	}
	if !errors.Is(cause, reason.Expired) && cause != ErrMaxHold {
		t.Shorten(now)
	}
}

// Expired returns why the lease is over at now, or nil if it is not.
func (t *Term) Expired(now clock.Instant, stood time.Duration) error {
	d := t.Deadline()
	switch {
	case !t.Stands() || !t.rules.Over(now >= d):
		return nil
	case d == t.holdEnd():
		return ErrMaxHold
	case now.Add(t.stood-stood) < d: // without the standstill the lease would be valid
		return ErrStoodStill
	}
	return ErrExpired
}

// Check returns what is due at now. It comes once: of a renewal that begins Check sets the next one, in case that no
// answer comes.
//
// Source: ALGORITHM sections 7 and 11 ("compare now with D first").
func (t *Term) Check(now clock.Instant, stood time.Duration) Duty {
	switch {
	case t.phase == Kept && now >= t.KeptUntil(stood):
		return ToUnlock
	case t.phase == Broken && now >= t.dropAt:
		t.enter(Over)
		return ToDrop
	case t.Expired(now.Add(t.Lead()), stood) != nil:
		return ToEnd
	case t.Stands() && t.renews() && now >= t.renewAt:
		left, timeout := t.Deadline().Sub(now), t.options.Timeout()
		t.renewAt = now.Add(min(timeout, max(left, timeout)/8))
		return ToRenew
	}
	return Nothing
}

// Due returns when to check the lease next; never if the lease is over.
func (t *Term) Due(stood time.Duration) clock.Instant {
	switch t.phase {
	case Broken:
		return t.dropAt
	case Over:
		return clock.Never
	}
	at := t.Deadline().Add(-t.Lead())
	if t.phase == Kept {
		at = min(at, t.KeptUntil(stood))
	}
	if t.renews() {
		at = min(at, t.renewAt)
	}
	return at
}

// Lead returns how long before the deadline the lease ends for its holder. A lease that is kept has none.
func (t *Term) Lead() time.Duration {
	if t.phase == Kept {
		return 0
	}
	return cancelLead(t.options.TTL)
}

// renews reports whether the lease is renewed in the background: it may be, and a renewal would still move its deadline.
func (t *Term) renews() bool { return !t.options.Manual && t.Deadline() < t.holdEnd() }

// cancelLead returns how long before the deadline the holder's context ends.
//
// Source: ALGORITHM section 1, "CancelLead".
func cancelLead(ttl time.Duration) time.Duration {
	return max(ttl/50, 5*time.Millisecond)
}

// dropLead returns how long after the end of the holder's context the keys of a broken lease are
// dropped, if the holder has not unlocked by then. In that time the holder winds down.
//
// Source: ALGORITHM section 5, "Break".
func dropLead(ttl time.Duration) time.Duration {
	return min(ttl/5, 200*time.Millisecond)
}
