package redlock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// outageNotice is how long attempts must have found no quorum before the log says so.
const outageNotice = time.Second

// outage tells the log, once, that no attempt finds a quorum of a group's masters, and that one does again.
// Without it a Lock without a deadline would wait in silence, for example for an address that is wrong.
// Quarantines are told by events.waiting.
type outage struct {
	since atomic.Int64 // of the first attempt that found none, ns since 1970; 0: the last attempt found one
	told  atomic.Bool
}

// note notes the result of an attempt.
func (o *outage) note(ev *events, f *failure) {
	switch {
	case f == nil || f.verdict != nil && errors.Is(f.err, ErrTaken):
		o.over(ev)
	case f.verdict == nil || !errors.Is(f.err, ErrNoQuorum) || errors.Is(f.err, ErrQuarantine):
	case o.lasts():
		ev.log("no quorum of the masters gives a usable answer; calls of Lock go on trying", "masters", f.verdict.answers())
	}
}

// lasts reports whether the log has to be told of the outage now.
func (o *outage) lasts() bool {
	now := time.Now()
	o.since.CompareAndSwap(0, now.UnixNano())
	return now.Sub(time.Unix(0, o.since.Load())) >= outageNotice && o.told.CompareAndSwap(false, true)
}

func (o *outage) over(ev *events) {
	if o.since.Load() == 0 {
		return
	}
	since := o.since.Swap(0)
	if o.told.Swap(false) {
		ev.inform("a quorum of the masters answers again", "after", time.Since(time.Unix(0, since)).Round(time.Millisecond))
	}
}

// answers returns what each master said, as text.
func (e *QuorumError) answers() []string {
	list := make([]string, len(e.Nodes))
	for i, n := range e.Nodes {
		list[i] = fmt.Sprintf("%s: %v", n.Node, n.Err)
	}
	return list
}
