package virtual

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock/internal/wire"
)

// This file, guard.go and queue.go are the library's scripts a second time, in Go, for tests
// that would take too long with an interpreter. TestBubbleScripts compares them with the
// real ones. They know lock keys and counters that hold strings only.

// store is the data of a node, as a request finds it.
type store struct {
	redis       *miniredis.Miniredis
	own         string   // what the node says it is
	now         int64    // us
	marker      string   // the key
	common      []string // ARGV "before all" requests
	left        int64    // ms without a vote, -1 for a stale caller
	atQueueNode bool     // the request says who waits, or has done
}

func (s store) counterTTL() string { return s.common[0] }
func (s store) block() int64       { return number(s.common[1]) }
func (s store) median() int64      { return number(s.common[6]) }
func (s store) skew() int64        { return number(s.common[7]) }

// near reports whether the node's clock agrees with that of the others.
func (s store) near() bool {
	return s.median() > 0 && max(s.now-s.median(), s.median()-s.now) <= s.skew()
}

// ahead is how far a counter is ahead of the largest that it can be, us.
func (s store) ahead(counter int64) int64 { return counter - s.now - s.skew() - 1e6 }

// keep sets a counter, which outlives the moment at which the clock reaches it.
func (s store) keep(key string, counter int64) {
	early := max(0, (counter-s.now+999)/1000)
	s.set(key, text(counter), text(number(s.counterTTL())+early))
}

// lift raises the counter of a held lock to a target.
func (s store) lift(key, target string) {
	old, exists := s.get(key)
	if counter := max(number(old), number(target)); exists && s.ahead(counter) <= 0 {
		s.keep(key, counter)
	}
}

func (s store) get(key string) (value string, exists bool) {
	value, err := s.redis.Get(key)
	return value[:min(len(value), 256)], err == nil
}

func (s store) set(key, value, millis string) {
	_ = s.redis.Set(key, value)
	s.expire(key, millis)
}

func (s store) expire(key, millis string) {
	s.redis.SetTTL(key, time.Duration(number(millis))*time.Millisecond)
}

func (s store) pttl(key string) int64 {
	return int64(s.redis.TTL(key) / time.Millisecond)
}

// The first number of a reply: the Lua files say what each means.
const (
	granted, mine, busy, planted, late, stale, queued, unseeded, ahead = 1, 2, 3, 4, 5, 6, 8, 9, 12

	raised, unheld                                    = 10, 11
	kept, keptVoteless, filled, filledVoteless, taken = 20, 21, 22, 23, 24
	takenAway                                         = 25
	released, gone                                    = 30, 31
)

// run is lua/run.lua: the reply to some requests.
func (s store) run(list []request) []any {
	reply := []any{int64(0), int64(0)}
	guarded := false
	for _, r := range list {
		if !guarded && (r.op == "acquire" || r.op == "extend") {
			guarded = true
			if s.common[2] != "" {
				s.left = s.guard()
			}
			reply[0], reply[1] = s.now, max(s.left, 0)
		}
		s.atQueueNode = r.atQueueNode
		for _, v := range twins[r.op](s, r.keys, r.argv) {
			reply = append(reply, v)
		}
	}
	return reply
}

// twins is the functions by their names. A request has the lock key and the counter, and
// the arguments from at+1 on; the reply is code, counter, extra.
var twins = map[string]func(s store, keys, argv []string) [3]int64{
	"acquire": store.acquire,
	"raise":   store.raise,
	"extend":  store.extend,
	"release": store.release,
	"rest":    store.rest,
}

func (s store) acquire(keys, argv []string) [3]int64 {
	if by := number(argv[2]); by > 0 && s.now > by {
		return [3]int64{late}
	}
	if s.left < 0 {
		return [3]int64{stale}
	}
	q, who, crowd := queue{s, keys[0]}, "", false
	if s.atQueueNode {
		who, crowd = argv[4], q.crowded()
	}
	if crowd {
		if called, left, _ := q.called(); called != "" && called != who {
			return [3]int64{queued, q.others(who), left}
		}
	}
	if held, some := s.get(keys[0]); some {
		own, isMine := strings.CutPrefix(held, argv[0]+"|")
		switch {
		case !isMine:
			return s.busy(q, held, who)
		case s.ahead(number(own)) > 0:
			return s.tooFar(number(own))
		case number(own) > 0 && s.left == 0:
			return [3]int64{mine, number(own)}
		}
		return [3]int64{planted, 0, s.left}
	}
	if s.left > 0 {
		s.set(keys[0], argv[0]+"|0", argv[1])
		if crowd {
			q.leave(who)
		}
		return [3]int64{planted, 0, s.left}
	}
	var count int64
	switch old, exists := s.get(keys[1]); {
	case exists:
		count = number(old) + s.block()
	case s.near():
		count = s.median()
		if wish := number(argv[3]); count <= wish && wish <= count+1e6 {
			count = wish
		}
	default:
		s.set(keys[0], argv[0]+"|0", argv[1])
		if s.median() == 0 {
			return [3]int64{unseeded}
		}
		return [3]int64{unseeded, 0, int64(math.Floor(float64(s.now-s.median()) / 1000))}
	}
	if s.ahead(count) > 0 {
		return s.tooFar(count)
	}
	s.keep(keys[1], count)
	s.set(keys[0], argv[0]+"|"+text(count), argv[1])
	if crowd {
		q.leave(who)
		return [3]int64{granted, count, q.waiting()}
	}
	return [3]int64{granted, count}
}

