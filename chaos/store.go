package chaos

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/chaos/history"
)

// store is what the lock protects: a count of sales, once in a register that refuses
// fencing tokens smaller than the largest it has seen, and once in one that takes what
// it gets. It is a Redis of its own, to which nothing is done.
type store struct {
	client *redis.Client
	name   string
	now    func() time.Duration
	sink   func(history.Write)
}

// The keys of the two registers.
const (
	fencedStore = "fenced"
	openStore   = "open"
)

func newStore(addr, name string, now func() time.Duration, sink func(history.Write)) *store {
	return &store{adminOf(addr), name, now, sink}
}

// write replies whether the write was accepted, and its number in the order of the store.
var write = redis.NewScript(`
local largest = tonumber(redis.call('hget', KEYS[1], 'fence') or '0')
if ARGV[3] == '1' and tonumber(ARGV[1]) < largest then return {0, 0} end
redis.call('hset', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return {1, redis.call('hincrby', KEYS[1], 'writes', 1)}`)

// sell reads both registers, and writes one more to each of them.
func (s *store) sell(fence int64) {
	ctx := context.Background()
	var read [2]int64
	for i, register := range []string{fencedStore, openStore} {
		v, err := s.client.HGet(ctx, register, "value").Int64()
		if err != nil && err != redis.Nil {
			return
		}
		read[i] = v
	}
	time.Sleep(2 * time.Millisecond) // what makes it a critical section
	for i, register := range []string{fencedStore, openStore} {
		w := history.Write{Store: register, Client: s.name, Fence: fence, Read: read[i], Call: s.now()}
		reply, err := write.Run(ctx, s.client, []string{register}, fence, read[i]+1, register == fencedStore).Int64Slice()
		if err != nil {
			return
		}
		w.Done, w.Accepted, w.Seq = s.now(), reply[0] == 1, reply[1]
		s.sink(w)
	}
}
