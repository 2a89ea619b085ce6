package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// A node that may have lost keys votes again when it has noted that, or a quarantine later, whatever else happens.
// All sequences of ten events are tried. A table with a row that forgets the loss is the control.
func TestTrust(t *testing.T) {
	if why := forgets(transitions[:]); why != nil {
		t.Errorf("after %v the node votes", why)
	}
	for _, row := range []happening{stepped, dispelled, undecided, told, cutOff, replaced} {
		wrong := slices.Clone(transitions[:])
		wrong[row][unmarked], wrong[row][marking] = sound, sound
		if forgets(wrong) == nil {
			t.Errorf("event %d ends the doubt about a node that lost keys, and no sequence shows that", row)
		}
	}
}

// forgets returns a sequence of events after which a node has a vote that must have none, or nil.
func forgets(table [][4]phase) []happening {
	type state struct {
		phase phase
		lost  bool // a loss that was neither noted nor waited for
	}
	queue, seen := [][]happening{nil}, map[state]bool{}
	for ; len(queue) > 0; queue = queue[1:] {
		var s state
		for _, h := range queue[0] {
			switch {
			case h == proven:
				s.lost = true
			case s.phase == marking && h == marked, s.phase >= unmarked && h == unmarkable:
				s.lost = false
			}
			s.phase = table[h][s.phase]
		}
		if s.lost && s.phase == sound {
			return queue[0]
		}
		if seen[s] || len(queue[0]) == 10 {
			continue
		}
		seen[s] = true
		for h := range happening(len(table)) {
			if h == marked && s.phase != marking || h == unmarkable && s.phase < unmarked {
				continue // no such request is under way
			}
			queue = append(queue, append(slices.Clone(queue[0]), h))
		}
	}
	return nil
}

// Each reason for which a node has no vote, alone.
func TestVoid(t *testing.T) {
	const now, quarantine = clock.Instant(time.Hour), time.Minute
	no := errors.New("no")
	for _, test := range []struct {
		name          string
		do            func(*trust)
		always, grant error // why other requests and acquires have no vote
		votesIn       time.Duration
	}{
		{"none", func(*trust) {}, nil, nil, 0},
		{"a step", func(t *trust) { t.suspectUntil(now + 1) }, ErrStepped, ErrStepped, 0},
		{"a loss", func(t *trust) { t.lose(ErrForgot) }, ErrForgot, ErrForgot, 0},
		{"a loss during a step", func(t *trust) { t.suspectUntil(now + 1); t.lose(ErrForgot); t.acquit() }, ErrForgot, ErrForgot, 0},
		{"a step that was none", func(t *trust) { t.suspectUntil(now + 1); t.acquit() }, nil, nil, 0},
		{"a step that perhaps was none", func(t *trust) {
			t.suspectUntil(now + 1)
			t.distrust(undecided, now.Add(quarantine))
		}, Quarantine(quarantine), Quarantine(quarantine), quarantine},
		{"a step that perhaps was none, a quarantine ago", func(t *trust) { t.distrust(undecided, now) }, nil, nil, 0},
		{"a loss that the node cannot note", func(t *trust) {
			t.lose(ErrForgot)
			t.distrust(unmarkable, now.Add(quarantine))
		}, Quarantine(quarantine), Quarantine(quarantine), quarantine},
		{"a loss that the node has noted", func(t *trust) {
			t.lose(ErrForgot)
			t.enter(told)
			t.enter(marked)
			t.votesAt = now.Add(quarantine)
		}, nil, nil, quarantine}, // the node says so with each reply
		{"the list", func(t *trust) { t.refused = no }, no, no, 0},
		{"the clock", func(t *trust) { t.skewed = no }, nil, no, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			trusted := trust{votesAt: clock.Start, distrustTo: clock.Start}
			test.do(&trusted)
			if got := trusted.Void(now, false); got != test.always {
				t.Errorf("got %v, want %v", got, test.always)
			}
			if got := trusted.Void(now, true); got != test.grant {
				t.Errorf("for grants: got %v, want %v", got, test.grant)
			}
			if got := trusted.VotesIn(now); got != test.votesIn {
				t.Errorf("votes in %v, want %v", got, test.votesIn)
			}
		})
	}
}

// Milliseconds are rounded up: a node keeps a key for no less than the TTL.
//
// Source: ALGORITHM section 1, "whole milliseconds".
func TestMillisRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond - 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		50 * time.Millisecond: 50, 10*time.Second + 1: 10001, 240 * time.Hour: 864_000_000,
	} {
		if got := Millis(d); got != want {
			t.Errorf("Millis(%d ns): got %d, want %d", d, got, want)
		}
	}
}
