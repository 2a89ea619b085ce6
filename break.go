package redlock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/break.lua
	breakLua string

	breakScript = redis.NewScript(breakLua)
)

// Break takes a lock away from whoever has it, without a time in which there are two
// holders: on each node the key that was just seen is replaced by nobody's, which lives
// for as long as that one would have. So the holder cannot renew its lease any more, and
// loses it ([ErrQuorumLost]) at its next renewal or Extend, or when its validity ends;
// until then nobody else gets the resource. Break is for people, where a holder
// lives and does not let go. Of one that has died the keys end by themselves.
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
// Break can be called again. Bad arguments give [ErrConfig], a closed Locker [ErrClosed].
//
// Source: ALGORITHM section 5.
func (l *Locker) Break(ctx context.Context, resource string) (Inspection, error) {
	in := Inspection{Resource: resource, Quorum: quorum(len(l.pool.lanes))}
	if err := checkCall(ctx, "Break", resource); err != nil {
		return in, err
	}
	if !l.calls.enter() {
		return in, ErrClosed
	}
	defer l.calls.leave()
	nobody, err := uuid.NewRandom()
	if err != nil {
		return in, fmt.Errorf("redlock: break %q: no random token: %w", resource, err)
	}
	l.pool.start()
	in = l.pool.inspect(ctx, resource)
	nodes := slices.Clone(in.Nodes) // an errand can outlive the call
	left, errs := onEach(ctx, l.pool, func(ctx context.Context, lane *lane) (time.Duration, error) {
		seen := &nodes[lane.index]
		if seen.Err != nil || seen.Token == "" {
			return 0, seen.Err
		}
		return lane.breakKey(ctx, l.conf.keyPrefix+resource, seen.value, nobody.String()+"|0")
	})
	broken := 0
	for i := range in.Nodes {
		if n := &in.Nodes[i]; errs[i] == nil && n.Token != "" {
			n.Broken, n.TTL = true, left[i]
			broken++
		}
	}
	if broken >= in.Quorum || in.Verdict != VerdictHeld && in.Verdict != VerdictUnknown {
		return in, nil
	}
	failed := &QuorumError{Op: "break", Resource: resource, Granted: broken, Need: in.Quorum, of: len(errs), reasons: []error{ErrNoQuorum}}
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

// breakKey replaces the key on one node if it has the value that was seen, and says how
// long it still lives.
func (n *lane) breakKey(ctx context.Context, key, seen, nobody string) (time.Duration, error) {
	values, err := breakScript.Run(ctx, n.conn, []string{key}, seen, nobody, millis(n.conf.maxTTL)).Int64Slice()
	switch {
	case err != nil:
		return 0, nodeFailure(err)
	case len(values) != 2:
		return 0, errBadReply
	case values[0] == 0:
		return 0, errChanged
	}
	return time.Duration(values[1]) * time.Millisecond, nil
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
