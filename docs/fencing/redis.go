package fencing

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// register sets a value unless a larger fencing token has been seen. KEYS[1] is a hash;
// ARGV is the value and the token. It replies 1 if the value was set, else 0.
var register = redis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[2]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[1], 'fence', ARGV[2])
return 1`)

// Set writes to the Redis that is protected, which is none of the masters of the lock.
func Set(ctx context.Context, rdb *redis.Client, key, value string, fence int64) error {
	set, err := register.Run(ctx, rdb, []string{key}, value, fence).Bool()
	if err == nil && !set {
		err = ErrFenced
	}
	return err
}
