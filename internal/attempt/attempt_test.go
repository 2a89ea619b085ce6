package attempt

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// happens is an event, when it comes, and the attempt after it.
type happens struct {
	ms    int
	what  Event
	do    string // the requests to send: a node to ask, or node:counter>target to raise
	phase phase
	until int // ms; when the time of the attempt is up
}

var (
	begins = Event{What: Begun}
	stale  = Event{What: TimeUp, Node: -1} // of a timer that was set for an earlier moment
	errIll = errors.New("ill")
)

// heard is the word of the queue node, node 0, with its vote.
func heard(i int, w wire.Word) wire.Word {
	w.Heard = i == 0
	return w
}

func grants(i int, counter int64) Event {
	return Event{What: Voted, Node: i, Vote: Vote{Counter: counter, Server: fmt.Sprint(i), Word: heard(i, wire.Word{})}}
}

func refuses(i int) Event {
	return Event{What: Voted, Node: i, Vote: Vote{Refused: true, Err: node.ErrHeldByOther, Word: heard(i, wire.Word{Refused: i == 0})}}
}

func fails(i int) Event { return Event{What: Voted, Node: i, Vote: Vote{Err: errIll}} }

func raises(i int, err error) Event { return Event{What: Raised, Node: i, Err: err} }

// withReaders is a vote of a node where other readers have the key.
func withReaders(e Event) Event {
	e.Vote.Readers = true
	return e
}

// up is the end of the time; nodes may answer later, until these moments in ms.
func up(later ...int) Event {
	e := Event{What: TimeUp, Later: make([]instant, 3)}
	for i, ms := range later {
		e.Later[i] = millis(ms)
	}
	return e
}

func millis(n int) instant { return instant(n) * instant(time.Millisecond) }

