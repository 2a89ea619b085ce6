package contender

import (
	"context"
	"errors"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
)

// ours is this library with its defaults: leases are renewed and fenced.
type ours struct{ *redlock.Locker }

// dialOurs also makes new masters vote, which otherwise have no vote for a while.
func dialOurs(ctx context.Context, masters []string) (Locker, error) {
	l, err := redlock.New(masters, redlock.WithTTL(TTL))
	if err != nil {
		return nil, err
	}
	if err := admin.Bootstrap(ctx, l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return Ours(l), nil
}

// Ours is a Locker of this library, as a contender.
func Ours(l *redlock.Locker) Locker { return ours{l} }

func (o ours) Lock(ctx context.Context, key string) (Lease, error) {
	lease, err := o.Locker.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease, nil
}
