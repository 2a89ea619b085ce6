package redlock

import (
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// grant is one attempt to take a resource and, if a quorum agrees, the keys on
// the nodes that a lease stands on. It goes one way: asking, perhaps raising,
// held, ended. attempt.go has the first two, renew.go and release.go the rest.
type grant struct {
	pool     *pool
	resource string
	keys     node.Key // with a fresh id for each attempt: a late delete of one must not hit the next
	lockConfig
	start instant // when the attempt began; every deadline is counted from such a moment
	approach
	gate     int           // the node that keeps the queue
	stood    time.Duration // the clock's, when the deadline was last set; guarded by mu
	deadline atomic.Int64
	adopted  bool // other processes may have the same lease

	signal chan struct{} // holds one token: the call that waits should look again

	mu        sync.Mutex
	places    []place  // guarded by mu, like all below
	asked     instant  // when the nodes were asked that were asked last
	spread    bool     // whether all of them were
	hurry     instant  // until when a quorum waits for the gate; 0 = it does not
	ungated   bool     // it was waited for long enough
	rounds    int      // in which busy nodes were asked again
	againAt   instant  // when they are to be; 0 = not for now
	armed     instant  // what the timer was set to
	lateUntil instant  // until when nodes are waited for that were sent their request late
	answered  instant  // when a quorum had answered; 0 = not yet
	seed      int64    // where a missing counter should start
	word      gateWord // what the gate said
	verdict   verdict  // of the attempt
	target    int64    // fencing counter; 0 until a quorum granted
	raiseEnd  instant  // how long the second round may take
	cause     error    // why the lease is over; nil while it is not
	handles   []*Lease // given out and not unlocked yet
	heldFrom  instant  // when its present holder's time began
	uncapped  instant  // the deadline but for the holder's bound
	renewAt   instant  // when the next renewal begins
	renewals  int      // that were successful, as were calls of Extend
	dropAt    instant  // when the keys of a lease that was broken are dropped; never = not by itself

	// What bounds how often the lease is handed over; guarded by mu.
	handed    int           // how often it was
	took      time.Duration // until it was granted
	inLine    int           // callers of this process who waited then, at most crowdedHandovers
	contested bool          // it was refused before: another process had the resource, and may come back

	slot int // place in the keeper's heap; guarded by the keeper's mutex
	due  instant

	// Room for what nearly every grant needs, so that it is one allocation.
	first        Lease
	onlyHandle   [1]*Lease
	placesOfFive [5]place
}

// place is what an attempt knows of its key on one node.
type place struct {
	counter int64 // given with the grant here; 0 = no vote
	vote    ballot
	fence   ballot  // whether the node is known to count at least the target
	held    bool    // the key is believed to be there
	had     bool    // the key was there at some time
	keepsTo instant // until then the node has to have the key
	server  string  // that voted
	release ballot
	gone    bool          // since the release: the node had no key any more, or that has expired
	unsent  bool          // no message has reached the node, nor will one
	asked   *node.Request // the acquire or raise that is not answered
	busy    bool          // it said that somebody else has the key
	pending bool          // and may be asked again, so that its vote is not cast
	err     error
	op      wire.Op // what err was the answer to
}

// ballot is one node's answer to one question.
type ballot uint8

const (
	awaited ballot = iota
	yes
	no
)

// newID returns an id that no other attempt or process has. Two attempts with one id would both
// be granted the resource. So the source is named here: that of package uuid is a variable of the
// whole program, which another package can make deterministic.
func newID() (uuid.UUID, error) { return uuid.NewRandomFromReader(rand.Reader) }

// isID reports whether a token has the form of those that newID makes.
func isID(token string) bool {
	id, err := uuid.Parse(token)
	return err == nil && id.String() == token
}

func newGrant(p *pool, resource string, lc lockConfig) (*grant, error) {
	id, err := newID()
	if err != nil {
		return nil, err // the system has no random numbers
	}
	if broken.reuseID {
		id = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%p %s", p, resource))
	}
	n := len(p.nodes)
	counterKey := p.conf.keyPrefix + resource + wire.FenceSuffix
	g := &grant{
		pool:       p,
		resource:   resource,
		lockConfig: lc,
		keys: node.Key{
			ID:      id.String(),
			Lock:    counterKey[:len(counterKey)-len(wire.FenceSuffix)],
			Counter: counterKey,
			TTL:     node.Millis(lc.ttl),
			Life:    lc.ttl + driftAllowance(lc.ttl, p.conf.drift),
		},
		signal: make(chan struct{}, 1),
		slot:   -1,
	}
	g.keys.Init(n)
	g.handles = g.onlyHandle[:0]
	g.deadline.Store(math.MinInt64) // a clock may show anything
	g.uncapped, g.dropAt = math.MinInt64, never
	// Most pools have no more than five nodes, whose state comes with the grant.
	g.places = slices.Grow(g.placesOfFive[:0], n)[:n]
	return g, nil
}

// Receive implements [node.Receiver] for all requests but those of a round.
func (g *grant) Receive(r *node.Request, rep node.Reply) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch r.Op {
	case wire.Acquire:
		g.votedLocked(r, rep)
	case wire.Raise:
		g.raisedLocked(r, rep)
	case wire.Release, wire.Rest:
		g.releasedLocked(r.Node, rep)
	}
}

// noteLocked keeps why a node did not say yes, for the error.
func (g *grant) noteLocked(i int, o wire.Op, err error) {
	g.places[i].op, g.places[i].err = o, err
}

// wakeLocked has the call that waits for this grant look again.
func (g *grant) wakeLocked() { g.wake() }

func (g *grant) wake() {
	select {
	case g.signal <- struct{}{}:
	default:
	}
}

// countLocked counts the nodes of which something is true.
func (g *grant) countLocked(is func(*place) bool) int {
	n := 0
	for i := range g.places {
		if is(&g.places[i]) {
			n++
		}
	}
	return n
}

// presentFenceLocked is the token of the lease's present holder.
func (g *grant) presentFenceLocked() int64 { return firstFence(g.target) + int64(g.handed) }

// keyLife is the least time a node keeps the key after a request sent at start.
func (g *grant) keyLife(start instant) instant {
	return start.Add(g.ttl - driftAllowance(g.ttl, g.pool.conf.drift))
}

func (g *grant) validity() time.Duration {
	return validity(instant(g.deadline.Load()), g.pool.now())
}

// timeoutError says which bound it was, and whose.
func (g *grant) timeoutError() error {
	return fmt.Errorf("%w of %v (see WithNodeTimeout)", errNodeTimeout, g.timeout())
}

// quorumErrorLocked tells how a round over the nodes ended.
func (g *grant) quorumErrorLocked(name string, granted int, failed func(*place) bool, reasons ...error) *QuorumError {
	e := &QuorumError{Op: name, Resource: g.resource, Granted: granted, Need: quorum(len(g.places)), of: len(g.places), reasons: reasons, gate: g.word}
	for i := range g.places {
		if p := &g.places[i]; failed(p) {
			err, o := p.err, p.op
			if err == nil {
				err = errUndecided
			}
			if err == errNodeTimeout {
				err = g.timeoutError()
			}
			n := g.pool.nodes[i]
			if left := n.Standing().SaidIn(g.pool.now()); err == errUndecided && left > 0 {
				err = node.Quarantine(left) // as the node said when it was last asked
			}
			left, _ := err.(node.Quarantine)
			e.Nodes = append(e.Nodes, &NodeError{Node: n.Addr(), Op: o.String(), Err: err, Quarantine: time.Duration(left)})
		}
	}
	return e
}
