package redlock

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/rules"
)

// term is until when a lease lasts, and what is due by then. It is a state machine: it knows no clock, network,
// goroutine or mutex. All its times are instants of the Clock that the caller passes, and stood is for how long that has
// stood still in all.
//
// A term before the grant is standing and has no deadline yet.
//
// Source: ALGORITHM sections 6, 7 and 11.
type term struct {
	options *termOptions
	rules   *rules.Rules

	phase    termPhase
	ends     atomic.Int64  // the deadline D, an instant; the one field that is read without the grant's mutex
	uncapped instant       // the deadline without WithMaxHold
	since    instant       // when the time of the present holder began
	stood    time.Duration // for how long the clock had stood still in all when the deadline was last set
	renewAt  instant       // when the next renewal begins
	keptTo   instant       // of kept: the end of the minimum hold, by a clock that has never stood still
	dropAt   instant       // of broken: when the keys are dropped
	cause    error         // why the lease is over; nil while it is not
}

// termOptions are the options that the term of a lease depends on.
type termOptions struct {
	ttl         time.Duration
	nodeTimeout time.Duration // 0: derived from the TTL
	grace       time.Duration
	maxHold     time.Duration // 0: no bound
	manual      bool          // no renewal
}

// timeout returns the node timeout of a call.
//
// Source: ALGORITHM section 1, "NodeTimeout".
func (o *termOptions) timeout() time.Duration {
	if o.nodeTimeout > 0 {
		return o.nodeTimeout
	}
	return min(250*time.Millisecond, o.ttl/10)
}

// termPhase is how far a lease has come. It moves as termPhases says.
type termPhase uint8

const (
	standing termPhase = iota // a holder has the lease, or will have it
	kept                      // the holder has unlocked before the end of the minimum hold, and the library keeps the lease
	broken                    // the lease was taken away by Break, and its keys are dropped when the holder has wound down
	over
)

// termPhases are the phases that may follow a phase.
var termPhases = [...][]termPhase{
	standing: {kept, broken, over},
	kept:     {standing, broken, over}, // standing: another caller of the process has got the lease
	broken:   {over},
	over:     {},
}

// duty is an action that is due for a lease.
type duty uint8

const (
	noDuty   duty = iota
	toEnd         // the deadline has come, or comes so soon that the holder's context ends
	toRenew       // a renewal begins
	toUnlock      // the minimum hold is over: the library unlocks the lease
	toDrop        // the holder of a broken lease has wound down: the keys go
)

// enter moves the lease to a phase, if that may follow.
func (t *term) enter(p termPhase) {
	if slices.Contains(termPhases[t.phase], p) {
		t.phase = p
	}
}

// init makes the term of a lease with some options.
func (t *term) init(o *termOptions, r *rules.Rules) {
	t.options, t.rules = o, r
	t.ends.Store(math.MinInt64) // a clock may show anything
	t.uncapped = math.MinInt64
}

// deadline returns D. It may be called at any time by any goroutine.
func (t *term) deadline() instant { return instant(t.ends.Load()) }

// stands reports whether the lease is neither broken nor over.
func (t *term) stands() bool { return t.phase < broken }

// extend takes a quorum's yes to requests with a TTL that were sent at start. The deadline never moves back.
//
// Source: ALGORITHM section 13, I8.
func (t *term) extend(start instant, ttl, drift, stood time.Duration) {
	d := deadline(start, ttl, drift, t.options.grace)
	t.uncapped = max(t.uncapped, d)
	d = min(d, t.holdEnd())
	if d > t.deadline() {
		t.ends.Store(int64(d))
		t.stood = stood
	}
}

// shorten ends the lease at d at the latest: the nodes keep its keys no longer.
func (t *term) shorten(d instant) { t.ends.Store(min(t.ends.Load(), int64(d))) }

// holdEnd returns the end of the lease by WithMaxHold, or never.
func (t *term) holdEnd() instant {
	if t.options.maxHold == 0 {
		return never
	}
	return t.since.Add(t.options.maxHold)
}

