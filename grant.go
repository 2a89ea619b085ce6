package redlock

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// grant has the keys on the nodes, the deadline and the handles of a lease.
// acquire.go and adopt.go make one, renew.go keeps it, handover.go gives it to the next caller,
// release.go ends it.
type grant struct {
	pool     *pool
	resource string
	keys     node.Key // with a new id for each attempt: a late release of one attempt must not hit the next
	lockConfig
	start     instant       // when the attempt or the adoption began
	queueNode int           // the node that kept the queue at start
	name      string        // of this process, as told to the queue node; wire.NoProcess if the process did not wait
	adopted   bool          // other processes may have the same lease
	signal    chan struct{} // holds one token: the call that waits should look again

	limits limits

	mu      lockorder.Mutex[lockorder.Grant]
	nodes   []nodeKey // by index; guarded by mu, like all below
	target  int64     // fencing counter; 0 until a quorum granted
	cause   error     // why the lease is over; nil while it is not
	handles []*Lease  // given out and not unlocked yet
	keepTo  instant   // a lease that was unlocked before the end of its minimum hold is kept until then, by a handle of the library; 0 for any other lease
	dropAt  instant   // when the keys of a lease that was broken are dropped; never = not by itself
	hand    handOver
	renewal renewal

	room room
}

// limits has the deadline of a lease.
type limits struct {
	deadline atomic.Int64  // an instant
	uncapped instant       // the deadline without WithMaxHold; guarded by the grant's mutex
	stood    time.Duration // total standstill of the clock when the deadline was last set; guarded by the grant's mutex
}

// renewal has the times at which a lease is renewed.
type renewal struct {
	at    instant // when the next renewal begins
	count int     // renewals and calls of Extend that were successful

	slot int     // place in the renewer's heap; guarded by the renewer's mutex
	due  instant // when the renewer looks at the lease; guarded by the renewer's mutex
}

// room has memory for the usual size of a grant, so that a grant is one allocation.
type room struct {
	first       Lease
	onlyHandle  [1]*Lease
	nodesOfFive [5]nodeKey
}

// nodeKey is the state of a grant's key on one node, as far as it is known.
type nodeKey struct {
	counter  int64   // that came with the key; 0 = none or unknown
	held     bool    // the key is believed to be there
	had      bool    // the key was there at some time
	keepsTo  instant // until then the node has to have the key
	released answer
	gone     bool    // since the release: the node had no key any more, or the key has expired
	unsent   bool    // no request has reached the node, and none will
	down     bool    // the node could not be reached for the release
	op       wire.Op // the last operation that the node answered or failed to answer
	err      error   // the answer to op, if that was not yes
}

// init makes the grant of an attempt under a new id.
func (g *grant) init(p *pool, resource string, lc lockConfig) {
	p.initKey(&g.keys, resource, lc)
	n := len(p.nodes)
	g.pool, g.resource, g.lockConfig = p, resource, lc
	g.name = wire.NoProcess
	g.signal = make(chan struct{}, 1)
	g.limits.deadline.Store(math.MinInt64) // a clock may show anything
	g.limits.uncapped, g.dropAt, g.renewal.slot = math.MinInt64, never, -1
	g.handles = g.room.onlyHandle[:0]
	g.nodes = slices.Grow(g.room.nodesOfFive[:0], n)[:n]
}

// initKey makes the key of an attempt under a new id.
func (p *pool) initKey(k *node.Key, resource string, lc lockConfig) {
	k.ID, k.Lock = wire.Labelled(p.conf.newID(), lc.owner), p.conf.keyPrefix+resource
	k.TTL = node.Millis(lc.ttl)
	k.Live(lc.ttl + driftAllowance(lc.ttl, p.conf.drift))
	k.Init(len(p.nodes))
}

func newGrant(p *pool, resource string, lc lockConfig) *grant {
	g := &grant{}
	g.init(p, resource, lc)
	return g
}

// Receive implements [node.Receiver] for the release.
func (g *grant) Receive(r *node.Request, rep node.Reply) {
	g.pool.ended(r, rep, g)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releasedLocked(r.Node, rep)
}

// noteLocked keeps the reason why a node did not say yes, for the error of the call.
func (g *grant) noteLocked(i int, o wire.Op, err error) {
	g.nodes[i].op, g.nodes[i].err = o, err
}

// wake wakes the call that waits for this grant.
func (g *grant) wake() {
	select {
	case g.signal <- struct{}{}:
	default:
	}
}

// countLocked returns the number of nodes for which is returns true.
func (g *grant) countLocked(is func(*nodeKey) bool) int {
	n := 0
	for i := range g.nodes {
		if is(&g.nodes[i]) {
			n++
		}
	}
	return n
}

// presentFenceLocked returns the fencing token of the lease's present holder. A reader has the last one
// of the writer before it, and reserves none.
//
// Source: ALGORITHM sections 4 and 12.
func (g *grant) presentFenceLocked() int64 {
	if g.shared {
		return g.target
	}
	return firstFence(g.target) + int64(g.hand.count)
}

// line returns which line of the process the callers of such a lease stand in.
func (g *grant) line() lineKey { return g.lockConfig.line(g.resource) }

// keyLife returns the moment until which a node keeps the key at least, after a request with a TTL
// that was sent at start.
func (g *grant) keyLife(start instant, ttl time.Duration) instant {
	return start.Add(ttl - driftAllowance(ttl, g.pool.conf.drift))
}

func (g *grant) deadline() instant { return instant(g.limits.deadline.Load()) }

func (g *grant) validity() time.Duration { return validity(g.deadline(), g.pool.now()) }

// timeoutError returns the error of a node timeout, with its value.
func (g *grant) timeoutError() error { return timeoutError(g.timeout()) }

// quorumErrorLocked returns the error of a round over the nodes.
func (g *grant) quorumErrorLocked(op string, granted int, failed func(*nodeKey) bool, reasons ...error) *QuorumError {
	e := g.pool.quorumError(op, g.resource, granted, reasons...)
	for i := range g.nodes {
		if n := &g.nodes[i]; failed(n) {
			e.Masters = append(e.Masters, g.pool.nodeError(i, n.op.String(), n.err, g.timeout()))
		}
	}
	return e
}

// setDeadlineLocked sets the deadline that follows from a round with a TTL that began at start. The
// deadline never moves back.
//
// Source: ALGORITHM section 13, I8.
func (g *grant) setDeadlineLocked(start instant, ttl time.Duration) {
	d := deadline(start, ttl, driftAllowance(ttl, g.pool.conf.drift), g.grace)
	g.limits.uncapped = max(g.limits.uncapped, d)
	d = min(d, g.holdEnd())
	if d > g.deadline() {
		g.limits.deadline.Store(int64(d))
		g.limits.stood = g.pool.conf.clock.Stood()
	}
}

// holdEnd returns the end of the lease by WithMaxHold, or never.
func (g *grant) holdEnd() instant {
	if g.maxHold == 0 {
		return never
	}
	return g.hand.since.Add(g.maxHold)
}
