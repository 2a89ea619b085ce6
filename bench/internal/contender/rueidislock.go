package contender

import (
	"context"
	"errors"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidisLocker is rueidislock as its README sets it up for one server. A list of
// addresses is one deployment to it, so that it cannot be given independent masters.
type rueidisLocker struct{ locker rueidislock.Locker }

func dialRueidislock(servers []string) (Locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: servers},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    TTL,
	})
	if err != nil {
		return nil, err
	}
	return rueidisLocker{l}, nil
}

func (r rueidisLocker) Lock(ctx context.Context, key string) (Lease, error) {
	_, cancel, err := r.locker.WithContext(ctx, key)
	return rueidisLease(cancel), err
}

func (r rueidisLocker) Close() error {
	r.locker.Close()
	return nil
}

// rueidisLease is what ends it. That returns when the key is gone and knows no error.
type rueidisLease context.CancelFunc

func (rueidisLease) Extend(context.Context) error { return errors.ErrUnsupported }

func (l rueidisLease) Unlock(context.Context) error {
	l()
	return nil
}
