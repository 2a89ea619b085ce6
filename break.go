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

// Break takes a lock away from its holder. There is no time in which two holders have the
// resource: on each master Break replaces the key that it has just seen by a placeholder, which
// has no holder and lives as long as the key would have. So the holder cannot renew its lease
// any more, and loses it with [ErrBroken]. A holder of this Locker loses it at once. A holder
// that has renewed its lease before hears of the Break by a message. Any other holder learns of
// it at its next renewal or Extend, or loses the lease when its validity ends. Until the lease
// is lost, no other holder gets the resource.
//
// A holder that has learned of the Break removes the placeholders when it unlocks the lease. If
// it does not unlock, the library removes them after the time of [WithGrace] and another 200 ms,
// or a fifth of the TTL if that is less. So the next holder has the resource within half a
// second of the end of the lease, and the round trips. If the holder has died, is cut off, has a
// lease without renewal and does not call Extend, or has adopted the lease (see [Locker.Adopt]),
// the resource is free when the placeholders expire.
//
// Break is for people, against a holder that lives and does not let go. The keys of a holder
// that has died expire by themselves.
//
// A key that never expires is not of this library; its placeholder lives for the value of
// [WithMaxTTL]. A key that is no string is left alone, and the error of that master matches
// [ErrWrongType]. A master without a key is not changed. Callers that wait for the resource go
// on waiting.
//
// The result is what the masters had before, except for the TTL of those that are Broken: that
// is the time for which they keep their placeholders. [Inspection.FreeIn] returns when the
// resource is free at the latest.
//
// If there was or may have been a holder, and fewer than a quorum of the masters are broken,
// that holder may go on. The error is then a [*QuorumError] with the answers of the other
// masters, and matches [ErrNoQuorum]. The placeholders stay, and Break can be called again: it
// counts the masters that have placeholders already. If an argument is wrong, the error matches
// [ErrConfig]. If the Locker is closed, it is [ErrClosed].
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

// tellBroken tells the holders of the resource that it was broken: a holder of this Locker at
// once, the others by a message to all subscribers of each node. A holder that misses the
// message learns of the Break at its next renewal.
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

// placeholder returns the value that replaces a key. It has the id of the attempt that set the
// key, by which the former holder can remove it. If no Locker has set the key, the placeholder
// has a new id, and no process removes it.
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

var errChanged = errors.New("the key has changed since it was read")

// FreeIn returns the longest TTL of the keys: after that time no master that answered has a key
// any more, if none is set or renewed. It is negative if some key never expires.
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
