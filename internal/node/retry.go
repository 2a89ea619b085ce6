package node

import (
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/wire"
)

// This file repeats releases, until the master confirms or the key must have expired.

// retry is a release that has to be sent again, because the master did not confirm it, or a lost
// request of the same attempt may still arrive.
type retry struct {
	*Request
	at, until clock.Instant
	wait      time.Duration
}

// settleLocked decides whether a release that was answered, or failed, has to be sent again.
func (n *Node) settleLocked(r *Request, err error, now clock.Instant) {
	if err != nil {
		n.retryLocked(r, now.Add(firstPause))
		return
	}
	n.dropRetryLocked(r)
	if deadBy := r.Key.traffic[n.index].deadBy; deadBy > now {
		n.retryLocked(r, deadBy)
	}
}

// retryLocked keeps a release, once, until the key must have expired. A request that was sent
// before the release can set the key until its node timeout is over, and a lost request until its
// deadBy.
func (n *Node) retryLocked(r *Request, at clock.Instant) {
	if r.kept {
		return
	}
	r.kept = true
	if r.Op == wire.Rest {
		r.Process = wire.NoProcess // when the release is sent again, the process may not wait any more
	}
	last := max(r.queued.Add(r.Timeout), r.Key.traffic[n.index].deadBy)
	n.retries = append(n.retries, retry{Request: r, at: at, until: last.Add(time.Duration(r.Key.life.Load())), wait: firstPause})
}

func (n *Node) dropRetryLocked(r *Request) {
	if !r.kept {
		return
	}
	r.kept = false
	for i := range n.retries {
		if n.retries[i].Request == r {
			last := len(n.retries) - 1
			n.retries[i] = n.retries[last]
			n.retries[last] = retry{}
			n.retries = n.retries[:last]
			return
		}
	}
}

// pruneLocked ends the retries of keys that have expired by now.
func (n *Node) pruneLocked(now clock.Instant, out *outcomes) {
	n.retries = slices.DeleteFunc(n.retries, func(b retry) bool {
		over := now >= b.until
		if over {
			out.add(b.Request, Reply{Err: ErrExpired})
		}
		return over
	})
}
