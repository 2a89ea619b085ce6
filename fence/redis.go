package fence

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// present compares a token with that of the key, and reads or writes the value. KEYS[1] is a hash;
// ARGV is the resource, the token, "exclusive" or "shared", and the value of a write. The reply is
// the larger token if the key has seen one, otherwise 0, and after a read the value, if there is
// one. Tokens are compared as texts, since numbers of Lua are exact to 2^53 alone.
var present = redis.NewScript(`
local field, token = 'fence:' .. ARGV[1], ARGV[2]
local seen = redis.call('HGET', KEYS[1], field) or '0'
if #seen > #token or #seen == #token and seen > token then return {seen} end
if ARGV[4] then
	redis.call('HSET', KEYS[1], field, token, 'value', ARGV[4])
	return {'0'}
end
if ARGV[3] == 'exclusive' then redis.call('HSET', KEYS[1], field, token) end
return {'0', redis.call('HGET', KEYS[1], 'value') or nil}`)

// Set writes value to a hash at key, unless the key has seen a larger token of the resource. rdb is
// the store: a Redis of its own, not one of the masters of the lock, and never a replica. The hash
// has the value at the field value, and the largest token of each resource at the field fence: with
// the name. Do not let it expire.
//
// The error matches [ErrFenced] or [ErrConfig], also for the lease of a reader. Otherwise it is
// that of go-redis. After such an error the value may have been written. The same lease may try
// again. The check does not make a write more durable: a fail-over can lose it together with its
// token.
func Set(ctx context.Context, rdb redis.Scripter, key string, value any, lease Lease) error {
	t, err := tokenOf(lease)
	if err == nil && t.shared {
		err = fmt.Errorf("%w: a reader of %q cannot write", ErrConfig, t.resource)
	}
	if err == nil && isNone(value) { // of which go-redis makes an empty text
		err = isNil("value")
	}
	if err != nil {
		return in("Set", err)
	}
	_, err = run(ctx, "Set", rdb, key, t, value)
	return err
}

// Get reads the value at key, and presents the token as [Set] does: from then on the key refuses
// every older holder. So a value that is computed from it may be written by Set with the same lease.
// The token of a reader is compared, and not kept. If no value was set the error is redis.Nil, and
// the token was presented.
func Get(ctx context.Context, rdb redis.Scripter, key string, lease Lease) (string, error) {
	t, err := tokenOf(lease)
	if err != nil {
		return "", in("Get", err)
	}
	reply, err := run(ctx, "Get", rdb, key, t)
	switch {
	case err != nil:
		return "", err
	case len(reply) < 2:
		return "", redis.Nil
	}
	return reply[1], nil
}

// run runs the script and compares the token that it returns.
func run(ctx context.Context, name string, rdb redis.Scripter, key string, t Token, value ...any) ([]string, error) {
	switch {
	case ctx == nil:
		return nil, in(name, isNil("context"))
	case isNone(rdb):
		return nil, in(name, isNil("client of the store"))
	}
	if _, queues := rdb.(redis.Pipeliner); queues {
		return nil, in(name, errors.New("a pipeline of the store does not answer: give its client"))
	}
	reply, err := present.Run(ctx, rdb, []string{key}, append([]any{t.resource, t.fence, t.mode()}, value...)...).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("fence: present token %d of %q: %w", t.fence, t.resource, err)
	}
	if len(reply) == 0 {
		return nil, errors.New("fence: an empty reply")
	}
	seen, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("fence: the token at %q: %w", key, err)
	}
	return reply, t.compare(seen)
}