// What an attempt at three nodes does, one event after the other. The timeout is 50 ms, and each attempt begins at
// 10 ms.
//
// Source: ALGORITHM sections 3, 4, 9, 10 and 12.
func TestAttempt(t *testing.T) {
	patient := func(a *Attempt) { a.approach.Patient = true }
	waits := func(a *Attempt) { a.approach.Waits = true }
	oneRound := func(a *Attempt) {
		a.approach.Waits = true
		policy := defaultAskPolicy
		policy.roundsAtOnce = 1
		a.approach.policy = &policy
	}
	skewed := func(certain bool) func(a *Attempt) {
		return func(a *Attempt) {
			a.Skew = func(i int, _ instant) (error, bool) {
				if i == 1 {
					return errIll, certain
				}
				return nil, false
			}
		}
	}
	twice := grants(1, 64)
	twice.Vote.Server = "0"
	vetoed := refuses(0)
	vetoed.Vote.Word.Vetoed = true
	for _, test := range []struct {
		name    string
		set     func(*Attempt)
		then    []happens
		granted int     // nodes that did all they were asked for
		rests   bool    // the process stays in the queue
		errs    []error // of the nodes; nil: not compared
	}{
		{"a quorum grants", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(1, 64), "", asking, 60}, {12, grants(2, 64), "", won, 0}, {13, fails(0), "", won, 0},
			{60, up(), "", won, 0}, {61, Event{What: GaveUp}, "", lost, 0},
		}, 2, false, []error{errIll, nil, nil}},
		{"a quorum fails", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, fails(0), "", asking, 60}, {12, fails(1), "", lost, 0},
		}, 0, false, nil},
		{"one server under two addresses", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, twice, "", asking, 60}, {13, grants(2, 64), "", won, 0},
		}, 2, false, []error{nil, errTwice, nil}},

		{"counters differ", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, raises(0, nil), "", asking, 60}, {12, grants(0, 64), "", asking, 60},
			{13, grants(1, 128), "0:64>128", raising, 63}, {14, raises(0, nil), "", won, 0},
		}, 2, false, nil},
		{"a raise fails, and the third node grants", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, grants(0, 64), "", asking, 60}, {13, grants(1, 128), "0:64>128", raising, 63},
			{14, raises(0, errIll), "", raising, 63}, {15, raises(0, nil), "", raising, 63}, {16, grants(2, 64), "2:64>128", raising, 63}, {17, raises(2, nil), "", won, 0},
		}, 2, false, []error{errIll, nil, nil}},
		{"a later vote has the target", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, grants(0, 64), "", asking, 60}, {13, grants(1, 128), "0:64>128", raising, 63}, {14, grants(2, 128), "", won, 0},
		}, 3, false, nil},
		{"a later vote has more than the target", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, grants(0, 64), "", asking, 60}, {13, grants(1, 128), "0:64>128", raising, 63},
			{14, grants(2, 192), "", raising, 63}, {15, raises(0, errIll), "", lost, 0},
		}, 1, false, nil},
		{"a raise is not answered", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, grants(0, 64), "", asking, 60}, {13, refuses(2), "", asking, 60}, {14, grants(1, 128), "0:64>128", raising, 64},
			{64, up(80), "", raising, 80}, {80, up(), "", lost, 0},
		}, 1, false, []error{errNodeTimeout, nil, node.ErrHeldByOther}},
		{"an adoption knows a larger token", func(a *Attempt) { a.Least = 128 }, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, grants(0, 64), "", asking, 60}, {13, grants(1, 64), "0:64>128 1:64>128", raising, 63},
			{14, raises(1, nil), "", raising, 63}, {15, raises(0, nil), "", won, 0},
		}, 2, false, nil},

		{"the time is up", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, refuses(1), "", asking, 60}, {60, up(), "", lost, 0},
		}, 1, false, []error{nil, node.ErrHeldByOther, errNodeTimeout}},
		{"a node was asked later than the others", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {60, up(60, 80, 60), "", asking, 80}, {79, grants(1, 64), "", won, 0},
		}, 2, false, []error{nil, nil, errNodeTimeout}},
		{"a grant would come too late to be of use", func(a *Attempt) { a.useless = millis(70) }, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {60, up(0, 80, 90), "", asking, 70}, {70, up(0, 80, 90), "", lost, 0},
		}, 1, false, nil},

		{"a node answers twice", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, fails(0), "", asking, 60}, {13, grants(1, 64), "", won, 0},
		}, 2, false, nil},

		{"a quorum waits for the queue node", patient, []happens{
			{10, begins, "0 1 2", asking, 60}, {10, grants(1, 64), "", asking, 60}, {11, grants(2, 64), "", asking, 13}, {13, up(), "", won, 0},
		}, 2, false, nil},
		{"a quorum waits as long again as it took", patient, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(1, 128), "", asking, 60}, {30, grants(2, 128), "", asking, 50}, {40, grants(0, 64), "", won, 0},
		}, 3, false, nil},
		{"a quorum waits, and no longer than the timeout", patient, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(1, 64), "", asking, 60}, {50, grants(2, 64), "", asking, 60}, {51, vetoed, "", lost, 0},
		}, 2, false, nil},
		{"readers wait a whole timeout", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(1, 64), "", asking, 60}, {12, withReaders(grants(2, 64)), "", asking, 60}, {60, up(), "", won, 0},
		}, 2, false, nil},
		{"a reader behind readers, and the queue node refuses", func(a *Attempt) { a.approach.Shared = true }, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, withReaders(grants(1, 64)), "", asking, 60}, {12, refuses(0), "", lost, 0},
		}, 1, false, nil},
		{"a writer behind readers, and the queue node refuses", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, withReaders(grants(1, 64)), "", asking, 60}, {12, refuses(0), "", asking, 60}, {13, grants(2, 64), "", won, 0},
		}, 2, false, nil},
		{"an attempt that yields, and the queue node refuses", func(a *Attempt) { a.approach.Yields = true }, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, refuses(0), "", lost, 0},
		}, 0, false, nil},

		{"a quorum refuses, and the queue node is silent", waits, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, refuses(1), "", asking, 60}, {13, refuses(2), "", asking, 16}, {16, up(), "", lost, 0},
		}, 0, true, nil},
		{"one node refuses, one is ill, and the queue node is silent", waits, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, refuses(1), "", asking, 60}, {13, fails(2), "", asking, 16}, {16, up(), "", lost, 0},
		}, 0, false, nil},
		{"the queue node grants, and a quorum refuses", oneRound, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {11, refuses(1), "", asking, 60}, {12, refuses(2), "1 2", asking, 60},
			{12, refuses(1), "", asking, 60}, {13, refuses(2), "", asking, 15}, {14, stale, "", asking, 15}, {15, up(), "1 2", asking, 60},
			{15, refuses(1), "", asking, 60}, {15, refuses(2), "", lost, 0},
		}, 1, true, nil},
		{"a TryLock asks those that refuse five times more", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {11, fails(1), "", asking, 60}, {12, refuses(2), "2", asking, 60},
			{12, refuses(2), "2", asking, 60}, {12, refuses(2), "2", asking, 60}, {12, refuses(2), "2", asking, 60}, {12, refuses(2), "2", asking, 60}, {12, refuses(2), "", lost, 0},
		}, 1, false, nil},
		{"the queue node grants, one refuses and one is ill", oneRound, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, fails(1), "", asking, 60}, {13, refuses(2), "2", asking, 60},
			{59, refuses(2), "", asking, 60}, {60, up(), "", lost, 0},
		}, 1, false, nil},
		{"the queue node grants, and one refuses until the end", oneRound, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, fails(1), "", asking, 60}, {13, refuses(2), "2", asking, 60},
			{60, refuses(2), "", lost, 0},
		}, 1, false, nil},

		{"a clock is too far from the others", skewed(true), []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, grants(1, 64), "", asking, 60}, {13, grants(2, 64), "", won, 0},
		}, 2, false, []error{nil, errIll, nil}},
		{"a clock is too far from the others, and a node is ill", skewed(true), []happens{
			{10, begins, "0 1 2", asking, 60}, {11, fails(0), "", asking, 60}, {12, grants(1, 64), "", asking, 60}, {13, grants(2, 64), "", lost, 0},
		}, 1, false, []error{errIll, errIll, nil}},
		{"one of two clocks is too far from the other", skewed(false), []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, grants(1, 64), "", asking, 60}, {13, grants(2, 64), "", won, 0},
		}, 2, false, []error{nil, errIll, nil}},
		{"one of two clocks is too far from the other, and the third node refuses", skewed(false), []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, refuses(2), "", asking, 60}, {13, grants(1, 64), "2", asking, 60},
		}, 1, false, []error{nil, errIll, node.ErrHeldByOther}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &Attempt{
				Config: Config{Rules: rules.New(), Need: 2, Timeout: 50 * time.Millisecond, Skew: func(int, instant) (error, bool) { return nil, false }},
				Nodes:  make([]Voter, 3), start: millis(10), useless: millis(1000),
				approach: approach{policy: &defaultAskPolicy},
			}
			if test.set != nil {
				test.set(a)
			}
			for i, s := range test.then {
				if s.what.Node < 0 {
					a.armed = 0
				}
				var do []string
				for _, r := range a.Step(s.what, millis(s.ms), nil) {
					text := fmt.Sprint(r.Node)
					if r.Op == wire.Raise {
						text = fmt.Sprintf("%d:%d>%d", r.Node, r.Counter, r.Target)
					}
					do = append(do, text)
				}
				until := a.Arm()
				if got := strings.Join(do, " "); got != s.do || a.phase != s.phase || !a.phase.over() && until != millis(s.until) || a.phase == won && a.answered == 0 {
					t.Fatalf("event %d: got requests %q, phase %d, time up at %v; want %q, %d, %d ms", i, got, a.phase, time.Duration(until), s.do, s.phase, s.until)
				}
			}
			if got := a.Granted(); got != test.granted || a.approach.rests() != test.rests {
				t.Errorf("got %d nodes that granted, and that the process rests: %v; want %d, %v", got, a.approach.rests(), test.granted, test.rests)
			}
			for i, want := range test.errs {
				if got := a.Nodes[i].Err; got != want {
					t.Errorf("node %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
	for i, words := range [][]wire.Word{{{Heard: true, Foreign: true}, {Heard: true}}, {{Heard: true}, {Heard: true, Foreign: true}}, {{Heard: true}, {Foreign: true}}} {
		var a approach
		for _, w := range words {
			a.hear(w)
		}
		if want := i < 2; a.word.Foreign != want {
			t.Errorf("%+v: got that the key is that of another library: %v", words, !want)
		}
	}
}
