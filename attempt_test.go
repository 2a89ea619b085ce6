package redlock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// happens is an event, when it comes, and the attempt after it.
type happens struct {
	ms    int
	what  event
	do    string // the requests to send: a node to ask, or node:counter>target to raise
	phase phase
	until int // ms; when the time of the attempt is up
}

var (
	begins = event{what: begun}
	calls  = event{what: called}
	stale  = event{what: timeUp, node: -1} // of a timer that was set for an earlier moment
	errIll = errors.New("ill")
)

// heard is the word of the queue node, node 0, with its vote.
func heard(i int, w wire.Word) wire.Word {
	w.Heard = i == 0
	return w
}

func grants(i int, counter int64) event {
	return event{what: voted, node: i, vote: vote{counter: counter, server: fmt.Sprint(i), word: heard(i, wire.Word{})}}
}

func refuses(i int) event {
	return event{what: voted, node: i, vote: vote{refused: true, err: errHeldByOther, word: heard(i, wire.Word{Refused: i == 0})}}
}

func fails(i int) event { return event{what: voted, node: i, vote: vote{err: errIll}} }

func raises(i int, err error) event { return event{what: raised, node: i, err: err} }

// withReaders is a vote of a node where other readers have the key.
func withReaders(e event) event {
	e.vote.readers = true
	return e
}

// up is the end of the time; nodes may answer later, until these moments in ms.
func up(later ...int) event {
	e := event{what: timeUp, later: make([]instant, 3)}
	for i, ms := range later {
		e.later[i] = millis(ms)
	}
	return e
}

func millis(n int) instant { return instant(n) * instant(time.Millisecond) }

