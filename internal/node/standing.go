package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// Standing is whether a node is asked, and whether its yes counts, as this client knows it.
// It is replaced as a whole, under the node's mutex, and never changed.
type Standing struct {
	Down     error     // why the node is not asked; nil while it is
	Reached  bool      // it was, at some time
	Failure  error     // what Down was last
	FailedAt time.Time // when Down was last set from nil
	Hash     uint64    // of the server's run id, or of the address while that is not known

	votesAt    clock.Instant // no vote before this, as the node says
	distrustTo clock.Instant // no vote before this here: for a node that cannot be told
	void       error         // no vote until this is cleared up: a clock that stepped, a key that was lost
	refused    error         // no vote for this client: its list of masters is not taken
	skewed     error         // no vote for grants: the clock is too far from the others
}

// VotesIn is how long the node has no vote, as far as is known: 0 if it has one.
func (s *Standing) VotesIn(now clock.Instant) time.Duration {
	return max(s.votesAt.Sub(now), s.distrustTo.Sub(now), 0)
}

// SaidIn is how long the node has no vote, as it said itself.
func (s *Standing) SaidIn(now clock.Instant) time.Duration { return max(s.votesAt.Sub(now), 0) }

// Skewed reports whether the node's clock is too far from the others for a grant.
func (s *Standing) Skewed() bool { return s.skewed != nil }

// Unclear reports whether something about the node's clock or data is being cleared up.
func (s *Standing) Unclear() bool { return s.void != nil }

// Void is why the node's yes counts for nothing here, whatever the node thinks; nil if it
// counts. A clock that is off matters for grants alone.
//
// Source: ALGORITHM section 9.
func (s *Standing) Void(now clock.Instant, grants bool) error {
	switch {
	case now < s.distrustTo:
		return Quarantine(s.distrustTo.Sub(now))
	case s.void != nil:
		return s.void
	case s.refused != nil:
		return s.refused
	case grants:
		return s.skewed
	}
	return nil
}

// Standing is the node's, at this moment.
func (n *Node) Standing() *Standing { return n.standing.Load() }

// standLocked replaces the standing by one that differs from it.
func (n *Node) standLocked(change func(*Standing)) {
	next := *n.standing.Load()
	change(&next)
	n.standing.Store(&next)
}

// Quarantine is the outcome of a node that has no vote for so long.
type Quarantine time.Duration

func (q Quarantine) Error() string {
	return fmt.Sprintf("in quarantine for %.1fs more: it is new, or may have lost keys", time.Duration(q).Seconds())
}

// Ahead is the outcome of a node with a fencing counter that is so much further ahead of its
// clock than a grant can have brought it.
type Ahead time.Duration

func (a Ahead) Error() string {
	return fmt.Sprintf("no vote: the fencing counter is %v ahead of the node's clock", time.Duration(a).Round(time.Second))
}

// KeyError names the key that an outcome is about.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return fmt.Sprintf("%v (key %q)", e.Err, e.Key) }
func (e *KeyError) Unwrap() error { return e.Err }

// Marked is an error that also matches a sentinel, without its text.
type Marked struct{ Sentinel, Err error }

func (e *Marked) Error() string   { return e.Err.Error() }
func (e *Marked) Unwrap() []error { return []error{e.Err, e.Sentinel} }

// Outcomes of one node.
var (
	ErrHeldByOther = errors.New("held by another")
	ErrTakenAway   = errors.New("taken away by Break")
	ErrTimeout     = errors.New("no answer within the node timeout")
	ErrLate        = errors.New("request arrived after its time and was ignored")
	ErrNotCounted  = errors.New("key was missing and has been set again")
	ErrExpired     = errors.New("key has expired by now")
	ErrGone        = errors.New("key was not there any more")
	ErrUnraised    = errors.New("grant was gone before its fencing counter could be raised")
	ErrBadReply    = errors.New("reply is not in the form of the script")
	ErrSetVoteless = errors.New("key set, but without a vote")
	ErrForgot      = errors.New("has lost a key: no vote for a time")
	ErrStepped     = errors.New("clock was stepped: no vote for a time")
	ErrStale       = errors.New("server was replaced behind the connection")
	ErrQueued      = errors.New("another process has been called and is about to lock")
	ErrUnsent      = errors.New("not sent: the attempt was over")
	ErrUnseeded    = errors.New("no fencing token to go on from, and too few clocks are known to start one")
	ErrGuardOff    = errors.New("the restart guard is off")
)
