// Package admin is for the operators of masters and locks: it checks the masters, vouches for new
// ones, shows which process holds a resource and how many wait, and takes a resource away from a
// holder that does not let go.
//
// Nothing here is a lock. The result of each call can be out of date by the time it returns: use it
// for people and for monitoring, never in place of a lease.
//
// The functions take a [redlock.Locker]. A call on a Locker that is closed returns
// [redlock.ErrClosed]. A nil ctx gives [redlock.ErrConfig].
package admin

import (
	"context"
	"fmt"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// room is what package redlock lets this package see of a Locker, during one call.
type room struct{ door.Room }

// enter begins a call. The caller calls Leave at its end. If the call is about a resource, its name
// is checked.
func enter(ctx context.Context, l *redlock.Locker, name string, resource ...string) (room, error) {
	if ctx == nil {
		return room{}, configError(name, "ctx is nil")
	}
	if !door.Made(l) {
		return room{}, configError(name, "the Locker is nil, or was not made by New")
	}
	for _, r := range resource {
		if err := inside.Of(l).CheckResource(name, r); err != nil {
			return room{}, err
		}
	}
	of, err := door.Enter(l)
	return room{of}, err
}

func configError(name, text string) error {
	return fmt.Errorf("%w: %s: %s", redlock.ErrConfig, name, text)
}

// each calls ask for all nodes at the same time.
func each[T any](ctx context.Context, r room, ask func(context.Context, *node.Node) (T, error)) ([]T, []error) {
	return node.Each(ctx, r.Opened, r.Nodes, ask)
}

// quorumError returns the error of a round in which need nodes had to say yes.
func (r room) quorumError(op, resource string, need int, reasons ...error) *redlock.QuorumError {
	return &redlock.QuorumError{Op: op, Resource: resource, Need: need, Total: len(r.Nodes.Nodes()), Reasons: reasons}
}

// withContext adds the error of a context that has ended to the reasons of an error.
func withContext(ctx context.Context, e *redlock.QuorumError) *redlock.QuorumError {
	if ctx.Err() != nil {
		e.Reasons = append(e.Reasons, reason.OfContext(ctx))
	}
	return e
}
