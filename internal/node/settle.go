package node

import (
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/wire"
)

// This file settles what may be left of a request on the node: a key that a lost request, or one that was refused in an
// unclear way, may have set. The release is repeated until the key is gone.

// refusedLocked takes the answer to an acquire: why is the error by which the master refused it, or
// nil. A request that has no reply may have set the key all the same.
func (n *Node) refusedLocked(r *Request, why error, whole bool, now clock.Instant) {
	if why == nil {
		if n.refusal.since != 0 {
			n.retries.sendNow(now, n.isDoubtful)
		}
		n.refusal.note(nil, now)
		return
	}
	tr := &r.Key.traffic[n.index]
	if tr.deadBy == 0 {
		tr.denied = denialBy(why, whole)
	}
	if tr.denied == doubtful { // a proxy may pass it on later than it answers
		tr.deadBy = max(tr.deadBy, n.set.watch.DeadBy(n.index, r.end()))
	}
	if lasting(why) == nil { // a lasting refusal may be of this key alone
		n.refusal.note(why, now)
	}
}

// isNeedless reports whether the node has nothing to release: it has refused the attempt. The release of
// a lease takes the process out of the queue all the same.
func (n *Node) isNeedless(r *Request) bool {
	denied := r.Key.traffic[n.index].denied
	return r.Op == wire.Release && (r.Process == "" && denied == taken || denied == undone && (r.Process == "" || r.Target == 0))
}

// isDoubtful reports whether a release is perhaps not needed.
func (n *Node) isDoubtful(r *Request) bool { return r.Key.traffic[n.index].denied == doubtful }

// settleLocked decides whether a release that was answered, or failed, has to be sent again.
func (n *Node) settleLocked(r *Request, err error, now clock.Instant) {
	denied := r.Key.traffic[n.index].denied
	switch {
	case err == nil || n.isNeedless(r):
	case denied == doubtful && n.refusal.goesOn(now):
		n.retries.drop(r)
		n.retryLocked(r, nextDoubt(now))
		return
	default:
		n.retryLocked(r, now.Add(firstPause))
		return
	}
	n.retries.drop(r)
	if deadBy := r.Key.traffic[n.index].deadBy; n.conf.Rules.Arrives(deadBy > now) {
		n.retryLocked(r, deadBy)
	}
}

// nextDoubt returns when a release is sent that is perhaps not needed, unless an acquire takes it along
// before: together with the others.
func nextDoubt(now clock.Instant) clock.Instant {
	return now - now%clock.Instant(doubtEvery) + 2*clock.Instant(doubtEvery)
}

// retryLocked keeps a release, once, until the key must have expired. A request that was sent
// before the release can set the key until its node timeout is over, and a lost request until its
// deadBy.
func (n *Node) retryLocked(r *Request, at clock.Instant) {
	if r.retry > 0 {
		return
	}
	if r.Op == wire.Rest {
		r.Process = wire.NoProcess // when the release is sent again, the process may not wait any more
	}
	last := max(r.queued.Add(r.Timeout), r.Key.traffic[n.index].deadBy)
	n.retries.add(retry{Request: r, at: at, until: last.Add(time.Duration(r.Key.life.Load())), wait: firstPause})
}

// pruneLocked ends the retries of keys that have expired by now.
func (n *Node) pruneLocked(now clock.Instant, out *outcomes) {
	for _, r := range n.retries.prune(now) {
		out.add(r, Reply{Err: ErrExpired})
	}
}
