package redlock

import (
	"context"
	"errors"
)

// This file is about what is asked of nodes that has to do with no lock: it is done by the
// lanes' goroutines, between two batches, on the lanes' connections.

// errand is something to be done on a lane's connection.
type errand struct {
	do    func(context.Context, *lane) error
	done  chan error // takes one
	again bool       // once, on a new connection
}

// onEach has do done once for each node, and returns what came of it when all are through
// or ctx or the Locker ended.
func onEach[T any](ctx context.Context, p *pool, do func(context.Context, *lane) (T, error)) ([]T, []error) {
	lanes := p.lanes
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
		case <-p.closing:
			errs[i] = ErrClosed
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
// use. What it broke at is done once more on the next one: a node may close a connection
// that was idle.
func (n *lane) runErrands() error {
	list := n.takeErrands()
	for i, e := range list {
		ctx, cancel := context.WithTimeout(n.quit, n.opt.DialTimeout)
		err := e.do(ctx, n)
		cancel()
		if survives(err) {
			e.done <- err
			continue
		}
		if e.again || !isBroken(err) {
			if isTimeout(err) {
				err = errNodeTimeout
			}
			e.done <- err
			i++
		} else {
			e.again = true
		}
		n.mu.Lock()
		n.errands = append(list[i:len(list):len(list)], n.errands...)
		n.mu.Unlock()
		return err
	}
	return nil
}

// isBroken tells a connection that ended, which says little about the node, from a node
// that does not answer or is not what it should be.
func isBroken(err error) bool {
	return !isTimeout(err) && !errors.Is(err, ErrNotMaster) && !errors.Is(err, ErrSameServer)
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
