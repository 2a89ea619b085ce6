package node

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/rules"
)

// nothing ignores all Events.
type nothing struct{}

func (nothing) Asked(*Node, time.Duration, error) {}
func (nothing) Down(*Node, error)                 {}
func (nothing) Up(*Node)                          {}
func (nothing) Audited(*Node, *Audit, *Audit)     {}
func (nothing) Quarantined(*Node, time.Duration)  {}
func (nothing) Stepped(*Node, time.Duration)      {}
func (nothing) StoodStill(time.Duration)          {}
func (nothing) Starved(time.Duration)             {}
func (nothing) Warning(*Node, error)              {}

// clockOf is a clock that a test moves.
type clockOf func() time.Duration

func (c clockOf) Now() time.Duration { return c() }

// idle returns nodes that do not run. Their clock stands still at one hour.
func idle(t *testing.T, n int) *Set {
	t.Helper()
	masters := make([]redis.Options, n)
	for i := range masters {
		masters[i].Addr = fmt.Sprintf("%c:1", 'a'+i)
	}
	return NewSet(Config{
		Rules:   rules.New(),
		Timeout: 250 * time.Millisecond, MaxTTL: 10 * time.Second, Drift: 0.01, Quorum: n/2 + 1, Guard: true,
		Clock:  clock.NewLease(clockOf(func() time.Duration { return time.Hour })),
		Events: nothing{}, Changed: func() {}, Corrected: func() {},
	}, masters)
}

// clockEvents notes what is reported about clocks.
type clockEvents struct {
	nothing
	stepped []int
	stood   time.Duration
}

func (e *clockEvents) Stepped(n *Node, _ time.Duration) { e.stepped = append(e.stepped, n.index) }
func (e *clockEvents) StoodStill(d time.Duration)       { e.stood = d }

