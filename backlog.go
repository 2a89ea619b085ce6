package redlock

import (
	"slices"
	"time"
)

// This file is about releases that have to go out more than once: a lane repeats them
// until the node confirms, or the key must have expired.

// retry is a release that has to go out again: the node did not confirm it, or
// a lost message of the same attempt may still arrive.
type retry struct {
	*request
	at, until instant
	wait      time.Duration
}

// settle decides whether a release has to go out again.
func (n *lane) settle(r *request, tr *trace, rep reply, now instant) {
	if rep.err != nil {
		n.retryRelease(r, now.add(firstBackoff))
		return
	}
	n.dropRetry(r)
	if tr.deadBy > now {
		n.retryRelease(r, tr.deadBy)
	}
}

// retryRelease puts a release into the backlog, once, until the key must have expired:
// what was sent before the release can set it until its node timeout is over, and what
// was lost until it is dead.
func (n *lane) retryRelease(r *request, at instant) {
	if r.kept {
		return
	}
	r.kept = true
	last := max(r.end, r.grant.traces[n.index].deadBy)
	until := last.add(r.grant.ttl + driftAllowance(r.grant.ttl, n.conf.drift))
	n.backlog = append(n.backlog, retry{request: r, at: at, until: until, wait: firstBackoff})
}

func (n *lane) dropRetry(r *request) {
	if !r.kept {
		return
	}
	r.kept = false
	for i := range n.backlog {
		if n.backlog[i].request == r {
			last := len(n.backlog) - 1
			n.backlog[i] = n.backlog[last]
			n.backlog[last] = retry{}
			n.backlog = n.backlog[:last]
			return
		}
	}
}

// prune forgets the releases of keys that have expired by now.
func (n *lane) prune(now instant) {
	n.backlog = slices.DeleteFunc(n.backlog, func(b retry) bool { return now >= b.until })
}
