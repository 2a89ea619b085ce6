package attempt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/d0720281/redlock/chaos/model/search"
	"github.com/d0720281/redlock/chaos/model/searchtest"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// A search of every state that attempts of several processes can reach over three nodes. The
// attempts run the code of attempt.go itself: a state has, for each attempt, the number of its
// state in a list. The nodes follow the rules of the scripts, in a few lines.
//
// There is no time. A message or its reply takes any time or is lost, and the time of an attempt
// can be up at any moment. A holder keeps its keys until it releases them.
//
// Source: ALGORITHM sections 3 and 4.

const (
	searchNodes    = 3
	searchAttempts = 3
)

// mail has the messages under way between an attempt and a node.
type mail struct {
	what            mailKind
	counter, target int8
	release         bool // a release follows it
}

type mailKind uint8

const (
	nothing mailKind = iota
	toAcquire
	toRaise
	saysGranted
	saysRefused
	saysRaised
	saysUnraised
)

type searchNode struct {
	owner          uint8 // attempt + 1
	counter, given int8
	mail           [searchAttempts]mail
}

type searchState struct {
	node    [searchNodes]searchNode
	machine [searchAttempts]uint16 // index in the list of machines; 0 = not begun
	floor   [searchAttempts]int8   // the largest token in use when it began
	done    [searchAttempts]bool   // the attempt has released its keys
}

// attemptSearch is the model of some attempts.
type attemptSearch struct {
	rules    *rules.Rules
	need     int
	attempts int
	clocks   [searchNodes]int8 // the counters at the start
	patient  bool

	machines []*Attempt
	numbers  map[string]uint16
	phases   map[[2]phase]bool // the transitions that have occurred
}

func (c *attemptSearch) model() search.Model[searchState] {
	c.machines, c.numbers, c.phases = []*Attempt{nil}, map[string]uint16{}, map[[2]phase]bool{}
	m := search.Model[searchState]{Next: c.next, Check: c.check}
	for i := range searchNodes {
		m.Start.node[i].counter = c.clocks[i]
	}
	return m
}

// number returns the index of a machine's state in the list.
func (c *attemptSearch) number(a *Attempt) uint16 {
	key := []byte{byte(a.phase), byte(a.fencing.target), byte(a.approach.rounds)}
	for _, is := range []bool{a.approach.waitsTo != 0, a.approach.waited, a.approach.againAt != 0, a.approach.word.Vetoed, a.approach.Patient} {
		key = append(key, fmt.Sprint(is)[0])
	}
	for _, n := range a.Nodes {
		key = append(key, byte(n.Vote), byte(n.knows), byte(n.Counter), fmt.Sprint(n.refused)[0], fmt.Sprint(n.pending)[0])
	}
	k, ok := c.numbers[string(key)]
	if !ok {
		k = uint16(len(c.machines))
		c.machines, c.numbers[string(key)] = append(c.machines, a), k
	}
	return k
}

// step lets an attempt take an event, and sends its requests.
func (c *attemptSearch) step(s *searchState, k int, e Event) {
	a := &Attempt{
		Config:  Config{Rules: c.rules, Need: c.need, Timeout: 1000, Skew: func(int, instant) (error, bool) { return nil, true }},
		Nodes:   make([]Voter, searchNodes),
		start:   1,
		useless: 1 << 40,
	}
	policy := defaultAskPolicy
	policy.roundsAtOnce = 1
	a.approach = approach{policy: &policy, Way: Way{Strategy: line.Strategy{Patient: c.patient}}}
	before := asking
	if m := c.machines[s.machine[k]]; m != nil {
		*a = *m
		a.Nodes = slices.Clone(m.Nodes)
		before = a.phase
	}
	now := instant(1)
	if e.What == TimeUp {
		now = a.Arm()
	}
	for _, do := range a.Step(e, now, nil) {
		m := mail{what: toAcquire}
		if do.Op == wire.Raise {
			m = mail{what: toRaise, counter: int8(do.Counter), target: int8(do.Target)}
		}
		s.node[do.Node].mail[k] = m
	}
	if a.phase != before {
		c.phases[[2]phase{before, a.phase}] = true
	}
	if a.phase == lost {
		s.release(k)
	}
	s.machine[k] = c.number(a)
}

// release sends a release after all earlier requests. Their answers do not matter any more.
func (s *searchState) release(k int) {
	s.done[k] = true
	for i := range s.node {
		m := &s.node[i].mail[k]
		if m.what != toAcquire {
			*m = mail{}
		}
		m.release = true
	}
}

func (c *attemptSearch) holds(s *searchState, k int) bool {
	a := c.machines[s.machine[k]]
	return a != nil && a.phase == won && !s.done[k]
}

const (
	bothHold   = "two attempts hold the resource"
	tokenFalls = "a token is not larger than one before it"
)

func (c *attemptSearch) check(s searchState) string {
	holders := 0
	for k := range c.attempts {
		if c.holds(&s, k) {
			holders++
		}
	}
	if holders > 1 {
		return bothHold
	}
	var tokens []int64
	for k := range c.attempts {
		a := c.machines[s.machine[k]]
		if a == nil || a.phase != won {
			continue
		}
		if a.fencing.target <= int64(s.floor[k]) || slices.Contains(tokens, a.fencing.target) {
			return tokenFalls
		}
		tokens = append(tokens, a.fencing.target)
	}
	return ""
}

