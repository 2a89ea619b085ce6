package virtual

import (
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// This file, guard.go and queue.go are the library's scripts a second time, in Go, for tests
// that would take too long with an interpreter. TestBubbleScripts compares them with the
// real ones. They know lock keys and counters that hold strings only.

// store is the data of a node, as a request finds it.
type store struct {
	redis  *miniredis.Miniredis
	own    string   // what the node says it is
	now    int64    // us
	marker string   // the key
	common []string // ARGV "before all" requests
	left   int64    // ms without a vote, -1 for a stale caller
	gate   bool     // the request says who waits, or has done
}

func (s store) counterTTL() string { return s.common[0] }
func (s store) block() int64       { return number(s.common[1]) }

func (s store) get(key string) (value string, exists bool) {
	value, err := s.redis.Get(key)
	return value, err == nil
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
	granted, mine, busy, planted, late, stale, queued = 1, 2, 3, 4, 5, 6, 8

	raised, unheld                                    = 10, 11
	kept, keptVoteless, filled, filledVoteless, taken = 20, 21, 22, 23, 24
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
		s.gate = r.gate
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
}

func (s store) acquire(keys, argv []string) [3]int64 {
	if by := number(argv[2]); by > 0 && s.now > by {
		return [3]int64{late}
	}
	if s.left < 0 {
		return [3]int64{stale}
	}
	q, who, crowd := queue{s, keys[0]}, "", false
	if s.gate {
		who, crowd = argv[4], q.crowded()
	}
	if crowd {
		if called, some := s.get(q.turn()); some && called != who {
			return [3]int64{queued, q.join(who), s.pttl(q.turn())}
		}
	}
	if held, some := s.get(keys[0]); some {
		own, isMine := strings.CutPrefix(held, argv[0]+"|")
		switch {
		case !isMine:
			return s.busy(q, held, who)
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
	count := s.now
	if old, exists := s.get(keys[1]); exists {
		count = number(old) + s.block()
	} else if hint := number(argv[3]); s.now <= hint && hint <= s.now+1e6 {
		count = hint
	}
	s.set(keys[1], text(count), s.counterTTL())
	s.set(keys[0], argv[0]+"|"+text(count), argv[1])
	if crowd {
		q.leave(who)
		return [3]int64{granted, count, q.waiting()}
	}
	return [3]int64{granted, count}
}

// busy is what acquire says where the key is another's.
func (s store) busy(q queue, held, who string) [3]int64 {
	rest := s.pttl(q.key)
	if !s.gate {
		return [3]int64{busy, 0, rest}
	}
	if !strings.Contains(held, "|") && (rest <= 0 || rest > 50) { // of another library
		rest = 50
	}
	return [3]int64{busy, q.join(who), rest}
}

func (s store) raise(keys, argv []string) [3]int64 {
	if held, _ := s.get(keys[0]); held != argv[0]+"|"+argv[1] {
		return [3]int64{unheld}
	}
	if old, _ := s.get(keys[1]); number(old) < number(argv[2]) {
		s.set(keys[1], argv[2], s.counterTTL())
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
	case !strings.HasPrefix(held, argv[0]+"|"):
		return [3]int64{taken}
	}
	if s.pttl(keys[0]) < number(argv[1]) {
		s.expire(keys[0], argv[1])
	}
	if old, counts := s.get(keys[1]); counts && argv[3] != "0" && held == argv[0]+"|"+argv[3] {
		if number(old) < number(argv[4]) {
			s.set(keys[1], argv[4], s.counterTTL())
		} else {
			s.expire(keys[1], s.counterTTL())
		}
	}
	return [3]int64{whenKept, 0, s.left}
}

func (s store) release(keys, argv []string) [3]int64 {
	code := int64(gone)
	if held, _ := s.get(keys[0]); strings.HasPrefix(held, argv[0]+"|") {
		code = released
		s.redis.Del(keys[0])
		exact := held == argv[0]+"|"+argv[1] && argv[1] != "0" && argv[2] != "0"
		if old, counts := s.get(keys[1]); exact && counts && number(old) < number(argv[2]) {
			s.set(keys[1], argv[2], s.counterTTL())
		}
	}
	if q := (queue{s, keys[0]}); s.gate && q.crowded() {
		q.leave(argv[3])
		if !s.redis.Exists(keys[0]) {
			q.callNext()
		}
	}
	return [3]int64{code}
}

func text(v int64) string { return strconv.FormatInt(v, 10) }
