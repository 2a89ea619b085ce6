package fencing

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// register sets a value, unless the key has seen a larger fencing token. KEYS[1] is a hash;
// ARGV is the value and the token. The reply is 1 if the value was set, otherwise 0.
var register = redis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[2]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[1], 'fence', ARGV[2])
return 1`)

// Set writes to the protected Redis, which is not one of the masters of the lock.
func Set(ctx context.Context, rdb *redis.Client, key, value string, fence int64) error {
	set, err := register.Run(ctx, rdb, []string{key}, value, fence).Bool()
	if err == nil && !set {
		err = ErrFenced
	}
	return err
}

// view reads a value for a write that is computed from it, unless the key has seen a larger
// fencing token. KEYS[1] is a hash; ARGV is the token. The reply is the value, "" if there
// is none, or nil if the token is too small.
var view = redis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < seen then return false end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return redis.call('HGET', KEYS[1], 'value') or ''`)

// Get reads a value for a Set that is computed from it. It presents the token with the
// read. From then on the key refuses every older holder.
func Get(ctx context.Context, rdb *redis.Client, key string, fence int64) (value string, err error) {
	value, err = view.Run(ctx, rdb, []string{key}, fence).Text()
	if errors.Is(err, redis.Nil) {
		err = ErrFenced
	}
	return value, err
}