// renewed sets the renewal that follows a round that began at start, or the grant.
//
// Source: ALGORITHM section 1, "RenewEvery".
func (t *term) renewed(start instant) {
	every := t.options.ttl / 3
	t.renewAt = start.Add(every - rand.N(every/10))
}

// failed takes the verdict on a round that too few nodes have extended.
//
// Source: ALGORITHM section 6, "Failure of a round".
func (t *term) failed(now instant) {
	left := t.deadline().Sub(now)
	t.renewAt = now.Add(max(min(t.options.timeout(), left/8), time.Millisecond))
}

// passTo gives the lease to its next holder, whose time begins now. It reports whether the deadline has moved.
func (t *term) passTo(now instant) (moved bool) {
	t.enter(standing)
	if t.options.maxHold == 0 {
		return false
	}
	t.since = now
	t.ends.Store(int64(min(t.uncapped, t.holdEnd())))
	return true
}

// keepFor keeps a lease whose holder has unlocked it, for the rest of its minimum hold. A correction of the clock,
// which a master's clock may have caused, ends leases earlier, and must not end a minimum hold earlier.
func (t *term) keepFor(left time.Duration, now instant, stood time.Duration) {
	t.enter(kept)
	t.keptTo = now.Add(left - stood)
}

// keptUntil returns when a lease that is kept is unlocked.
func (t *term) keptUntil(stood time.Duration) instant {
	return min(t.keptTo.Add(stood), t.holdEnd().Add(-1))
}

// end ends the lease for a cause. An expired lease keeps its last moments, in which the holder winds down. So does
// a holder whose lease was taken away by Break, before the keys are dropped.
//
// Source: ALGORITHM section 5 ("D := 0 before anything is sent", "Break") and section 7.
func (t *term) end(cause error, now instant) {
	t.cause = cause
	if cause == errLostBroken {
		t.enter(broken)
		t.dropAt = now.Add(t.options.grace + dropLead(t.options.ttl))
	} else {
		t.enter(over)
	}
	if !errors.Is(cause, reason.Expired) && cause != errLostMaxHold {
		t.shorten(now)
	}
}

// expired returns why the lease is over at now, or nil if it is not.
func (t *term) expired(now instant, stood time.Duration) error {
	d := t.deadline()
	switch {
	case !t.stands() || !t.rules.Over(validity(d, now) <= 0):
		return nil
	case d == t.holdEnd():
		return errLostMaxHold
	case now.Add(t.stood-stood) < d: // without the standstill the lease would be valid
		return errLostStill
	}
	return errLostExpired
}

// check returns what is due at now. It comes once: of a renewal that begins check sets the next one, in case that no
// answer comes.
//
// Source: ALGORITHM sections 7 and 11 ("compare now with D first").
func (t *term) check(now instant, stood time.Duration) duty {
	switch {
	case t.phase == kept && now >= t.keptUntil(stood):
		return toUnlock
	case t.phase == broken && now >= t.dropAt:
		t.enter(over)
		return toDrop
	case t.expired(now.Add(t.lead()), stood) != nil:
		return toEnd
	case t.stands() && t.renews() && now >= t.renewAt:
		left, timeout := t.deadline().Sub(now), t.options.timeout()
		t.renewAt = now.Add(min(timeout, max(left, timeout)/8))
		return toRenew
	}
	return noDuty
}

// due returns when to check the lease next; never for one that is over.
func (t *term) due(stood time.Duration) instant {
	switch t.phase {
	case broken:
		return t.dropAt
	case over:
		return never
	}
	at := t.deadline().Add(-t.lead())
	if t.phase == kept {
		at = min(at, t.keptUntil(stood))
	}
	if t.renews() {
		at = min(at, t.renewAt)
	}
	return at
}

// lead returns how long before the deadline the lease ends for its holder. A lease that is kept has none.
func (t *term) lead() time.Duration {
	if t.phase == kept {
		return 0
	}
	return cancelLead(t.options.ttl)
}

// renews reports whether the lease is renewed in the background: it may be, and a renewal would still move its deadline.
func (t *term) renews() bool { return !t.options.manual && t.deadline() < t.holdEnd() }
