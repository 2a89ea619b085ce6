package chaos

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/chaos/history"
)

// store is protected by the lock: counts of sales, in registers that differ in where they
// compare fencing tokens. It is a Redis of its own, which has no faults.
type store struct {
	client *redis.Client
	name   string
	now    func() time.Duration
	sink   func(history.Access)
}

// register is one count. Depending on its kind it refuses reads or writes with a fencing
// token smaller than the largest that it has compared.
type register struct {
	name          string
	reads, writes bool // compare the token
}

// The registers, by what they compare. Only the first keeps every update; the others are
// negative controls.
var (
	fenced       = register{"fenced", true, true}
	writesFenced = register{"fenced at the write only", false, true}
	open         = register{"open", false, false}

	registers = [...]register{fenced, writesFenced, open}
)

func newStore(addr, name string, now func() time.Duration, sink func(history.Access)) *store {
	return &store{adminOf(addr), name, now, sink}
}

// access reads or writes a register. KEYS[1] is its hash; ARGV is the token, 1 if it is to
// be compared, and for a write the value. It replies whether the access was accepted, 1 or
// 0, and the value that was read, or the number of the write in the order of the register.
//
// Source: ALGORITHM section 7.
var access = redis.NewScript(`
if ARGV[2] == '1' then
	local seen = tonumber(redis.call('hget', KEYS[1], 'fence') or '0')
	if tonumber(ARGV[1]) < seen then return {0, 0} end
	redis.call('hset', KEYS[1], 'fence', ARGV[1])
end
if not ARGV[3] then return {1, tonumber(redis.call('hget', KEYS[1], 'value') or '0')} end
redis.call('hset', KEYS[1], 'value', ARGV[3])
return {1, redis.call('hincrby', KEYS[1], 'writes', 1)}`)

// read returns the value of a register, if the register accepts the token.
func (s *store) read(r register, fence int64) (value int64, accepted bool) {
	a := history.Access{Store: r.name, Client: s.name, Fence: fence, Call: s.now()}
	reply, err := access.Run(context.Background(), s.client, []string{r.name}, fence, r.reads).Int64Slice()
	if err != nil {
		return 0, false
	}
	a.Done, a.Accepted, a.Value = s.now(), reply[0] == 1, reply[1]
	s.sink(a)
	return a.Value, a.Accepted
}

// write writes the value that was read, plus one.
func (s *store) write(r register, fence, value int64) {
	a := history.Access{Store: r.name, Client: s.name, Fence: fence, Write: true, Value: value, Call: s.now()}
	reply, err := access.Run(context.Background(), s.client, []string{r.name}, fence, r.writes, value+1).Int64Slice()
	if err != nil {
		return
	}
	a.Done, a.Accepted, a.Seq = s.now(), reply[0] == 1, reply[1]
	s.sink(a)
}

// sell reads every register, and increments those that accepted the read.
func (s *store) sell(fence int64) {
	var value [len(registers)]int64
	var accepted [len(registers)]bool
	for i, r := range registers {
		value[i], accepted[i] = s.read(r, fence)
	}
	time.Sleep(2 * time.Millisecond) // the length of the critical section
	for i, r := range registers {
		if accepted[i] {
			s.write(r, fence, value[i])
		}
	}
}
