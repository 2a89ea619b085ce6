package contender

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Redsync is redsync as its README sets it up: a pool of connections to each master, by a
// go-redis client with default options, and a new mutex for each use.
type Redsync struct {
	sync    *redsync.Redsync
	options []redsync.Option
	clients []*redis.Client
}

func dialRedsync(_ context.Context, masters []string) (Locker, error) {
	return NewRedsync(masters, redis.Options{}), nil
}

func dialFailFast(_ context.Context, masters []string) (Locker, error) {
	return NewRedsync(masters, redis.Options{}, redsync.WithFailFast(true)), nil
}

// NewRedsync returns a Redsync. Its clients have the options conns, each with the address of
// one master.
func NewRedsync(masters []string, conns redis.Options, options ...redsync.Option) *Redsync {
	r := &Redsync{options: append([]redsync.Option{redsync.WithExpiry(TTL)}, options...)}
	var pools []redsyncredis.Pool
	for _, addr := range masters {
		opt := conns
		opt.Addr = addr
		c := redis.NewClient(&opt)
		r.clients = append(r.clients, c)
		pools = append(pools, goredis.NewPool(c))
	}
	r.sync = redsync.New(pools...)
	return r
}

// Mutex is a mutex for one use.
func (r *Redsync) Mutex(key string) RedsyncLease {
	return RedsyncLease{r.sync.NewMutex(key, r.options...)}
}

// Lock implements [Locker].
func (r *Redsync) Lock(ctx context.Context, key string) (Lease, error) {
	l := r.Mutex(key)
	return l, l.LockContext(ctx)
}

// Close implements [Locker].
func (r *Redsync) Close() error {
	var errs []error
	for _, c := range r.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// RedsyncLease returns errors where redsync returns false.
type RedsyncLease struct{ *redsync.Mutex }

var errNotUnlocked = errors.New("redsync: no quorum confirmed the unlock")

// Extend implements [Lease].
func (l RedsyncLease) Extend(ctx context.Context) error {
	ok, err := l.ExtendContext(ctx)
	if !ok && err == nil {
		err = redsync.ErrExtendFailed
	}
	return err
}

// Unlock implements [Lease].
func (l RedsyncLease) Unlock(ctx context.Context) error {
	ok, err := l.UnlockContext(ctx)
	if !ok && err == nil {
		err = errNotUnlocked
	}
	return err
}
