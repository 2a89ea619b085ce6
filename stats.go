package redlock

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/node"
)

// Stats is a snapshot of a Locker, see [Locker.Stats].
type Stats struct {
	Leases  []LeaseStats  // the leases that are held, in the order of resource, slot and fencing token
	Masters []MasterStats // in the order they were given to New, group by group
	Waiting int           // calls of Lock and Do that have no lease yet
	Counts  Counts
}

// LeaseStats is one lease that is held.
type LeaseStats struct {
	Resource string
	Slot     int // of a permit, from 1
	Mode     Mode
	Token    string        // as on the masters; use Fence instead in logs and metrics
	Fence    int64         // of the present holder
	Since    time.Time     // when the present holder got the lease
	TTL      time.Duration // of each grant and renewal
	Validity time.Duration // as by [Lease.Validity]
	Renewals int           // successful renewals since the masters granted the lease, Extend included
	Handles  int           // handles not yet unlocked; more than 1 by [WithReentry], or as readers of the process share the lease
}

// MasterState says whether the Locker sends requests to a master.
type MasterState int

// The states of a master.
const (
	MasterUntried MasterState = iota // there was no request yet
	MasterUp                         // the master was reached, and gets requests
	MasterDown                       // the master gets no requests until it can be reached again
)

func (s MasterState) String() string {
	if s < MasterUntried || s > MasterDown {
		return fmt.Sprintf("MasterState(%d)", int(s))
	}
	return [...]string{"untried", "up", "down"}[s]
}

// MasterStats is the state of one master, as of the last exchange with it. A Locker notices that a
// master hangs or is gone when it next sends it a request.
type MasterStats struct {
	Master     string // address, without credentials
	Group      int    // number of its group of masters, from 1; see [NewSharded]
	State      MasterState
	Err        error         // why the master was last down; stays when it is up again; nil if it never was down
	ErrTime    time.Time     // when the master last went down; zero if it never did
	Quarantine time.Duration // how long the master has no vote, as far as the Locker knows
	Skewed     bool          // the clock of the master is too far from the others: it grants nothing
	RoundTrip  time.Duration // of the last exchange; 0 before the first
}

// Counts says how often something happened since New, with an [Observer] or without. The numbers
// never fall.
type Counts struct {
	Acquired     uint64 // leases, by grant, hand-over or Adopt
	NotAcquired  uint64 // failed attempts; one Lock can make many
	Taken        uint64 // failed attempts because of another holder
	NoQuorum     uint64 // failed attempts because of the masters
	Extended     uint64 // renewals and calls of Extend that were successful
	ExtendFailed uint64 // renewals and calls of Extend that failed
	Lost         uint64 // leases that ended without having been released
	Released     uint64 // leases that were unlocked, closed, handed over or detached
	MasterDown   uint64
	MasterForgot uint64
	Quarantined  uint64
	ClockStepped uint64
	StoodStill   uint64
	Warnings     uint64
	Dropped      uint64 // events that were dropped because the callbacks of the Observer were too slow
}

// Stats returns a snapshot for metrics and debugging. It asks no master, takes a few
// microseconds and a little time for each lease, and can be called at any time, even after
// Close. Its parts are read one after the other, and can differ by what happened in between: do
// not use it in place of a lease.
func (l *Locker) Stats() Stats {
	s := Stats{Counts: l.events.counts.read()}
	for _, p := range l.groups {
		s.Waiting += p.waitlines.waiting()
		for _, g := range p.renewer.all() {
			if ls, held := g.stats(); held {
				s.Leases = append(s.Leases, ls)
			}
		}
		for _, n := range p.nodes {
			s.Masters = append(s.Masters, statsOf(n, p))
		}
	}
	slices.SortFunc(s.Leases, func(a, b LeaseStats) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Fence, b.Fence))
	})
	return s
}

func (g *grant) stats() (s LeaseStats, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := g.validity()
	if g.cause != nil || left <= 0 || len(g.handles) == 0 {
		return s, false
	}
	resource, slot := g.named()
	return LeaseStats{
		Resource: resource,
		Slot:     slot,
		Mode:     g.modeLocked(),
		Token:    g.keys.ID,
		Fence:    g.presentFenceLocked(),
		Since:    g.handles[0].since,
		TTL:      g.ttl,
		Validity: left,
		Renewals: g.renewal.count,
		Handles:  len(g.handles),
	}, true
}

func statsOf(n *node.Node, p *pool) MasterStats {
	standing, now := n.Standing(), p.now()
	s := MasterStats{
		Master: n.Addr(), Group: p.group + 1, Skewed: standing.Skewed(), RoundTrip: n.RoundTrip(), Quarantine: standing.VotesIn(now),
		Err: standing.Failure, ErrTime: standing.FailedAt,
	}
	switch {
	case standing.Down != nil:
		s.State, s.Err = MasterDown, standing.Down
	case standing.Reached:
		s.State = MasterUp
	}
	return s
}

// counts has the counters that Counts is read from.
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
		MasterDown:   c.nodeDown.Load(),
		MasterForgot: c.nodeForgot.Load(),
		Quarantined:  c.quarantined.Load(),
		ClockStepped: c.clockStepped.Load(),
		StoodStill:   c.stoodStill.Load(),
		Warnings:     c.warnings.Load(),
		Dropped:      c.dropped.Load(),
	}
}
