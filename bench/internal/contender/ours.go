package contender

import (
	"context"
	"errors"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
)

// ours is this library with its defaults: leases are renewed and fenced.
type ours struct{ *redlock.Locker }

func dialOurs(masters []string) (Locker, error) { return newOurs(masters) }

// dialUnguarded dials without the restart guard, to see the cost of the guard.
func dialUnguarded(masters []string) (Locker, error) {
	return newOurs(masters, redlock.WithoutRestartGuard())
}

func newOurs(masters []string, opts ...redlock.Option) (Locker, error) {
	l, err := redlock.New(masters, append(opts, redlock.WithTTL(TTL))...)
	if err != nil {
		return nil, err
	}
	return ours{l}, nil
}

func (o ours) Lock(ctx context.Context, key string) (Lease, error) {
	lease, err := o.Locker.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// bootstrap makes new masters vote, which otherwise have no vote for a while.
func bootstrap(ctx context.Context, masters []string) error {
	l, err := redlock.New(masters)
	if err != nil {
		return err
	}
	return errors.Join(admin.Bootstrap(ctx, l), l.Close())
}
