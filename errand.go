package redlock

import (
	"context"
	"errors"
)

// This file is about what is asked of nodes that has to do with no lock: it is done by the
// lanes' goroutines, between two batches, on the lanes' connections.

// errand is something to be done on a lane's connection.
type errand struct {
	do   func(context.Context, *lane) error
	done chan error // takes one
}

// onEach has do done once for each node, and returns what came of it when all are through
// or ctx ended.
func onEach[T any](ctx context.Context, lanes []*lane, do func(context.Context, *lane) (T, error)) ([]T, []error) {
	results, errs := make([]T, len(lanes)), make([]error, len(lanes))
	found := make([]*T, len(lanes)) // each the errand's own until it is done
	errands := make([]*errand, len(lanes))
	for i, n := range lanes {
		result := new(T)
		found[i] = result
		errands[i] = &errand{done: make(chan error, 1), do: func(ctx context.Context, n *lane) (err error) {
			*result, err = do(ctx, n)
			return err
		}}
		n.ask(errands[i])
	}
	for i, e := range errands {
		select {
		case errs[i] = <-e.done:
			results[i] = *found[i]
		case <-ctx.Done():
			errs[i] = contextError(ctx)
		}
	}
	return results, errs
}

// ask queues an errand. A node that is known to be down answers with the reason.
func (n *lane) ask(e *errand) {
	n.mu.Lock()
	if n.down != nil {
		defer n.mu.Unlock()
		e.done <- n.down
		return
	}
	n.errands = append(n.errands, e)
	n.mu.Unlock()
	n.poke()
}

// takeErrands empties the queue of errands.
func (n *lane) takeErrands() []*errand {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.errands
	n.errands = nil
	return list
}

// runErrands does what was asked. Its error is that of a connection which is of no more
// use; what was left then has failed with it.
func (n *lane) runErrands() error {
	var broken error
	for _, e := range n.takeErrands() {
		err := broken
		if err == nil {
			ctx, cancel := context.WithTimeout(n.quit, n.opt.DialTimeout)
			err = e.do(ctx, n)
			cancel()
			if !survives(err) {
				broken = err
			}
		}
		e.done <- err
	}
	return broken
}

func (n *lane) failErrands(err error) {
	for _, e := range n.takeErrands() {
		e.done <- err
	}
}

// survives reports whether a connection that gave this error can be used further: the
// error was said by the node, which is what it was thought to be.
func survives(err error) bool {
	return err == nil || isReply(err) || errors.Is(err, ErrPermission)
}
