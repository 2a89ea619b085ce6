package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// survey makes sure that all clients have the same groups of masters. Clients with different
// groups may ask different masters for a resource, so it is not enough to compare the groups
// at the masters that are asked for the resource: the masters of all groups are asked. While no
// survey that has passed counts, no master has a vote for this client.
//
// Source: ALGORITHM section 8, "Groups".
type survey struct {
	groups  []*pool
	entered []bool       // by group: a quorum has accepted the client's groups, and the surveys have not lapsed since
	refused bool         // the last survey has not passed
	until   atomic.Int64 // an instant: the last survey that has passed counts until then
	asks    chan chan struct{}
	closing <-chan struct{}
}

func newSurvey(groups []*pool) *survey {
	s := &survey{
		groups:  groups,
		entered: make([]bool, len(groups)),
		asks:    make(chan chan struct{}),
		closing: groups[0].closing,
	}
	s.until.Store(int64(clock.Start))
	return s
}

func (s *survey) now() instant { return s.groups[0].now() }

// counts reports whether the last survey that has passed counts.
func (s *survey) counts() bool { return s.now() < instant(s.until.Load()) }

// await returns when a survey has passed or failed. It returns at once while the last one counts.
func (s *survey) await(ctx context.Context) {
	if s.counts() {
		return
	}
	done := make(chan struct{})
	select {
	case s.asks <- done:
	case <-ctx.Done():
		return
	case <-s.closing:
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-s.closing:
	}
}

// run is the goroutine of the survey. It begins with the first call for a lease: a client that only
// looks must not keep others out.
func (s *survey) run() {
	every := s.groups[0].set.SurveyCounts() / 2
	timer := time.NewTimer(every)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case done := <-s.asks:
			waiting := append(s.waiting(), done)
			if !s.counts() { // another call may have waited for the same
				s.round()
			}
			for _, done := range waiting {
				close(done)
			}
		case <-timer.C:
			s.round()
		case <-s.closing:
			return
		}
		timer.Reset(every)
	}
}

// waiting returns the other calls that wait for a survey at this moment.
func (s *survey) waiting() (calls []chan struct{}) {
	for {
		select {
		case done := <-s.asks:
			calls = append(calls, done)
		default:
			return calls
		}
	}
}

// round makes one survey. It ends when its verdict is certain, or when each node has answered or
// failed.
func (s *survey) round() {
	began := s.now()
	if !s.counts() {
		clear(s.entered)
	}
	ctx, cancel := context.WithCancel(s.groups[0].opened)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	type answer struct {
		group  int
		marker node.Marker
		err    error
	}
	answers := make(chan answer)
	found := make([]census, len(s.groups))
	for i, p := range s.groups {
		found[i] = census{need: p.need, missing: len(p.nodes), entered: s.entered[i]}
		for _, n := range p.nodes {
			asking.Go(func() {
				m, err := n.OnMarker(ctx, wire.Join, node.Marker{})
				select {
				case answers <- answer{i, m, err}:
				case <-ctx.Done():
				}
			})
		}
	}
	for slices.ContainsFunc(found, census.open) && ctx.Err() == nil {
		select {
		case a := <-answers:
			found[a.group].take(a.marker, a.err)
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		s.conclude(began, found)
	}
}

// conclude sets from the verdicts of all groups whether and until when the masters have votes.
func (s *survey) conclude(began instant, found []census) {
	until := began.Add(s.groups[0].set.SurveyCounts())
	if s.now() >= until {
		s.refuse(errSlowSurvey)
		return
	}
	lapsed := !s.counts()
	for i := range found {
		found[i].entered = found[i].entered && !lapsed
		if err := found[i].verdict(); err != nil && !s.groups[i].conf.rules.ignores(err) {
			s.refuse(&node.Elsewhere{Group: i + 1, Err: err})
			return
		}
	}
	for i := range found {
		s.entered[i] = found[i].entered || found[i].accepts()
	}
	s.refused = false
	s.until.Store(int64(until))
	s.tell(until, nil)
}

// refuse leaves the votes as the last survey that has passed has set them. It logs the first of
// several refusals.
func (s *survey) refuse(why error) {
	if !s.refused {
		s.refused = true
		s.groups[0].events.log("no lease can be granted or renewed: " + why.Error())
	}
	s.tell(instant(s.until.Load()), why)
}

var errSlowSurvey = errors.New("no vote: the masters of all groups took too long to answer")

// tell tells the nodes of all groups until when they have votes for this client, and why not longer.
func (s *survey) tell(until instant, why error) {
	for _, p := range s.groups {
		p.set.Surveyed(until, why)
	}
}

// census counts the answers of the nodes of one group.
type census struct {
	need, missing int
	entered       bool
	accepted      int           // nodes that accept
	emptied       int           // nodes that accept only if the client has entered the group
	answered      int           // nodes that are there
	conflict      error         // of a node that has refused the client's groups
	left          time.Duration // until the emptied nodes accept
}

// take counts the answer of one node.
func (c *census) take(m node.Marker, err error) {
	c.missing--
	switch {
	case node.Says(err, "OOM") || node.Says(err, "WRONGTYPE"): // it may have another client's groups
	case err != nil:
		return
	case m.Conflict != nil:
		c.conflict = m.Conflict
	case m.Settles == 0:
		c.accepted++
	default:
		c.emptied++
		c.left = max(c.left, m.Settles)
	}
	c.answered++
}

// accepts reports whether a quorum accepts the client's groups.
func (c census) accepts() bool {
	if c.entered {
		return c.accepted+c.emptied >= c.need
	}
	return c.accepted >= c.need
}

// open reports whether further answers can change the verdict.
func (c census) open() bool { return !c.accepts() && c.missing > 0 }

// verdict returns nil if the group passes: a quorum accepts the client's groups, or no quorum can be
// reached and no node names a conflict.
func (c *census) verdict() error {
	switch {
	case c.accepts():
		return nil
	case c.conflict != nil:
		return c.conflict
	case c.answered < c.need:
		return nil
	case c.left > 0:
		return node.Quarantine(c.left)
	}
	return fmt.Errorf("%d of %d masters accept the groups, want %d", c.accepted, c.answered, c.need)
}
