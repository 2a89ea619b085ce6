package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Break takes a lock away from whoever has it, without a time in which there are two
// holders: on each node the key that was just seen is replaced by a placeholder, which is nobody's
// and lives for as long as that one would have. So the holder cannot renew its lease any more, and
// loses it with [ErrBroken]: at once if it is of this Locker, or as soon as it hears of it,
// which holders do that have renewed a lease before; else at its next renewal or Extend, or when its
// validity ends. Until then nobody else gets the resource.
//
// A holder that has learned of it gives the resource back, placeholders and all, when its lease
// is unlocked, and otherwise by itself after what [WithGrace] sets and 200 ms more, or a fifth of
// the TTL if that is less: so the next one has the resource within half a second of
// a holder's end, and the round trips. Where nobody gives it back it is free when the
// placeholders expire: a holder that has died, or is cut off, that has a lease without renewal and
// does not look, or one that was adopted (see [Locker.Adopt]).
//
// Break is for people, where a holder lives and does not let go. Of one that has died the keys
// end by themselves.
//
// A key that never expires is no lease of this library's; it is given the value of
// [WithMaxTTL]. One that is no string is left alone: [ErrWrongType] in the node's error. Where
// nobody has a key nothing is done. Who waits for the resource goes on waiting.
//
// The result is what was on the nodes before, but for the TTL of those that are Broken,
// which is how long they will have a key from now on; [Inspection.FreeIn] tells when the
// resource is free at the latest. If somebody held it, or may have, and fewer than a quorum of the
// nodes could be broken, that holder may go on: the error is then a [*QuorumError] with
// what the other nodes said, and matches [ErrNoQuorum]. What was broken stays so, and
// Break can be called again: what is broken already counts. Bad arguments give [ErrConfig], a
// closed Locker [ErrClosed].
//
// Source: ALGORITHM section 5.
func (l *Locker) Break(ctx context.Context, resource string) (Inspection, error) {
	in := Inspection{Resource: resource, Quorum: l.pool.need}
	if err := l.conf.checkCall(ctx, "Break", resource); err != nil {
		return in, err
	}
	if !l.calls.enter() {
		return in, ErrClosed
	}
	defer l.calls.leave()
	l.pool.start()
	in = l.pool.inspect(ctx, resource)
	nodes := slices.Clone(in.Nodes) // a node task can outlive the call
	left, errs := onEach(ctx, l.pool, func(ctx context.Context, n *node.Node) (time.Duration, error) {
		seen := &nodes[n.Index()]
		if seen.Err != nil || seen.Token == "" {
			return 0, seen.Err
		}
		nobodys, err := placeholder(seen)
		if err != nil {
			return 0, err
		}
		life, done, err := n.Break(ctx, l.conf.keyPrefix+resource, seen.value, nobodys)
		if err == nil && !done {
			err = errChanged
		}
		return life, err
	})
	broken := 0
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.Broken = errs[i] == nil && n.Token != ""; n.Broken {
			n.TTL = left[i]
			broken++
		}
	}
	if broken > 0 {
		l.tellBroken(ctx, &in)
	}
	if broken >= in.Quorum || in.Verdict != VerdictHeld && in.Verdict != VerdictUnknown {
		return in, nil
	}
	failed := l.pool.quorumError("break", resource, broken, ErrNoQuorum)
	for i, n := range in.Nodes {
		err := errs[i]
		if err == nil && !n.Broken {
			err = errGone
		}
		if err != nil {
			failed.Nodes = append(failed.Nodes, &NodeError{Node: n.Node, Op: "break", Err: err})
		}
	}
	if ctx.Err() != nil {
		failed.reasons = append(failed.reasons, contextError(ctx))
	}
	return in, failed
}

// tellBroken has those who may hold the resource look: in this Locker at once, elsewhere by a
// message to all who listen at a node. Who does not hear of it learns at its next renewal.
func (l *Locker) tellBroken(ctx context.Context, in *Inspection) {
	for _, g := range l.pool.renewer.all() {
		if g.resource == in.Resource {
			g.brokenOn(in.Nodes)
		}
	}
	_, _ = onEach(ctx, l.pool, func(ctx context.Context, n *node.Node) (struct{}, error) {
		return struct{}{}, n.TellBroken(ctx, l.conf.keyPrefix+in.Resource)
	})
}

// placeholder is what takes the place of a key. It has the id of the attempt that set the key:
// with that its holder, once it believes in its lease no more, can give the resource back. A
// key that no Locker has set has no such holder.
//
// Source: ALGORITHM section 5.
func placeholder(seen *NodeLock) (string, error) {
	switch {
	case seen.Broken:
		return seen.value, nil
	case isID(seen.Token):
		return wire.Placeholder(seen.Token), nil
	}
	id, err := algorithm().newID()
	if err != nil {
		return "", fmt.Errorf("no random token: %w", err)
	}
	return wire.Placeholder(id.String()), nil
}

var errChanged = errors.New("it has changed hands since it was looked at")

// FreeIn is how long it takes at most until no node that answered has a key any more, if
// none is set or renewed: the longest TTL. It is negative if some key never expires.
func (in *Inspection) FreeIn() time.Duration {
	var longest time.Duration
	for _, n := range in.Nodes {
		if n.Token != "" && n.TTL < 0 {
			return n.TTL
		}
		longest = max(longest, n.TTL)
	}
	return longest
}
