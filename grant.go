package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/attempt"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/term"
	"github.com/d0720281/redlock/internal/wire"
)

// grant has the keys on the nodes, the deadline and the holds of a lease. acquire.go and adopt.go
// make one, renew.go keeps it, passOn gives it to the next caller, release.go ends it.
type grant struct {
	pool     *pool
	resource string
	keys     node.Key // with a new id for each attempt: a late release of one attempt must not hit the next
	lockConfig
	start   instant          // when the attempt or the adoption began
	foreign bool             // another process has the lease, which a call extends or releases by its Handle
	signal  lockorder.Signal // for the call that waits
	place

	mu     lockorder.Mutex[lockorder.Grant]
	nodes  []nodeKey // by index; guarded by mu, like all below
	target int64     // fencing counter; 0 until a quorum granted
	holders
	term    term.Term
	hand    handOver
	renewal renewal
	room    room
}

// place has what a grant knows of the queue of waiting processes.
type place struct {
	queueNode int            // the node that kept the queue at start
	name      string         // of this process, as told to the queue node; wire.NoProcess if the process did not wait
	number    int            // of the line's last attempt when this one began; see line.Lines.Hear
	slot      int            // of the line, if it wants any of several resources; otherwise 0
	queueVote attempt.Answer // of the queue node; Yes: it has taken the process out of its queue
}

// holders are the holders of a lease, and the work that Close waits for.
type holders struct {
	holds   []*hold       // given out and not unlocked yet; of a lease that is kept, one of the library
	idle    chan struct{} // closed when no work is done under the lease any more; nil unless Close waits for that
	unlocks int           // under way: calls of Unlock
}

// caller is a call of Lock, LockAny or Do that stands in a line.
type caller = line.Caller[*grant, call]

// call has what a caller wants, and the lease that another caller of the process handed to it.
type call struct {
	ctx    context.Context
	done   <-chan struct{} // of ctx
	config lockConfig
	began  time.Time
	lease  *hold           // guarded by the mutex of the lines until the caller has left its line
	refuse map[string]bool // of several resources, those whose keys hold something that is no lock
}

// renewal counts the renewals of a lease, and has its place in the renewer.
type renewal struct {
	count int          // renewals and calls of Extend that were successful
	last  *QuorumError // the verdict on the last round; nil if that was successful

	slot int     // place in the renewer's heap; guarded by the renewer's mutex
	due  instant // when the renewer looks at the lease; guarded by the renewer's mutex
}

// room has memory for the usual size of a grant, so that a grant is one allocation.
type room struct {
	first       hold
	onlyHold    [1]*hold
	nodesOfFive [5]nodeKey
}

// nodeKey has what a grant knows of its key on one node.
type nodeKey struct {
	state   keyState
	counter int64   // that came with the key; 0 = none or unknown
	keepsTo instant // until then the node has to have the key
	op      wire.Op // the last operation that the node answered or failed to answer
	err     error   // the answer to op, if that was not yes
}

// keyState is how far a key has come on a node.
type keyState uint8

const (
	keyNever keyState = iota // as far as known, the key was never there
	keyHeld                  // it is believed to be there
	keyLost                  // it was there, and is not any more

	// After a release was sent:
	keyUnanswered // the node has not answered
	keyFailed     // it could not drop the key, and may have it
	keyUnsent     // no request of the attempt has reached the node, and none will
	keyDown       // the same, and the node could not be reached for the release
	keyExpired    // the key's time is over
	keyGone       // the node had no such key any more
	keyAdopted    // another grant has taken the key over
	keyDropped    // the node has dropped the key
)

// set notes that the node has the key, or has it no more.
func (n *nodeKey) set(has bool) {
	switch {
	case n.state >= keyUnanswered:
	case has:
		n.state = keyHeld
	case n.state == keyHeld:
		n.state = keyLost
	}
}

// frees reports whether the node has no key of this grant with which to refuse the next holder.
func (n *nodeKey) frees() bool {
	return n.state == keyUnsent || n.state == keyDown || n.state >= keyExpired
}

// init makes the grant of an attempt under a new id.
func (g *grant) init(p *pool, resource string, lc lockConfig) {
	p.initKey(&g.keys, resource, lc)
	n := len(p.nodes)
	g.pool, g.resource, g.lockConfig = p, resource, lc
	g.name = wire.NoProcess
	g.signal = lockorder.NewSignal()
	g.term.Init(&g.Options, p.conf.rules)
	g.renewal.slot = -1
	g.holds = g.room.onlyHold[:0]
	g.nodes = slices.Grow(g.room.nodesOfFive[:0], n)[:n]
}