// What an attempt at three nodes does, one event after the other. The timeout is 50 ms, and each attempt begins at
// 10 ms.
//
// Source: ALGORITHM sections 3, 4, 9, 10 and 12.
func TestAttempt(t *testing.T) {
	first := func(a *attempt) { a.approach.QueueNodeFirst = true }
	patient := func(a *attempt) { a.approach.Patient = true }
	waits := func(a *attempt) { a.approach.Waits = true }
	oneRound := func(a *attempt) {
		a.approach.Waits = true
		policy := defaultAskPolicy
		policy.roundsAtOnce = 1
		a.approach.policy = &policy
	}
	skewed := func(certain bool) func(a *attempt) {
		return func(a *attempt) {
			a.skew = func(i int, _ instant) (error, bool) {
				if i == 1 {
					return errIll, certain
				}
				return nil, false
			}
		}
	}
	twice := grants(1, 64)
	twice.vote.server = "0"
	vetoed := refuses(0)
	vetoed.vote.word.Vetoed = true
	for _, test := range []struct {
		name    string
		set     func(*attempt)
		then    []happens
		granted int     // nodes that did all they were asked for
		rests   bool    // the process stays in the queue
		errs    []error // of the nodes; nil: not compared
	}{
		{"a quorum grants", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(1, 64), "", asking, 60}, {12, grants(2, 64), "", won, 0}, {13, fails(0), "", won, 0},
			{60, up(), "", won, 0}, {61, event{what: gaveUp}, "", lost, 0},
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
		}, 1, false, []error{errNodeTimeout, nil, errHeldByOther}},
		{"an adoption knows a larger token", func(a *attempt) { a.fencing.least = 128 }, []happens{
			{10, begins, "0 1 2", asking, 60}, {12, grants(0, 64), "", asking, 60}, {13, grants(1, 64), "0:64>128 1:64>128", raising, 63},
			{14, raises(1, nil), "", raising, 63}, {15, raises(0, nil), "", won, 0},
		}, 2, false, nil},

		{"the time is up", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, refuses(1), "", asking, 60}, {60, up(), "", lost, 0},
		}, 1, false, []error{nil, errHeldByOther, errNodeTimeout}},
		{"a node was asked later than the others", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {60, up(60, 80, 60), "", asking, 80}, {79, grants(1, 64), "", won, 0},
		}, 2, false, []error{nil, nil, errNodeTimeout}},
		{"a grant would come too late to be of use", func(a *attempt) { a.useless = millis(70) }, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {60, up(0, 80, 90), "", asking, 70}, {70, up(0, 80, 90), "", lost, 0},
		}, 1, false, nil},

		{"a node answers twice", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(0, 64), "", asking, 60}, {12, fails(0), "", asking, 60}, {13, grants(1, 64), "", won, 0},
		}, 2, false, nil},

		{"the queue node first", first, []happens{
			{10, begins, "0", askingQueueNode, 60}, {20, grants(0, 64), "1 2", asking, 70}, {60, stale, "", asking, 70}, {61, grants(2, 64), "", won, 0},
		}, 2, false, nil},
		{"the queue node first, which refuses", func(a *attempt) { first(a); waits(a) }, []happens{
			{10, begins, "0", askingQueueNode, 60}, {20, refuses(0), "", lost, 0},
		}, 0, true, []error{errHeldByOther, errNotAsked, errNotAsked}},
		{"the queue node first, which is ill", first, []happens{
			{10, begins, "0", askingQueueNode, 60}, {20, fails(0), "1 2", asking, 70}, {21, grants(1, 64), "", asking, 70}, {22, grants(2, 64), "", won, 0},
		}, 2, false, nil},
		{"the queue node first, which is silent", first, []happens{
			{10, begins, "0", askingQueueNode, 60}, {60, up(), "1 2", asking, 110}, {61, grants(1, 64), "", asking, 110}, {62, grants(2, 64), "", won, 0},
		}, 2, false, []error{errNodeTimeout, nil, nil}},
		{"called while the queue node alone is asked", first, []happens{
			{10, begins, "0", askingQueueNode, 60}, {20, calls, "1 2", asking, 70}, {21, calls, "", asking, 70}, {22, grants(1, 64), "", asking, 70}, {23, grants(2, 64), "", won, 0},
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
		{"a quorum waits, and the process is called", patient, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(1, 64), "", asking, 60}, {30, grants(2, 64), "", asking, 50}, {31, calls, "", won, 0},
		}, 2, false, nil},
		{"readers wait a whole timeout", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, grants(1, 64), "", asking, 60}, {12, withReaders(grants(2, 64)), "", asking, 60}, {60, up(), "", won, 0},
		}, 2, false, nil},
		{"a reader behind readers, and the queue node refuses", func(a *attempt) { a.approach.shared = true }, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, withReaders(grants(1, 64)), "", asking, 60}, {12, refuses(0), "", lost, 0},
		}, 1, false, nil},
		{"a writer behind readers, and the queue node refuses", nil, []happens{
			{10, begins, "0 1 2", asking, 60}, {11, withReaders(grants(1, 64)), "", asking, 60}, {12, refuses(0), "", asking, 60}, {13, grants(2, 64), "", won, 0},
		}, 2, false, nil},
		{"an attempt that yields, and the queue node refuses", func(a *attempt) { a.approach.yields = true }, []happens{
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
		}, 1, false, []error{nil, errIll, errHeldByOther}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &attempt{
				rules: rules.New(), need: 2, timeout: 50 * time.Millisecond, start: millis(10), useless: millis(1000), nodes: make([]voter, 3),
				skew:     func(int, instant) (error, bool) { return nil, false },
				approach: approach{policy: &defaultAskPolicy},
			}
			if test.set != nil {
				test.set(a)
			}
			for i, s := range test.then {
				if s.what.node < 0 {
					a.armed = 0
				}
				var do []string
				for _, r := range a.step(s.what, millis(s.ms), nil) {
					text := fmt.Sprint(r.node)
					if r.op == wire.Raise {
						text = fmt.Sprintf("%d:%d>%d", r.node, r.counter, r.target)
					}
					do = append(do, text)
				}
				until := a.arm()
				if got := strings.Join(do, " "); got != s.do || a.phase != s.phase || !a.phase.over() && until != millis(s.until) || a.phase == won && a.answered == 0 {
					t.Fatalf("event %d: got requests %q, phase %d, time up at %v; want %q, %d, %d ms", i, got, a.phase, time.Duration(until), s.do, s.phase, s.until)
				}
			}
			if got := a.granted(); got != test.granted || a.approach.rests() != test.rests {
				t.Errorf("got %d nodes that granted, and that the process rests: %v; want %d, %v", got, a.approach.rests(), test.granted, test.rests)
			}
			for i, want := range test.errs {
				if got := a.nodes[i].err; got != want {
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
