package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/inside"
)

// ErrNoLeader is matched by the error of [Elector.Leader] if no process leads. [redlock.Reason]
// returns "no_leader" for it.
var ErrNoLeader error = noLeader{}

type noLeader struct{}

func (noLeader) Error() string { return "election: no leader" }

// Reason implements what [redlock.Reason] asks of errors of other packages.
func (noLeader) Reason() string { return "no_leader" }

// observeEvery is how often Observe asks the masters.
const observeEvery = time.Second

// Leader is the process that leads.
type Leader struct {
	Owner string // the label of its lease: see redlock.WithOwner; "" for none
	Fence int64  // fencing token that came with the grant of the lease; 0 if it is not certain (yet)
	Self  bool   // it is this Elector

	token string // tells two terms apart
}

// Leader asks the masters which process leads. It works without [Elector.Run]. The result can be
// out of date by the time Leader returns: use it to show the leader or to find it, never in place
// of a lease.
//
// If no process leads, the error matches [ErrNoLeader]; a lease that is just being taken or given
// back has no leader. If too few masters answer, the error is a [*redlock.QuorumError] that matches
// [redlock.ErrNoQuorum]. If the Locker is closed, it is [redlock.ErrClosed]. A nil ctx gives
// [redlock.ErrConfig].
func (e *Elector) Leader(ctx context.Context) (Leader, error) {
	own := e.Lease()
	in, err := admin.Inspect(ctx, e.locker, e.resource)
	switch {
	case err != nil:
		return Leader{}, named("Leader", err)
	case in.Verdict != admin.VerdictHeld:
		return Leader{}, fmt.Errorf("%w of %q: the verdict of the masters is %v", ErrNoLeader, e.resource, in.Verdict)
	}
	return Leader{Owner: in.Owner, Fence: in.Fence, Self: own != nil && own.Token() == in.Token, token: in.Token}, nil
}

// Observe returns the present result of [Elector.Leader], and then each change: another term, no
// leader, or masters that no longer answer. It asks the masters each second, so it may leave out a
// term that begins and ends within a second. The sequence ends when ctx ends or the Locker is
// closed.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	e.made()
	return func(yield func(Leader, error) bool) {
		if ctx == nil {
			yield(Leader{}, configError("Observe: ctx is nil"))
			return
		}
		tick := time.NewTicker(observeEvery)
		defer tick.Stop()
		var last Leader
		var reason string
		for first := true; ; first = false {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil || errors.Is(err, redlock.ErrClosed) {
				return
			}
			if first || leader.token != last.token || leader.Self != last.Self || redlock.Reason(err) != reason {
				if !yield(leader, err) {
					return
				}
			}
			last, reason = leader, redlock.Reason(err)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			case <-inside.Of(e.locker).Done():
				return
			}
		}
	}
}
