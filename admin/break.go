package admin

import (
	"context"
	"errors"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Break takes a lock away from its holder. It is for people, against a holder that lives and does not let go:
// the keys of a holder that has died expire by themselves.
//
// On each master Break replaces the key that it has just seen by a placeholder, which has no holder and lives
// as long as the key would have. So the holder cannot renew its lease, and loses it with [redlock.ErrBroken]:
// at once if it is a holder of this Locker; by a message if it has renewed its lease before; otherwise at its
// next renewal or Extend, or when its validity ends. Until then no other holder gets the resource. Break takes
// a resource from all readers at once, also from those that came after Break looked at the masters.
//
// A holder that has learned of the Break removes the placeholders when it unlocks the lease. If it does not
// unlock, the library removes them after the time of [redlock.WithGrace] and another 200 ms, or a fifth of the
// TTL if that is less. If the holder does not learn of the Break, the resource is free when the placeholders
// expire. Callers that wait for the resource go on waiting.
//
// The placeholder of a key that never expires, which is not of this library, lives for the value of
// [redlock.WithMaxTTL]. A key that is no string is left alone, and the error of that master matches
// [redlock.ErrMasterSetup]. A master without a key is not changed.
//
// The result has the state before the Break, except for the TTL of the masters that are Broken, which is that
// of their placeholders. [Inspection.FreeIn] returns when the resource is free at the latest.
//
// If there was or may have been a holder, and fewer than a quorum of the masters are broken, that holder may go
// on. The error is then a [*redlock.QuorumError] with the answers of the other masters, and matches
// [redlock.ErrNoQuorum]. The placeholders stay, and Break can be called again: it counts the masters that have
// placeholders already. If an argument is wrong, the error matches [redlock.ErrConfig]. Source: ALGORITHM
// section 5.
func Break(ctx context.Context, l *redlock.Locker, resource string) (Inspection, error) {
	r, err := enter(ctx, l, "Break", resource)
	if err != nil {
		return Inspection{Resource: resource}, err
	}
	defer r.Leave()
	in, seen, _ := r.inspect(ctx, resource)
	left, errs := each(ctx, r, func(ctx context.Context, n *node.Node) (time.Duration, error) {
		h := seen[n.Index()]
		if h.Err != nil || !h.Taken() {
			return 0, h.Err
		}
		life, done, err := n.Break(ctx, r.Prefix+resource, h.Value, placeholder(&h))
		if err == nil && !done {
			err = errChanged
		}
		return life, err
	})
	failed := r.quorumError("break", resource, r.Quorum, redlock.ErrNoQuorum)
	taken := make([]string, len(seen))
	for i := range in.Masters {
		m := &in.Masters[i]
		if m.Broken = errs[i] == nil && seen[i].Taken(); m.Broken {
			m.TTL, taken[i] = left[i], m.Token
			if seen[i].Value == wire.Sign {
				taken[i] = wire.Readers
			}
			failed.Granted++
			continue
		}
		why := errs[i]
		if why == nil {
			why = node.ErrGone
		}
		failed.Masters = append(failed.Masters, &redlock.MasterError{Master: m.Master, Op: "break", Err: why})
	}
	if failed.Granted > 0 {
		r.TellBroken(resource, taken)
		_, _ = each(ctx, r, func(ctx context.Context, n *node.Node) (struct{}, error) { // a holder that misses the message learns of the Break at its next renewal
			return struct{}{}, n.TellBroken(ctx, r.Prefix+resource)
		})
	}
	held := in.Verdict == VerdictHeld || in.Verdict == VerdictShared || in.Verdict == VerdictUnknown
	if failed.Granted >= in.Quorum || !held {
		return in, nil
	}
	return in, withContext(ctx, failed)
}

// placeholder returns the value that replaces a key. It has the id of the attempt that set the
// key, by which the former holder can remove it. If no Locker has set the key, no process removes
// the placeholder.
//
// Source: ALGORITHM section 5.
func placeholder(h *node.Held) string {
	switch {
	case h.Broken:
		return h.Value
	case h.Value == wire.Sign:
		return wire.Placeholder(wire.Readers)
	case wire.IsToken(h.Token):
		return wire.Placeholder(h.Token)
	}
	return wire.Placeholder(wire.Unowned)
}

var errChanged = errors.New("the key has changed since it was read")
