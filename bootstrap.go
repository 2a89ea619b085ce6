package redlock

import (
	"context"
	"errors"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Bootstrap gives the masters of a new deployment their votes at once. A master that is seen
// for the first time may have lost its data, so it has no vote for a little longer than the
// value of [WithMaxTTL]. Bootstrap ends that wait. Call it once, in the tool that sets the
// deployment up, and never at the start of a service. At that time a master that restarted
// empty looks like a new one. If it gets its vote while a lease is held, a second holder can be
// granted the resource.
//
// If a master does not answer, nothing is done, and the error is a [*QuorumError] that matches
// [ErrNoQuorum]. A master that is lost between the two rounds of Bootstrap waits out its
// quarantine. If all masters are in use already, Bootstrap does nothing and returns nil. If some
// are in use and others in quarantine, these others were added or have lost data, and only
// waiting is safe: Bootstrap does nothing, and the error matches [ErrQuarantine]. With
// [WithoutRestartGuard] the error matches [ErrConfig].
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

// onMarkers does the same operation on the markers of all nodes, and returns the new markers.
// seen has the markers as an earlier call returned them. The error is nil if all nodes have a
// vote. If all have answered, it matches ErrQuarantine.
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
