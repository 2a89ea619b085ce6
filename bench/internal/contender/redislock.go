package contender

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockPause is the pause between attempts in redislock's own example. By default
// redislock makes one attempt.
const redislockPause = 100 * time.Millisecond

// redislockLocker is bsm/redislock over a go-redis client with default options.
type redislockLocker struct {
	conns  *redis.Client
	client *redislock.Client
}

func dialRedislock(_ context.Context, servers []string) (Locker, error) {
	conns := redis.NewClient(&redis.Options{Addr: servers[0]})
	return redislockLocker{conns, redislock.New(conns)}, nil
}

func (r redislockLocker) Lock(ctx context.Context, key string) (Lease, error) {
	lock, err := r.client.Obtain(ctx, key, TTL, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(redislockPause),
	})
	return redislockLease{lock}, err
}

func (r redislockLocker) Close() error { return r.conns.Close() }

type redislockLease struct{ *redislock.Lock }

func (l redislockLease) Extend(ctx context.Context) error { return l.Refresh(ctx, TTL, nil) }
func (l redislockLease) Unlock(ctx context.Context) error { return l.Release(ctx) }