// initKey makes the key of an attempt, without an id.
func (p *pool) initKey(k *node.Key, resource string, lc lockConfig) {
	k.Lock = p.conf.keyPrefix + resource
	k.TTL = node.Millis(lc.TTL)
	k.Live(lc.TTL + driftAllowance(lc.TTL, p.conf.drift))
	k.Init(len(p.nodes))
}

// Receive implements [node.Receiver] for the release.
func (g *grant) Receive(r *node.Request, rep node.Reply) {
	g.hear(r, rep)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releasedLocked(r.Node, rep)
}

func (g *grant) hear(r *node.Request, rep node.Reply) wire.Word {
	return g.pool.hear(r, rep, g.lineOf(r.Shared), g.TTL, g.number)
}

// noteLocked keeps the reason why a node did not say yes, for the error of the call.
func (g *grant) noteLocked(i int, o wire.Op, err error) {
	g.nodes[i].op, g.nodes[i].err = o, err
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

// presentFenceLocked returns the fencing token of the lease's present holder. A reader has the last
// one of the writer before it, and reserves none.
//
// Source: ALGORITHM sections 4 and 12.
func (g *grant) presentFenceLocked() int64 {
	if g.shared {
		return g.target
	}
	return firstFence(g.target) + int64(g.hand.count)
}

// key names the line of the process in which the callers of such a lease stand.
func (g *grant) key() line.Key { return g.lineOf(g.shared) }

func (g *grant) lineOf(shared bool) line.Key {
	return line.Key{Resource: wire.QueueOf(g.resource), Shared: shared, Slot: g.slot}
}

func (c *lockConfig) key(resource string) line.Key {
	return line.Key{Resource: resource, Shared: c.shared}
}

// keyLife returns the moment until which a node keeps the key at least, after a request with a TTL
// that was sent at start.
func (g *grant) keyLife(start instant, ttl time.Duration) instant {
	return start.Add(ttl - driftAllowance(ttl, g.pool.conf.drift))
}

func (g *grant) validity() time.Duration { return validity(g.term.Deadline(), g.pool.now()) }

// quorumErrorLocked returns the error of a round over the nodes.
func (g *grant) quorumErrorLocked(op string, granted int, failed func(*nodeKey) bool, reasons ...error) *QuorumError {
	e := g.pool.quorumError(op, g.resource, granted, reasons...)
	for i := range g.nodes {
		if n := &g.nodes[i]; failed(n) {
			e.Masters = append(e.Masters, g.pool.nodeError(i, n.op.String(), n.err, g.Timeout()))
		}
	}
	return e
}

// setDeadlineLocked sets the deadline that follows from a round with a TTL that began at start.
func (g *grant) setDeadlineLocked(start instant, ttl time.Duration) {
	g.term.Extend(deadline(start, ttl, driftAllowance(ttl, g.pool.conf.drift), g.Grace), g.pool.stood())
}

// If a lease is unlocked while another caller of the process waits for the resource, that caller
// gets the keys and the deadline as they are, and no node is told. Each grant has reserved a block
// of fencing tokens for that.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".

// How often one grant may be handed over: as often as it has tokens. If other processes are known to want the
// resource, that holds until crowdedPayoff times as long as it took to get the grant has gone by: then a change of
// process costs a ninth of the time. Later only callers that were in line at the grant get the lease, and no more often
// than crowdedHandovers.
const (
	mostHandovers    = fenceBlock - 1
	crowdedHandovers = 16
	crowdedPayoff    = 8 // times the duration of the attempt that was granted
)

// handOver has what decides how often a lease goes to the next caller of the process.
type handOver struct {
	count int           // how often the lease has been handed over
	took  time.Duration // from the start of the attempt to the grant
}

// passToNext ends a lease at now and gives its grant to the caller at the head of the line. It
// reports false, and has done nothing, if the lease cannot be handed over.
func (p *pool) passToNext(le *hold, now instant) bool {
	g, end := le.grant, (func())(nil)
	key := g.lineOf(false) // the leases of readers are not handed over
	heir, queuedAt := p.lines.HandOver(key, g, g.queueNode, func(heir line.Offer[call]) bool {
		heir.Call.lease, end = g.passOn(le, heir, now)
		return heir.Call.lease != nil
	})
	if heir == nil {
		return false
	}
	p.leaveQueue(heir.Key(), queuedAt)
	if end != nil {
		lockorder.MustBeFree()
		end()
	}
	heir.Poke()
	return true
}

// passOn ends the only hold of a lease, and then makes a hold for its heir. next is nil if the
// lease cannot be passed on. The caller calls end, which ends the context of the present holder,
// after it has unlocked the mutexes.
func (g *grant) passOn(le *hold, heir line.Offer[call], now instant) (next *hold, end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.suits(heir.Call.config) || closed(heir.Call.done):
		return nil, nil
	case !g.term.Stands() || le.done || len(g.holds) != 1 || g.holds[0] != le:
		return nil, nil // another caller may use the lease, or the lease is over
	case !g.pool.conf.rules.HandsOver(g.handsOverLocked(heir, now)):
		return nil, nil
	}
	le.done = true
	if !g.pool.conf.rules.KeepsHold {
		end = le.overLocked(ErrReleased)
	}
	g.pool.events.left(EventReleased, le, nil)
	g.hand.count++
	if !g.oneOf() {
		g.name = g.key().Ticket(g.pool.channel) // the release takes the process out of the queue, also if a TryLock got the lease
	}
	next = &hold{grant: g, fence: g.pool.conf.rules.Successor(le.fence), turn: g.hand.count, parent: heir.Call.ctx, since: time.Now()}
	g.holds[0] = next
	if g.term.PassTo(now) {
		g.pool.renewer.update(g)
	}
	g.pool.events.acquired(next, heir.Call.began)
	return next, end
}