// tooFar is what the scripts say of a counter that is too far ahead of the clock.
func (s store) tooFar(counter int64) [3]int64 {
	return [3]int64{ahead, 0, (counter - s.now + 999) / 1000}
}

// busy is what acquire says where the key is another's.
func (s store) busy(q queue, held, who string) [3]int64 {
	rest := s.pttl(q.key)
	if !s.atQueueNode {
		return [3]int64{busy, 0, rest}
	}
	if !strings.Contains(held, "|") && (rest <= 0 || rest > 50) { // of another library
		rest = 50
	}
	return [3]int64{busy, q.others(who), rest}
}

func (s store) raise(keys, argv []string) [3]int64 {
	if held, _ := s.get(keys[0]); held != argv[0]+"|"+argv[1] {
		return [3]int64{unheld}
	}
	if s.ahead(number(argv[2])) > 0 {
		return s.tooFar(number(argv[2]))
	}
	if old, _ := s.get(keys[1]); number(old) < number(argv[2]) {
		s.keep(keys[1], number(argv[2]))
	}
	return [3]int64{raised}
}

func (s store) extend(keys, argv []string) [3]int64 {
	if by := number(argv[2]); by > 0 && s.now > by {
		return [3]int64{late}
	}
	if s.left < 0 {
		return [3]int64{stale}
	}
	whenFilled, whenKept := int64(filled), int64(kept)
	if s.left > 0 {
		whenFilled, whenKept = filledVoteless, keptVoteless
	}
	held, exists := s.get(keys[0])
	switch {
	case !exists:
		s.set(keys[0], argv[0]+"|0", argv[1])
		return [3]int64{whenFilled, 0, s.left}
	case held == wire.Placeholder(argv[0]):
		return [3]int64{takenAway}
	case !strings.HasPrefix(held, argv[0]+"|"):
		return [3]int64{taken}
	}
	if s.pttl(keys[0]) < number(argv[1]) {
		s.expire(keys[0], argv[1])
	}
	if argv[3] != "0" && held == argv[0]+"|"+argv[3] {
		s.lift(keys[1], argv[4])
	}
	return [3]int64{whenKept, 0, s.left}
}

// drop deletes the key if it is the attempt's, or the placeholder in its place. It tells the
// code, and what the key held.
func (s store) drop(key, id string) (code int64, held string) {
	if held, _ = s.get(key); !strings.HasPrefix(held, id+"|") && held != wire.Placeholder(id) {
		return gone, held
	}
	s.redis.Del(key)
	return released, held
}

func (s store) release(keys, argv []string) [3]int64 {
	code, held := s.drop(keys[0], argv[0])
	if held == argv[0]+"|"+argv[1] && argv[1] != "0" && argv[2] != "0" && argv[1] != argv[2] {
		s.lift(keys[1], argv[2])
	}
	if !s.atQueueNode {
		return [3]int64{code}
	}
	q, free := queue{s, keys[0]}, !s.redis.Exists(keys[0])
	if q.crowded() {
		q.leave(argv[3])
		if free {
			q.callNext()
		}
	}
	if !free && argv[2] != "0" {
		q.miss()
	}
	return [3]int64{code}
}

func (s store) rest(keys, argv []string) [3]int64 {
	code, _ := s.drop(keys[0], argv[0])
	q := queue{s, keys[0]}
	q.join(argv[2])
	if s.redis.Exists(keys[0]) {
		return [3]int64{code}
	}
	if called, _, missed := q.called(); called == "" && (argv[1] == "0" || missed) {
		q.callNext()
	}
	return [3]int64{code}
}

func text(v int64) string { return strconv.FormatInt(v, 10) }
