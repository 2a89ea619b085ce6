package redlock

import (
	"errors"
	"sync/atomic"
	"time"
)

// outageNotice is how long attempts must have found no quorum before the log says so.
const outageNotice = time.Second

// outage tells the log, once, that no attempt finds a quorum of a group's masters, and that one does again:
// it was granted, or a quorum has another holder's key.
// Without it a Lock without a deadline would wait in silence, for example for an address that is wrong.
// Quarantines are told by events.waiting.
type outage struct {
	since atomic.Pointer[instant] // of the first attempt that found none; nil: the last attempt found one
	told  atomic.Bool
}

// note notes the result of an attempt.
func (o *outage) note(p *pool, f *failure) {
	switch {
	case f == nil || f.verdict != nil && f.verdict.HeldByQuorum():
		o.over(p)
	case errors.Is(f.err, ErrTaken): // masters may be down all the same
		if !o.told.Load() {
			o.since.Store(nil)
		}
	case f.verdict == nil || !errors.Is(f.err, ErrNoQuorum) || errors.Is(f.err, ErrQuarantine):
	case o.lasts(p.now()):
		p.events.log("no quorum of the masters gives a usable answer; calls of Lock go on trying", "reason", Reason(ErrNoQuorum), "masters", f.verdict.answers())
	}
}

// lasts reports whether the log has to be told of the outage now.
func (o *outage) lasts(now instant) bool {
	o.since.CompareAndSwap(nil, &now)
	since := o.since.Load()
	return since != nil && now.Sub(*since) >= outageNotice && o.told.CompareAndSwap(false, true)
}

func (o *outage) over(p *pool) {
	if o.since.Load() == nil { // the usual case
		return
	}
	since := o.since.Swap(nil)
	if o.told.Swap(false) && since != nil {
		p.events.inform("a quorum of the masters answers again", "after", p.now().Sub(*since).Round(time.Millisecond))
	}
}
