package contender

import (
	"context"
	"errors"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidisLocker is rueidislock as its README sets it up for one server. It takes a list of
// addresses for one deployment, so that it cannot use independent masters.
type rueidisLocker struct{ locker rueidislock.Locker }

// dialRueidislock returns a Dial for a lock of 2*majority-1 keys on the server.
func dialRueidislock(majority int32) func(context.Context, []string) (Locker, error) {
	return func(_ context.Context, servers []string) (Locker, error) {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: servers},
			KeyMajority:    majority,
			NoLoopTracking: true,
			KeyValidity:    TTL,
		})
		if err != nil {
			return nil, err
		}
		return rueidisLocker{l}, nil
	}
}

func (r rueidisLocker) Lock(ctx context.Context, key string) (Lease, error) {
	_, cancel, err := r.locker.WithContext(ctx, key)
	return rueidisLease(cancel), err
}

func (r rueidisLocker) Close() error {
	r.locker.Close()
	return nil
}

// rueidisLease ends the lease. It returns when the key is gone, and reports no error.
type rueidisLease context.CancelFunc

func (rueidisLease) Extend(context.Context) error { return errors.ErrUnsupported }

func (l rueidisLease) Unlock(context.Context) error {
	l()
	return nil
}