// handsOverLocked reports whether a lease may go to an heir at now. The hand-overs end
// while the grant alone still gives the next lease its MinValidity. So other processes get their
// turn even if the lease has been renewed.
func (g *grant) handsOverLocked(heir line.Offer[call], now instant) bool {
	most := mostHandovers
	switch {
	case !heir.Contested:
	case now.Sub(g.start) < crowdedPayoff*g.hand.took:
	case heir.Waited:
		most = crowdedHandovers
	default:
		most = 0
	}
	return g.hand.count < most && now < g.term.Deadline() &&
		now.Sub(g.start) <= g.minValidity() && g.term.Uncapped().Sub(now) >= g.minValidity()
}

// noteGrant tells the lines that this process has a lease. head is the caller at the head of a line
// that got it; nil if the caller stood in no line. If the process has to leave the queue of a node,
// noteGrant returns that node, and otherwise line.Nowhere.
func (p *pool) noteGrant(g *grant, head *caller) (queuedAt int) {
	if g.oneOf() {
		p.lines.HeldAny(wire.QueueOf(g.resource), g)
	}
	switch lineHolds := !g.shared && !g.oneOf(); {
	case lineHolds && head == nil: // the release of a TryLock takes no process out of the queue
		return p.lines.Held(g.key(), g, nil, line.Nowhere)
	case lineHolds:
		return p.lines.Held(g.key(), g, head, g.queueNode)
	case head == nil:
		return line.Nowhere
	}
	return p.lines.Admit(head, g.leaves(), g.shareWith)
}

// leaves returns the node that has taken the process out of its queue; line.Nowhere if none is
// known to.
func (g *grant) leaves() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queueVote == attempt.Yes {
		return g.queueNode
	}
	return line.Nowhere
}

// suits reports whether a caller wants a lease as this one is.
func (g *grant) suits(want lockConfig) bool {
	if _, number := wire.CutNumber(g.resource); number <= want.several {
		want.several = g.several // a call of TryLock may have got the lease
	}
	return want == g.lockConfig
}

// passedOverLocked reports whether one of several was granted although its queue node refused. The queue node lacks the key
// until a renewal sets it, and calls callers to it, which ask in vain while another key is free.
//
// Source: ALGORITHM section 10, "Any of several".
func (g *grant) passedOverLocked() bool { return g.queueVote == attempt.No && g.oneOf() }

// oneOf reports whether the resource is one of several: the process may have some, and want more.
func (g *grant) oneOf() bool { return wire.QueueOf(g.resource) != g.resource }

// shareWith gives a reader a hold on the lease of another reader, if both want such a lease.
func (g *grant) shareWith(c *call) bool {
	if !g.shared || c.config != g.lockConfig || closed(c.done) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.lease = g.newHoldLocked(c.ctx)
	return true
}