func (c *attemptSearch) next(s searchState, visit func(searchState, search.Step)) {
	for k := range c.attempts {
		a := c.machines[s.machine[k]]
		switch {
		case a == nil && (k == 0 || s.machine[k-1] != 0): // in the order of their numbers
			s := s
			for other := range c.attempts {
				if b := c.machines[s.machine[other]]; b != nil && b.phase == won {
					s.floor[k] = max(s.floor[k], int8(b.fencing.target))
				}
			}
			c.step(&s, k, Event{What: Begun})
			visit(s, search.Step{Format: "attempt %d begins", A: k})
		case a == nil:
		case a.phase == won && !s.done[k]:
			s := s
			s.release(k)
			visit(s, search.Step{Format: "attempt %d releases", A: k})
		case !a.phase.over():
			s := s
			c.step(&s, k, Event{What: TimeUp, Later: make([]instant, searchNodes)})
			visit(s, search.Step{Format: "attempt %d: its time is up", A: k})
		}
		for i := range searchNodes {
			c.deliver(s, k, i, visit)
		}
	}
}

// deliver visits the arrival of each message.
func (c *attemptSearch) deliver(s searchState, k, i int, visit func(searchState, search.Step)) {
	n := &s.node[i]
	m := n.mail[k]
	by := search.Step{Format: "between attempt %d and node %d: message %d arrives", A: k, B: i, C: int(m.what)}
	lose := s
	switch m.what {
	case toAcquire:
		said := mail{what: saysRefused, release: m.release}
		if n.owner == 0 {
			n.counter++
			n.owner, n.given = uint8(k+1), n.counter
		}
		if n.owner == uint8(k+1) {
			said = mail{what: saysGranted, counter: n.given, release: m.release}
		}
		n.mail[k] = said
		if m.release {
			n.mail[k] = mail{release: true}
		}
		visit(s, by)
	case toRaise:
		n.mail[k] = mail{what: saysUnraised}
		if n.owner == uint8(k+1) && n.given == m.counter {
			n.counter = max(n.counter, m.target)
			n.mail[k] = mail{what: saysRaised}
		}
		visit(s, by)
	case saysGranted, saysRefused, saysRaised, saysUnraised:
		n.mail[k] = mail{}
		c.step(&s, k, said(i, m))
		visit(s, by)
	case nothing:
		if !m.release {
			return
		}
		n.mail[k] = mail{}
		if n.owner == uint8(k+1) {
			n.owner, n.given = 0, 0
		}
		visit(s, search.Step{Format: "node %d has the release of attempt %d", A: i, B: k})
		return
	}
	lose.node[i].mail[k] = mail{release: m.release}
	visit(lose, search.Step{Format: "between attempt %d and node %d: message %d is LOST", A: k, B: i, C: int(m.what)})
}

// said converts a node's answer to an event.
func said(i int, m mail) Event {
	switch m.what {
	case saysGranted:
		return Event{What: Voted, Node: i, Vote: Vote{Counter: int64(m.counter), Server: fmt.Sprint(i), Word: wire.Word{Heard: i == 0}}}
	case saysRefused:
		return Event{What: Voted, Node: i, Vote: Vote{Refused: true, Err: node.ErrHeldByOther, Word: wire.Word{Heard: i == 0, Refused: i == 0}}}
	case saysRaised:
		return Event{What: Raised, Node: i}
	}
	return Event{What: Raised, Node: i, Err: errors.New("not raised")}
}

func searchOf(change func(*attemptSearch)) *attemptSearch {
	c := &attemptSearch{rules: rules.New(), need: searchNodes/2 + 1, attempts: 2}
	change(c)
	return c
}

// The library's own attempt is sound in every state that it can reach, and each transition of its
// phases occurs.
func TestAttemptSearch(t *testing.T) {
	seen := make(map[[2]phase]bool)
	for _, test := range []struct {
		name string
		*attemptSearch
	}{
		{"two attempts", searchOf(func(*attemptSearch) {})},
		{"counters that differ", searchOf(func(c *attemptSearch) { c.clocks = [searchNodes]int8{2, 0, 1} })},
		{"the queue node is waited for", searchOf(func(c *attemptSearch) { c.patient, c.clocks = true, [searchNodes]int8{0, 2, 1} })},
	} {
		t.Run(test.name, func(t *testing.T) {
			searchtest.Sound(t, test.model())
			maps.Copy(seen, test.phases)
			t.Logf("%d states of one attempt, %d transitions", len(test.machines)-1, len(test.phases))
		})
	}
	for from, list := range transitions {
		for _, to := range list {
			if !seen[[2]phase{phase(from), to}] && phase(from) != won && !testing.Short() { // no call gives a grant up in the model
				t.Errorf("phase %d never followed phase %d", to, from)
			}
		}
	}
}

// With any one rule wrong the search finds a fault.
func TestAttemptSearchControls(t *testing.T) {
	for _, test := range []struct {
		name string
		*attemptSearch
		want string
	}{
		{"a quorum of one", searchOf(func(c *attemptSearch) { c.need, c.clocks = 1, [searchNodes]int8{0, 9, 5} }), bothHold},
		{"no second round", searchOf(func(c *attemptSearch) {
			c.rules.Agreed, c.clocks = func(bool) bool { return true }, [searchNodes]int8{3, 0, 0}
		}), tokenFalls},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.model(), test.want) })
	}
}