// A node whose clock stepped has no vote until the watch knows whose clock it was. Each node
// carries out its own part of the verdict.
//
// Source: ALGORITHM section 9.
func TestNodesCarryOutVerdicts(t *testing.T) {
	const micros = int64(1_700_000_000_000_000)
	type set struct {
		*Set
		events    clockEvents
		corrected int
		out       outcomes
	}
	ready := func(t *testing.T) *set {
		p := &set{Set: idle(t, 3)}
		p.conf.Events, p.conf.Corrected = &p.events, func() { p.corrected++ }
		for _, n := range p.nodes {
			n.observeLocked(micros, p.watch.Moment(n.now()), n.now(), &p.out)
		}
		return p
	}
	observe := func(p *set, i int, step time.Duration) {
		n := p.nodes[i]
		n.observeLocked(micros+step.Microseconds(), p.watch.Moment(n.now()), n.now(), &p.out)
	}
	heed := func(p *set, i int, at clock.Instant) *Node {
		n := p.nodes[i]
		n.heedLocked(at, &p.out)
		p.out.tell(n, at)
		return n
	}
	t.Run("all others are asked", func(t *testing.T) {
		p := ready(t)
		observe(p, 1, time.Second)
		for i, n := range p.nodes {
			if got, want := n.ordered(clockwatch.Ask) != 0, i != 1; got != want || len(n.wake) > 0 != want || n.hasChoresLocked() {
				t.Errorf("node %d asked for its clock: got %v and %d tokens, want %v", i, got, len(n.wake), want)
			}
			if got, want := n.Standing().Void(n.now(), false) == ErrStepped, i == 1; got != want || n.Standing().Unclear() != want {
				t.Errorf("node %d: got void %v, phase %d, want %v", i, n.Standing().Void(n.now(), false), n.Standing().phase, want)
			}
		}
		if !p.InDoubt() {
			t.Error("no clock is in doubt")
		}
		if n := heed(p, 1, p.nodes[1].Standing().judgeBy-1); n.Standing().phase != suspect {
			t.Errorf("before the verdict: got phase %d, want %d", n.Standing().phase, suspect)
		}
	})
	t.Run("the node stepped", func(t *testing.T) {
		p := ready(t)
		observe(p, 1, time.Second)
		observe(p, 0, 0)
		observe(p, 2, 0)
		if n := heed(p, 1, p.nodes[1].Standing().judgeBy-1); n.Standing().phase != unmarked || len(p.events.stepped) != 1 || p.events.stepped[0] != 1 {
			t.Errorf("got phase %d, events about %v, want %d, [1]", n.Standing().phase, p.events.stepped, unmarked)
		}
		if n := heed(p, 0, p.nodes[0].now()); n.Standing().Unclear() || p.corrected != 0 {
			t.Errorf("node 0: got phase %d, %d corrections, want none", n.Standing().phase, p.corrected)
		}
	})
	t.Run("the local clock stood still", func(t *testing.T) {
		p := ready(t)
		observe(p, 1, time.Second)
		observe(p, 0, time.Second)
		for i := range 2 {
			if n := heed(p, i, p.nodes[i].Standing().judgeBy-1); n.Standing().Void(n.now(), false) != nil {
				t.Errorf("node %d: got phase %d, void %v, want none", i, n.Standing().phase, n.Standing().Void(n.now(), false))
			}
		}
		if p.events.stood < time.Second || p.corrected != 1 || p.conf.Clock.Stood() != p.events.stood || len(p.events.stepped) > 0 {
			t.Errorf("got %+v, %d corrections, of %v, want one of a second", p.events, p.corrected, p.conf.Clock.Stood())
		}
	})
	t.Run("the others do not answer", func(t *testing.T) {
		p := ready(t)
		observe(p, 1, time.Second)
		n := heed(p, 1, p.nodes[1].Standing().judgeBy)
		if left := n.Standing().VotesIn(n.now()); n.Standing().Unclear() || left != p.conf.quarantine() {
			t.Errorf("got phase %d, no vote for %v, want %d, %v", n.Standing().phase, left, sound, p.conf.quarantine())
		}
		if p.corrected != 1 || p.conf.Clock.Stood() < time.Second {
			t.Errorf("got %d corrections, of %v, want one of a second, to be on the safe side", p.corrected, p.conf.Clock.Stood())
		}
	})
	t.Run("a clock is too far from the others", func(t *testing.T) {
		p := ready(t)
		skewed := clockwatch.Skewed(time.Minute)
		p.nodes[0].skewedLocked(skewed, &p.out)
		if got := p.nodes[0].Standing(); !errors.Is(got.Void(0, true), skewed) || got.Void(0, false) != nil {
			t.Errorf("got void %v for grants, %v else, want %v, nil", got.Void(0, true), got.Void(0, false), skewed)
		}
		observe(p, 0, 0)
		if p.nodes[0].Standing().Skewed() {
			t.Error("the clock agrees, but the node is still skewed")
		}
	})
}

// Calls that wait for the nodes go on when the median of the clocks is known, or when no other clock can be read. The first
// ones wait as long again for the nodes that have not answered.
func TestSurvey(t *testing.T) {
	const micros = int64(1_700_000_000_000_000)
	for _, test := range []struct {
		name string
		want []int32 // how many of two calls go on after one, two and three nodes
		do   func(s *Set, i int)
	}{
		{"the nodes answer", []int32{0, 2, 2}, func(s *Set, i int) { // the clock of idle stands still
			n := s.nodes[i]
			n.observeLocked(micros, s.watch.Moment(n.now()), n.now(), new(outcomes))
			n.answeredLocked(n.now())
		}},
		{"the nodes are down", []int32{0, 2, 2}, func(s *Set, i int) {
			var out outcomes
			s.nodes[i].goDownLocked(ErrTimeout, s.nodes[i].now(), &out)
			out.tell(s.nodes[i], s.nodes[i].now())
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := idle(t, 3)
				var ended atomic.Int32
				for range 2 {
					go func() {
						s.Survey(t.Context(), nil, s.nodes[0].now(), time.Hour)
						ended.Add(1)
					}()
					synctest.Wait()
				}
				for i, want := range test.want {
					test.do(s, i)
					synctest.Wait()
					if got := ended.Load(); got != want {
						t.Errorf("after %d nodes: got %d calls that go on, want %d", i+1, got, want)
					}
				}
				if s.awaitsClocks.Load() != nil || s.awaitsAll.Load() != nil {
					t.Error("a call still waits")
				}
			})
		})
	}
}
