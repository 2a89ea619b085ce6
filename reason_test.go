package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	nodes "github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// Each error has one reason. The reason of a node is not taken for the reason of a round.
func TestReason(t *testing.T) {
	node := func(err error) []*MasterError { return []*MasterError{{Master: "a", Op: "acquire", Err: err}} }
	verdict := func(granted int, nodes []*MasterError, reasons ...error) error {
		return &QuorumError{Op: "lock", Resource: "r", Granted: granted, Need: 2, Masters: nodes, Of: 3, Reasons: reasons}
	}
	dial := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded} // matches context.DeadlineExceeded, too
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("x"), "other"},
		{verdict(0, node(errHeldByOther), ErrNotAcquired, ErrTaken), "taken"},
		{verdict(1, node(errHeldByOther), ErrNotAcquired, ErrTaken), "split_vote"},
		{verdict(1, node(dial), ErrNotAcquired, ErrNoQuorum), "no_quorum"},
		{verdict(1, node(reason.Permission), ErrNotAcquired, ErrNoQuorum), "no_quorum"},
		{verdict(0, append(node(reason.Permission), node(reason.Permission)...), ErrNotAcquired, ErrNoQuorum), "permission"},
		{verdict(1, node(nodes.Quarantine(time.Second)), ErrNotAcquired, ErrNoQuorum, ErrQuarantine), "quarantine"},
		{verdict(0, nil, ErrNotAcquired, context.Canceled), "canceled"},
		{verdict(0, nil, ErrNotAcquired, ErrTaken, context.DeadlineExceeded), "taken"},
		{verdict(0, nil, ErrNotAcquired, ErrTaken, ErrClosed), "closed"},
		{fmt.Errorf("redlock: lock %q: %w, %w in this process: %w", "r", ErrNotAcquired, ErrTaken, context.Canceled), "taken"},
		{endedBy(canceled(nil)), "canceled"},
		{endedBy(canceled(errors.New("because"))), "canceled"},
		{errLostExpired, "expired"},
		{errLostStill, "suspended"},
		{errLostQuorum, "quorum_lost"},
		{errLostMaxHold, "max_hold"},
		{errClosedHeld, "closed"},
		{notHeld("unlock", "r", ErrReleased), "released"},
		{notHeld("extend", "r", errLostExpired), "expired"},
		{notHeld("unlock", "r", verdict(0, nil, errGone)), "key_missing"},
		{notHeld("extend", "r", ErrDetached), "detached"},
		{&QuorumError{Op: "adopt", Resource: "r", Need: 2, Of: 3, Reasons: []error{ErrNotHeld}}, "not_held"},
		{&QuorumError{Op: "adopt", Resource: "r", Need: 2, Of: 3, Reasons: []error{ErrNotHeld, errors.New("another holder had the resource in between")}}, "not_held"},
		{notHeld("adopt", "r", errLostQuorum), "quorum_lost"},
		{fmt.Errorf("%w yet", ownReason("not_leader")), "not_leader"},
		{fmt.Errorf("%w: %w", ownReason("not_leader"), verdict(0, nil, ErrNotAcquired, ErrTaken)), "taken"},
		{fmt.Errorf("%w: %w", ownReason("not_leader"), errLostExpired), "expired"},
		{fmt.Errorf("%w: %w", ErrLost, ownReason("not_leader")), "not_leader"},
		{fmt.Errorf("%w: %w", ownReason(""), ErrLost), "lost"},
		{ownReason(""), "other"},
		{fmt.Errorf("%w: %w", ErrNotAcquired, io.ErrNoProgress), "not_acquired"},
		{configErrorf("x"), "config"},
		{fmt.Errorf("%w: %w", ErrNotAcquired, reason.SameServer), "same_server"},
		{node(dial)[0], "timeout"},
		{node(fmt.Errorf("%w of 1s", errNodeTimeout))[0], "timeout"},
		{node(errHeldByOther)[0], "taken"},
		{node(nodes.Quarantine(time.Second))[0], "quarantine"},
		{node(&net.OpError{Op: "dial", Err: errors.New("connection refused")})[0], "connection"},
		{node(fmt.Errorf("read: %w", io.EOF))[0], "connection"},
		{node(errors.New("ERR unknown"))[0], "other"},
	} {
		if got := Reason(test.err); got != test.want {
			t.Errorf("%v: got %q, want %q", test.err, got, test.want)
		}
	}
	words := make(map[string]error)
	for _, s := range slices.Concat(sentinels, finer) {
		word := Reason(s)
		if other := words[word]; word == "other" || other != nil {
			t.Errorf("%v: got %q, want a word of its own; it is that of %v", s, word, other)
		}
		words[word] = s
	}
}

// ownReason is an error of another package.
type ownReason string

func (ownReason) Error() string    { return "error with a reason of its own" }
func (r ownReason) Reason() string { return string(r) }

func canceled(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}
