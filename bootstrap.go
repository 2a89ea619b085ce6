package redlock

import (
	"context"
	"errors"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Bootstrap gives the masters of a new deployment their votes at once. A master that is
// seen for the first time could be one that lost its data, and has no vote for a little
// longer than the value of [WithMaxTTL]; Bootstrap vouches for it. It is for whoever sets
// a deployment up, once, and never for the start of a service: at that time masters that
// restarted empty look the same, and vouching for them while somebody holds a lease makes
// two holders.
//
// All masters must answer, or nothing is done and the error is a [*QuorumError] that
// matches [ErrNoQuorum]. One that is lost between the question and the order to vote sits
// out its quarantine. If they are in use already nothing is left to do. If some are in
// use and others in quarantine nothing is done either: those others have been added, or
// have lost data, and waiting is the only safe way; the error then matches
// [ErrQuarantine]. With [WithoutRestartGuard] there is nothing to bootstrap: [ErrConfig].
//
// Source: ALGORITHM section 8, "First start of a deployment".
func (l *Locker) Bootstrap(ctx context.Context) error {
	switch {
	case ctx == nil:
		return configErrorf("Bootstrap: ctx is nil")
	case !l.conf.guard:
		return configErrorf("Bootstrap: WithoutRestartGuard leaves nothing to vouch for")
	}
	if !l.calls.enter() {
		return ErrClosed
	}
	defer l.calls.leave()
	l.pool.start()
	markers, waiting := l.onMarkers(ctx, wire.Look, make([]node.Marker, len(l.pool.nodes)))
	if waiting != nil && waiting.Granted == 0 && errors.Is(waiting, ErrQuarantine) {
		_, waiting = l.onMarkers(ctx, wire.Vouch, markers)
	}
	if waiting == nil {
		return nil
	}
	return waiting
}

// onMarkers does the same about the markers of all nodes, which were seen like that before.
// The error is nil if all have a vote then, and matches ErrQuarantine if all answered.
func (l *Locker) onMarkers(ctx context.Context, what string, seen []node.Marker) ([]node.Marker, *QuorumError) {
	n := len(l.pool.nodes)
	e := newQuorumError("bootstrap", "", n, n, ErrQuarantine)
	markers, errs := onEach(ctx, l.pool, func(ctx context.Context, n *node.Node) (node.Marker, error) {
		return n.OnMarker(ctx, what, seen[n.Index()])
	})
	for i, err := range errs {
		left := markers[i].Left
		switch {
		case err != nil:
			e.reasons = []error{ErrNoQuorum}
		case left == 0:
			e.Granted++
			continue
		default:
			err = node.Quarantine(left)
		}
		e.Nodes = append(e.Nodes, &NodeError{Node: l.pool.nodes[i].Addr(), Op: what, Err: err, Quarantine: left})
	}
	if e.Granted == n {
		return markers, nil
	}
	if ctx.Err() != nil {
		e.reasons = append(e.reasons, contextError(ctx))
	}
	return markers, e
}
