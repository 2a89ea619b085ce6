// Package bench compares this library with redsync, the lock library for Go that
// most people use, and with the least that a quorum lock can cost. It also shows
// that the two libraries keep each other out. See README.md.
//
// It is a module of its own, so that nobody who imports the library gets redsync
// with it.
package bench

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
)

// locker is one contender. Its methods but Close are safe for concurrent use.
type locker interface {
	// Cycle locks key and unlocks it again, and tells how long each took. A lock
	// that failed has no unlock, which is 0 then.
	Cycle(ctx context.Context, key string) (lock, unlock time.Duration, err error)

	// Close drops the connections.
	Close() error
}

// contender is a name for results and how to make what it stands for.
type contender struct {
	name string
	dial func(masters []string) (locker, error)
}

// contenders are all that are compared, this library first.
func contenders() []contender {
	return []contender{
		{"ours", dialOurs},
		{"ours-unguarded", dialUnguarded},
		{"redsync", func(masters []string) (locker, error) { return dialRedsync(masters), nil }},
		{"redsync-failfast", func(masters []string) (locker, error) {
			return dialRedsync(masters, redsync.WithFailFast(true)), nil
		}},
		{"floor", func(masters []string) (locker, error) { return dialFloor(masters) }},
	}
}

// ours is this library with its defaults: leases are renewed and fenced.
type ours struct{ *redlock.Locker }

func dialOurs(masters []string) (locker, error) {
	l, err := redlock.New(masters)
	if err != nil {
		return nil, err
	}
	return ours{l}, l.Bootstrap(context.Background())
}

// dialUnguarded is the same without the restart guard, to see what that costs.
func dialUnguarded(masters []string) (locker, error) {
	l, err := redlock.New(masters, redlock.WithoutRestartGuard())
	if err != nil {
		return nil, err
	}
	return ours{l}, nil
}

func (o ours) Cycle(ctx context.Context, key string) (lock, unlock time.Duration, err error) {
	start := time.Now()
	lease, err := o.Lock(ctx, key)
	lock = time.Since(start)
	if err != nil {
		return lock, 0, err
	}
	start = time.Now()
	err = lease.Unlock(ctx)
	return lock, time.Since(start), err
}

// redsyncLocker is redsync as its README sets it up: a pool of connections to each
// master, by a go-redis client with default options, and a mutex made per use.
type redsyncLocker struct {
	sync    *redsync.Redsync
	options []redsync.Option
	clients []*redis.Client
}

func dialRedsync(masters []string, options ...redsync.Option) *redsyncLocker {
	r := &redsyncLocker{options: options}
	var pools []redsyncredis.Pool
	for _, addr := range masters {
		c := redis.NewClient(&redis.Options{Addr: addr})
		r.clients = append(r.clients, c)
		pools = append(pools, goredis.NewPool(c))
	}
	r.sync = redsync.New(pools...)
	return r
}

// errNotUnlocked stands in where redsync reports a failure without an error.
var errNotUnlocked = errors.New("bench: no quorum confirmed the unlock")

func (r *redsyncLocker) Cycle(ctx context.Context, key string) (lock, unlock time.Duration, err error) {
	start := time.Now()
	m := r.sync.NewMutex(key, r.options...)
	err = m.LockContext(ctx)
	lock = time.Since(start)
	if err != nil {
		return lock, 0, err
	}
	start = time.Now()
	err = redsyncUnlock(ctx, m)
	return lock, time.Since(start), err
}

func redsyncUnlock(ctx context.Context, m *redsync.Mutex) error {
	ok, err := m.UnlockContext(ctx)
	if !ok && err == nil {
		err = errNotUnlocked
	}
	return err
}

func (r *redsyncLocker) Close() error {
	var errs []error
	for _, c := range r.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
