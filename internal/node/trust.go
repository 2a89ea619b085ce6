package node

import (
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// trust is whether a node has a vote for this client. It is a part of a [Standing], and so is changed in a copy
// alone. It knows no network, goroutine or mutex: its methods take what has happened.
//
// A node lacks a vote for six reasons: its clock or its data are in doubt (phase), it is in quarantine (votesAt),
// this client could not tell it of a quarantine (distrustTo), it refuses the list of masters (refused), other clients have
// another server at its address (contested), or its clock is too far from the others' (skewed).
//
// Source: ALGORITHM sections 8 and 9.
type trust struct {
	phase   phase
	doubt   error         // why the phase is not sound
	judgeBy clock.Instant // of suspect: when the clock watch decides at the latest

	votesAt    clock.Instant // no vote before this, as the node says
	distrustTo clock.Instant // no vote before this for this client, because the node could not be told
	refused    error         // no vote for this client, because the node refused its list of masters
	skewed     error         // no vote for grants: the clock is too far from the others

	contested   error         // no vote for this client, because other clients use another server
	contestedTo clock.Instant // until when that counts
}

// phase is how far a doubt about the node's clock or data has come.
type phase uint8

const (
	sound    phase = iota // there is no doubt
	suspect               // a clock stepped, and it is not clear yet whose
	unmarked              // the node has to be told that it has no vote
	marking               // the request that tells it is under way
)

// happening moves the phase: see transitions.
type happening uint8

const (
	stepped    happening = iota // the node's clock did not move like the local clock
	proven                      // the node's clock stepped, or the node has lost a key
	dispelled                   // the node's clock did not step
	undecided                   // the node's clock may have stepped
	told                        // the request that tells the node is written
	cutOff                      // the connection was given up
	marked                      // the node has noted that it has no vote
	unmarkable                  // the node cannot be told
	replaced                    // the connection leads to another server
)

// transitions is the phase that follows each phase.
var transitions = [...][4]phase{
	//          sound      suspect   unmarked  marking
	stepped:    {suspect, suspect, unmarked, marking},
	proven:     {unmarked, unmarked, unmarked, marking},
	dispelled:  {sound, sound, unmarked, marking},
	undecided:  {sound, sound, unmarked, marking},
	told:       {sound, suspect, marking, marking},
	cutOff:     {sound, suspect, unmarked, unmarked},
	marked:     {sound, suspect, sound, sound},
	unmarkable: {sound, suspect, sound, sound},
	replaced:   {sound, sound, unmarked, marking},
}

// enter moves the phase.
func (t *trust) enter(h happening) {
	t.phase = transitions[h][t.phase]
	if t.phase == sound {
		t.doubt = nil
	}
}

// suspectUntil takes a step of the node's clock, or of the local one. by is when it is decided at the latest whose.
func (t *trust) suspectUntil(by clock.Instant) {
	if t.phase == sound {
		t.doubt, t.judgeBy = ErrStepped, by
	}
	t.enter(stepped)
}

// lose takes a proof that the node has lost a key, or that its clock stepped.
func (t *trust) lose(why error) {
	t.doubt = why
	t.enter(proven)
}

// acquit takes the verdict that the node's clock did not step.
func (t *trust) acquit() {
	t.distrustTo = clock.Start
	t.enter(dispelled)
}

// distrust takes what happened instead of a mark. The node has no vote until then.
func (t *trust) distrust(h happening, until clock.Instant) {
	t.distrustTo = until
	t.enter(h)
}

// judgeAt returns when the clock watch has to decide about the node; never while nothing is open.
func (t *trust) judgeAt() clock.Instant {
	if t.phase == suspect {
		return t.judgeBy
	}
	return clock.Never
}

// VotesIn returns how long the node has no vote, as far as is known, or 0 if it has one.
func (t *trust) VotesIn(now clock.Instant) time.Duration {
	return max(t.votesAt.Sub(now), t.distrustTo.Sub(now), 0)
}

// SaidIn returns how long the node has no vote, as it said itself.
func (t *trust) SaidIn(now clock.Instant) time.Duration { return max(t.votesAt.Sub(now), 0) }

// Skewed reports whether the node's clock is too far from the others for a grant.
func (t *trust) Skewed() bool { return t.skewed != nil }

// Unclear reports whether something about the node's clock or data is being cleared up.
func (t *trust) Unclear() bool { return t.phase != sound }

// Void returns why this client does not count the node's yes, or nil if it does. A clock that is
// too far from the others matters for grants alone. A node in quarantine says itself that its yes does not count.
//
// Source: ALGORITHM section 9.
func (t *trust) Void(now clock.Instant, grants bool) error {
	switch {
	case now < t.distrustTo:
		return Quarantine(t.distrustTo.Sub(now))
	case t.phase != sound:
		return t.doubt
	case t.refused != nil:
		return t.refused
	case t.contested != nil && now < t.contestedTo:
		return t.contested
	case grants:
		return t.skewed
	}
	return nil
}
