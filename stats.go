package redlock

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/node"
)

// Stats is what a Locker knows of itself at one moment, see [Locker.Stats].
type Stats struct {
	Leases  []LeaseStats // that are held, by resource and fencing token
	Nodes   []NodeStats  // in the order they were given to New
	Waiting int          // calls of Lock and Do that have no lease yet
	Counts  Counts
}

// LeaseStats is one lease that is held.
type LeaseStats struct {
	Resource string
	Token    string        // as on the nodes; not for logs or metrics, there is Fence
	Fence    int64         // of the present holder
	Since    time.Time     // when the present holder got it
	TTL      time.Duration // of each grant and renewal
	Validity time.Duration // what is left, as by [Lease.Validity]
	Renewals int           // successful ones since the masters granted it, Extend included
	Handles  int           // not yet unlocked; more than 1 by [WithReentry]
}

// NodeState is whether a node is asked.
type NodeState int

// The states of a node.
const (
	NodeUntried NodeState = iota // nothing had to be asked yet
	NodeUp                       // it was reached, and is asked
	NodeDown                     // it is not asked until it can be reached again
)

func (s NodeState) String() string {
	if s < NodeUntried || s > NodeDown {
		return fmt.Sprintf("NodeState(%d)", int(s))
	}
	return [...]string{"untried", "up", "down"}[s]
}

// NodeStats is what the Locker knows of one node from their last exchange. That a node
// hangs or has gone is only noticed when there is something to ask it.
type NodeStats struct {
	Node       string // address, without credentials
	State      NodeState
	Err        error         // why it was last down; stays when it is up again, nil if it never was
	ErrTime    time.Time     // when it last went down; zero if it never did
	Quarantine time.Duration // how long it has no vote, as far as is known
	Skewed     bool          // its clock is too far from the others: it grants nothing
	RoundTrip  time.Duration // of the last exchange; 0 before the first
}

// Counts says how often something happened since New. Each is counted when it happens,
// whether there is an [Observer] or not, and never falls.
type Counts struct {
	Acquired     uint64 // leases, by grant or by hand-over
	NotAcquired  uint64 // attempts that failed, of which Lock can make many
	Taken        uint64 // of those, because of another holder
	NoQuorum     uint64 // of those, because of the masters
	Extended     uint64 // renewals and calls of Extend that were successful
	ExtendFailed uint64 // that were not
	Lost         uint64 // leases that ended without having been released
	Released     uint64 // by Unlock or Close, handed over or detached
	NodeDown     uint64
	NodeForgot   uint64
	Quarantined  uint64
	ClockStepped uint64
	StoodStill   uint64
	Warnings     uint64
	Dropped      uint64 // events that the Observer was not told of
}

// Stats is a snapshot for metrics and debugging. It asks no node, costs a few microseconds
// and some for each lease, and can be called at any time, after Close too. Its parts are
// looked at one after the other, so they may differ by what happened meanwhile: nothing
// may be decided by it that a lease is needed for.
func (l *Locker) Stats() Stats {
	p := l.pool
	s := Stats{Waiting: p.waitlines.waiting(), Counts: p.events.counts.read()}
	for _, g := range p.renewer.all() {
		if ls, held := g.stats(); held {
			s.Leases = append(s.Leases, ls)
		}
	}
	slices.SortFunc(s.Leases, func(a, b LeaseStats) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Fence, b.Fence))
	})
	for _, n := range p.nodes {
		s.Nodes = append(s.Nodes, statsOf(n, p.now()))
	}
	return s
}

func (g *grant) stats() (s LeaseStats, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := g.validity()
	if g.cause != nil || left <= 0 || len(g.handles) == 0 {
		return s, false
	}
	return LeaseStats{
		Resource: g.resource,
		Token:    g.keys.ID,
		Fence:    g.presentFenceLocked(),
		Since:    g.handles[0].since,
		TTL:      g.ttl,
		Validity: left,
		Renewals: g.renewal.count,
		Handles:  len(g.handles),
	}, true
}

func statsOf(n *node.Node, now instant) NodeStats {
	standing := n.Standing()
	s := NodeStats{
		Node: n.Addr(), Skewed: standing.Skewed(), RoundTrip: n.RoundTrip(), Quarantine: standing.VotesIn(now),
		Err: standing.Failure, ErrTime: standing.FailedAt,
	}
	switch {
	case standing.Down != nil:
		s.State, s.Err = NodeDown, standing.Down
	case standing.Reached:
		s.State = NodeUp
	}
	return s
}

// counts is what Counts is read from.
type counts struct {
	acquired, notAcquired, taken, noQuorum, extended, extendFailed, lost, released atomic.Uint64
	nodeDown, nodeForgot, quarantined, clockStepped, stoodStill, warnings, dropped atomic.Uint64
}

// refused counts an attempt that failed.
func (c *counts) refused(err error) {
	c.notAcquired.Add(1)
	verdict, ok := err.(*QuorumError)
	if !ok {
		return
	}
	if slices.Contains(verdict.reasons, ErrTaken) {
		c.taken.Add(1)
	}
	if slices.Contains(verdict.reasons, ErrNoQuorum) {
		c.noQuorum.Add(1)
	}
}

func (c *counts) read() Counts {
	return Counts{
		Acquired:     c.acquired.Load(),
		NotAcquired:  c.notAcquired.Load(),
		Taken:        c.taken.Load(),
		NoQuorum:     c.noQuorum.Load(),
		Extended:     c.extended.Load(),
		ExtendFailed: c.extendFailed.Load(),
		Lost:         c.lost.Load(),
		Released:     c.released.Load(),
		NodeDown:     c.nodeDown.Load(),
		NodeForgot:   c.nodeForgot.Load(),
		Quarantined:  c.quarantined.Load(),
		ClockStepped: c.clockStepped.Load(),
		StoodStill:   c.stoodStill.Load(),
		Warnings:     c.warnings.Load(),
		Dropped:      c.dropped.Load(),
	}
}
