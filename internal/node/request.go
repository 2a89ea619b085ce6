package node

import (
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// Key has what all requests of one attempt have in common, and remembers what was sent to each
// node.
type Key struct {
	ID      string        // of the attempt
	Lock    string        // the lock key
	Counter string        // the key of the fencing counter
	TTL     int64         // ms
	Life    time.Duration // how long a node keeps the key at most after it has carried out a request

	abandoned atomic.Bool
	traffic   []traffic // by node; guarded by that node's mutex
	ofFive    [5]traffic
}

// traffic is what a node has sent of one attempt.
type traffic struct {
	sent   bool          // a request of the attempt may have reached the master
	deadBy clock.Instant // requests without a reply have no effect after this
}

// Init makes the key ready for n nodes.
func (k *Key) Init(n int) {
	if k.traffic = k.ofFive[:]; n > len(k.ofFive) {
		k.traffic = make([]traffic, n)
	}
	k.traffic = k.traffic[:n]
}

// Abandon keeps all further requests except releases from being sent.
func (k *Key) Abandon() { k.abandoned.Store(true) }

// Abandoned reports whether Abandon was called.
func (k *Key) Abandoned() bool { return k.abandoned.Load() }

// AssumeSent makes sure that a release is sent to a node, although no other request was: the node
// may have the key all the same.
func (k *Key) AssumeSent(n *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k.traffic[n.index].sent = true
}

// Request is one request of an attempt to one node.
type Request struct {
	Op      wire.Op
	Node    int // index
	Key     *Key
	Counter int64         // that came with the grant on this node; 0 = none or unknown
	Target  int64         // counter of the lease; for an acquire, where a missing counter starts
	Timeout time.Duration // the request is neither carried out nor waited for longer than this after it was sent
	Process string        // for the queue node: the process that asks, waits or releases; "" for any other node
	To      Receiver

	queued   clock.Instant
	sent     clock.Instant // 0 until the request is sent; guarded by the node's mutex, like all below
	notAfter int64         // latest time of execution by the node's clock, in microseconds
	resent   bool          // sent once more, on a new connection
	alone    bool          // sent in a call of its own: in a common call, one request that the user may not make has all refused
	kept     bool          // the request is among the node's retries
}

// Receiver takes the reply to a request. A goroutine of the node calls it, without any mutex. It
// is called once for each request. For a release it is called each time that the release was
// sent, and at last with [ErrExpired] if the release was never confirmed. It must not block.
type Receiver interface {
	Receive(r *Request, rep Reply)
}

// isRelease reports whether the request drops the key.
func (r *Request) isRelease() bool { return r.Op == wire.Release || r.Op == wire.Rest }

// expires returns until when an unsent request is worth sending.
func (r *Request) expires() clock.Instant { return r.queued.Add(2 * r.Timeout) }

// end returns the time after which the request is not carried out any more.
func (r *Request) end() clock.Instant { return r.sent.Add(r.Timeout) }

// queue has the requests that wait to be sent to one node. Releases go first, then renewals: a
// lease must not be lost because other callers want one.
//
// Source: ALGORITHM section 5.
type queue struct {
	lists [3][]*Request
	tasks []*task
}

// The lists, in the order in which they are sent.
const (
	releases = iota
	renewals // and raises
	acquires
)

func (q *queue) add(r *Request) {
	list := renewals
	switch r.Op {
	case wire.Release, wire.Rest:
		list = releases
	case wire.Acquire:
		list = acquires
	}
	q.lists[list] = append(q.lists[list], r)
}

// putBack puts requests that have to be sent once more in front, in their order.
func (q *queue) putBack(again []*Request) {
	for i := len(again) - 1; i >= 0; i-- {
		var one queue
		one.add(again[i])
		for l := range q.lists {
			if len(one.lists[l]) > 0 {
				q.lists[l] = append(one.lists[l], q.lists[l]...)
			}
		}
	}
}

func (q *queue) empty() bool { return q.len() == 0 && len(q.tasks) == 0 }

func (q *queue) len() int { return len(q.lists[0]) + len(q.lists[1]) + len(q.lists[2]) }

func (q *queue) full() bool { return q.len() >= maxBatch || len(q.tasks) >= maxTasks }

// oldest returns when the first of the waiting requests was queued.
func (q *queue) oldest() (at clock.Instant, some bool) {
	at = clock.Never
	for _, l := range q.lists {
		if len(l) > 0 {
			at = min(at, l[0].queued)
		}
	}
	for _, t := range q.tasks {
		at = min(at, t.queued)
	}
	return at, at < clock.Never
}

// drop removes the requests for which is returns true, and returns them in order.
func (q *queue) drop(is func(*Request) bool) {
	for i, l := range q.lists {
		keep := l[:0]
		for _, r := range l {
			if !is(r) {
				keep = append(keep, r)
			}
		}
		clear(l[len(keep):])
		q.lists[i] = keep
	}
}

// take moves requests to a batch until the batch has most of them. A request marked alone makes
// a batch by itself. Requests that have become pointless are left out and answered.
func (q *queue) take(batch []*Request, most int, pointless func(*Request) error, tell func(*Request, error)) []*Request {
	for i, l := range q.lists {
		n := 0
		for ; n < len(l) && len(batch) < most; n++ {
			r := l[n]
			if why := pointless(r); why != nil {
				tell(r, why)
				continue
			}
			if r.alone && len(batch) > 0 {
				most = len(batch)
				break
			}
			batch = append(batch, r)
			if r.alone {
				most = len(batch)
			}
		}
		rest := copy(l, l[n:])
		clear(l[rest:])
		q.lists[i] = l[:rest]
	}
	return batch
}

// append appends the number of the request's function and its arguments.
func (r *Request) append(b []byte) []byte {
	number := r.Op
	switch {
	case r.Process == "":
	case r.Op == wire.Acquire:
		number = wire.AcquireQueued
	case r.Op == wire.Release:
		number = wire.ReleaseQueued
	}
	b = resp.AppendInt(b, int64(number))
	b = resp.AppendString(b, r.Key.ID)
	switch r.Op {
	case wire.Acquire:
		b = resp.AppendInt(b, r.Key.TTL)
		b = resp.AppendInt(b, r.notAfter)
		b = resp.AppendInt(b, r.Target)
	case wire.Extend:
		b = resp.AppendInt(b, r.Key.TTL)
		b = resp.AppendInt(b, r.notAfter)
		b = resp.AppendInt(b, r.Counter)
		b = resp.AppendInt(b, r.Target)
	case wire.Rest:
		b = resp.AppendInt(b, r.Counter)
	default:
		b = resp.AppendInt(b, r.Counter)
		b = resp.AppendInt(b, r.Target)
	}
	if r.Process != "" {
		b = resp.AppendString(b, r.Process)
	}
	return b
}

// args returns how many arguments append appends.
func (r *Request) args() int {
	n := 4
	switch r.Op {
	case wire.Acquire:
		n = 5
	case wire.Extend:
		n = 6
	case wire.Rest:
		n = 3 // with the process that waits
	}
	if r.Process != "" {
		n++
	}
	return n
}
