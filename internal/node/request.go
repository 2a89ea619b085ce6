package node

import (
	"cmp"
	"iter"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// Key has what all requests of one attempt have in common, and records what was sent to each
// node.
type Key struct {
	ID   string // of the attempt
	Lock string // the lock key
	TTL  int64  // ms

	life      atomic.Int64 // ns; the longest time that a node keeps the key after it has carried out a request
	began     atomic.Int64 // when the first request of the attempt was queued; an instant
	abandoned atomic.Bool
	traffic   []traffic // by node; guarded by that node's mutex
	ofFive    [5]traffic
}

// traffic records what was sent to one node for an attempt.
type traffic struct {
	sent    bool          // a request of the attempt may have reached the master
	denied  denial        // what is known of an acquire that was refused; any later request but a release clears it
	counter int64         // that came with the grant; 0 = none, or not known yet
	deadBy  clock.Instant // requests without a reply have no effect after this
}

// Init makes the key ready for n nodes.
func (k *Key) Init(n int) {
	if k.traffic = k.ofFive[:]; n > len(k.ofFive) {
		k.traffic = make([]traffic, n)
	}
	k.traffic = k.traffic[:n]
}

// Live notes that a node may keep the key for d after it has carried out a request.
func (k *Key) Live(d time.Duration) {
	for {
		known := k.life.Load()
		if known >= int64(d) || k.life.CompareAndSwap(known, int64(d)) {
			return
		}
	}
}

// Abandon keeps all further requests except releases from being sent.
func (k *Key) Abandon() { k.abandoned.Store(true) }

// Request is one request of an attempt to one node.
type Request struct {
	Op      wire.Op
	Node    int // index
	Key     *Key
	Counter int64         // the counter that came with the grant on this node; 0 = none or unknown
	Target  int64         // counter of the lease; of an acquire or adopt, where a missing counter starts; of a raise, the counter to reach; of a release by Handle, wire.ByHandle; of a rest, see wire.Listens
	TTL     int64         // ms, of an extend that has another TTL than the Key; 0 = the same
	Timeout time.Duration // the request is neither carried out nor waited for longer than this after it was sent
	Process string        // for the queue node: the process that asks, waits or releases; "" for any other node. Of an adopt, the value that the key has so far
	To      Receiver
	Shared  bool // of a reader

	queued   clock.Instant
	sent     clock.Instant // 0 until the request is sent; guarded by the node's mutex, like all below
	notAfter int64         // latest time of execution by the node's clock, in microseconds
	resent   bool          // sent once more, on a new connection
	alone    bool          // sent in a call of its own: in a common call, one request that the user has no permission for makes the server refuse all
	retry    int           // place among the node's retries, from 1; 0 = none
	round    int           // within the list of a batch
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

// complete gives a release the counter of the grant, if the grant was still under way when the
// release was queued. Then the node can compare the whole value of the key.
func (r *Request) complete() {
	if r.Op == wire.Release && r.Counter == 0 {
		r.Counter = r.Key.traffic[r.Node].counter
	}
}

// end returns the time after which the request is not executed any more.
func (r *Request) end() clock.Instant { return r.sent.Add(r.Timeout) }

// maxBatch is how many requests go in one call of the script: a millisecond or so of the node's time.
const maxBatch = 256

// groupsOf returns the groups of a batch: the neighbours that have all arguments of a group in
// common. lua/begin.lua describes them.
func groupsOf(batch []*Request) iter.Seq[[]*Request] {
	return func(yield func([]*Request) bool) {
		for from := 0; from < len(batch); {
			to := from + 1
			for to < len(batch) && batch[to].groupsWith(batch[from]) {
				to++
			}
			if !yield(batch[from:to]) {
				return
			}
			from = to
		}
	}
}

func (r *Request) groupsWith(o *Request) bool {
	return r.function() == o.function() && r.Process == o.Process && (!r.guarded() || r.ttl() == o.ttl() && r.notAfter == o.notAfter)
}

// function returns the function of the script that carries the request out.
func (r *Request) function() wire.Op {
	if r.Shared {
		return r.Op.Shared()
	}
	return r.Op
}

// ttl returns for how many ms a node keeps the key from when it carries out the request.
func (r *Request) ttl() int64 { return cmp.Or(r.TTL, r.Key.TTL) }

// ttls returns the shortest and the longest TTL of the requests that are no releases, in ms; 0 if all are.
func ttls(batch []*Request) (shortest, longest int64) {
	for _, r := range batch {
		if r.isRelease() {
			continue
		}
		ttl := r.ttl()
		longest = max(longest, ttl)
		if shortest == 0 || ttl < shortest {
			shortest = ttl
		}
	}
	return shortest, longest
}

// guarded reports whether the request depends on the guard of the node. It sets the key.
func (r *Request) guarded() bool { return r.Op.SetsKey() }

// groupArgs returns how many arguments appendGroup appends.
func (r *Request) groupArgs() int {
	if r.guarded() {
		return 5
	}
	return 3
}

// appendGroup appends what the k requests of a group have in common.
func (r *Request) appendGroup(b []byte, k int) []byte {
	b = resp.AppendInt(b, int64(r.function()))
	b = resp.AppendInt(b, int64(k))
	b = resp.AppendString(b, r.Process)
	if r.guarded() {
		b = resp.AppendInt(b, r.ttl())
		b = resp.AppendInt(b, r.notAfter)
	}
	return b
}

// requestArgs is how many arguments append appends.
const requestArgs = 2

// append appends the arguments of one request.
func (r *Request) append(b []byte) []byte {
	if r.Op.Wants() {
		b = resp.AppendString(b, r.Key.ID)
		return resp.AppendInt(b, r.Target)
	}
	b = resp.AppendJoined(b, r.Key.ID, "|", r.Counter, "")
	if r.Target == r.Counter && r.Target != 0 && r.Op != wire.Raise {
		return resp.AppendString(b, wire.Same)
	}
	return resp.AppendInt(b, r.Target)
}
