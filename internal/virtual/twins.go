package virtual

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock/internal/wire"
)

// The library's scripts a second time, in Go, here and in guard.go and queue.go. Tests with an
// interpreter would take too long. TestBubbleScripts compares them with the real scripts. They
// support only lock keys and counters that are strings.

// store is the data of a node during a request.
type store struct {
	redis  *miniredis.Miniredis
	own    string   // the identity of the node, empty if it has none
	now    int64    // us
	marker string   // the key
	common []string // ARGV "before all" requests
	left   int64    // ms without a vote, -1 for a stale caller
}

func (s store) median() int64        { return number(s.common[1]) }
func (s store) setting(i int) string { return strings.Fields(s.common[2])[i] }
func (s store) counterTTL() string   { return s.setting(0) }
func (s store) skew() int64          { return number(s.setting(1)) }

func (s store) stretch() float64 {
	f, _ := strconv.ParseFloat(s.setting(3), 64)
	return f
}

// near reports whether the node's clock agrees with that of the others.
func (s store) near() bool {
	return s.median() > 0 && max(s.now-s.median(), s.median()-s.now) <= s.skew()
}

// oldest returns the smallest counter that does not count as missing.
func (s store) oldest() int64 {
	if s.common[0] == "" {
		return 0
	}
	return number(s.known("since")) * 1000
}

// ahead returns how far a counter is beyond its largest possible value, in us.
func (s store) ahead(counter int64) int64 { return counter - s.now - s.skew() - 1e6 }

// keep sets a counter that lives until after the clock has reached it.
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

// The codes of replies, as the Lua files explain them.
const (
	granted, mine, busy, setVoteless, late, stale, queued, unseeded, ahead = 1, 2, 3, 4, 5, 6, 8, 9, 12
	chosen                                                                 = 13

	raised, unheld                                    = 10, 11
	kept, keptVoteless, filled, filledVoteless, taken = 20, 21, 22, 23, 24
	takenAway                                         = 25
	released, gone                                    = 30, 31
)

// run is lua/run.lua: it returns the reply to some requests.
func (s store) run(list []request) []any {
	reply := []any{int64(0), int64(0)}
	guarded := false
	for _, r := range list {
		if !guarded && r.guarded {
			guarded = true
			if s.common[0] != "" {
				s.left = s.guard()
			}
			reply[0], reply[1] = s.now, max(s.left, 0)
		}
		if r.op == "acquire permits" {
			code, counter, extra := s.choose(r)
			reply = append(reply, code, counter, extra)
			continue
		}
		v := twins[r.op](s, r)
		reply = append(reply, v[0], v[1], s.extra(r.key, v))
	}
	return reply
}

// extra returns the last part of a reply. That of a busy key has the label of the holder.
func (s store) extra(key string, v [3]int64) any {
	if v[0] == busy {
		if label := s.holderLabel(key); label != "" {
			return text(v[2]) + " " + label
		}
	}
	return v[2]
}

// twins has the functions by their names. The reply is code, counter, extra.
var twins = map[string]func(s store, r request) [3]int64{
	"acquire": store.acquire,
	"raise":   store.raise,
	"extend":  store.extend,
	"release": store.release,
	"rest":    store.rest,

	"acquire shared": store.acquireShared,
	"raise shared":   store.raiseShared,
	"extend shared":  store.extendShared,
	"release shared": store.releaseShared,
	"rest shared":    store.restShared,

	"release permits": store.releasePermits,
	"rest permits":    store.restPermits,
}

func (s store) acquire(r request) [3]int64 {
	if r.notAfter > 0 && s.now > r.notAfter {
		return [3]int64{late}
	}
	if s.left < 0 {
		return [3]int64{stale}
	}
	id := r.argv[0]
	q := queue{s, r.key}
	crowd := r.atQueueNode() && q.crowded()
	if crowd {
		if called, left, _ := q.called(); called != "" && called != r.process {
			return [3]int64{queued, q.others(r.process), left}
		}
	}
	if held, some := s.held(r.key); some {
		own, isMine := strings.CutPrefix(held, id+"|")
		switch {
		case !isMine:
			return s.busy(q, held, r)
		case s.ahead(number(own)) > 0:
			return s.tooFar(number(own))
		case number(own) > 0 && s.left == 0:
			return [3]int64{mine, number(own)}
		}
		return [3]int64{setVoteless, 0, s.left}
	}
	if s.left > 0 {
		s.set(r.key, id+"|0", r.ttl)
		if crowd {
			q.leave(r.process)
		}
		return [3]int64{setVoteless, 0, s.left}
	}
	count, refusal := s.nextCounter(r, wire.Block)
	switch {
	case count > 0:
	case refusal[0] == unseeded:
		s.set(r.key, id+"|0", r.ttl)
		return refusal
	default:
		return refusal
	}
	s.keep(r.counter(), count)
	s.set(r.key, id+"|"+text(count), r.ttl)
	if crowd {
		q.leave(r.process)
		return [3]int64{granted, count, q.waiting()}
	}
	return [3]int64{granted, count}
}

// nextCounter returns the counter of a grant that reserves some tokens, or 0 and the reply.
func (s store) nextCounter(r request, tokens int64) (count int64, refusal [3]int64) {
	wish, least := number(r.argv[1]), int64(0)
	old, exists := s.get(r.counter())
	if exists {
		least = number(old) + tokens
	}
	switch {
	case exists && number(old) >= s.oldest():
		count = least
	case s.near():
		count = s.median()
		if count <= wish && wish <= count+1e6 {
			count = wish
		}
		count = max(count, least)
	case s.median() == 0:
		return 0, [3]int64{unseeded}
	default:
		return 0, [3]int64{unseeded, 0, int64(math.Floor(float64(s.now-s.median()) / 1000))}
	}
	if s.ahead(count) > 0 {
		return 0, s.tooFar(count)
	}
	return count, refusal
}

// tooFar returns the reply for a counter that is too far ahead of the clock.
func (s store) tooFar(counter int64) [3]int64 {
	return [3]int64{ahead, 0, (counter - s.now + 999) / 1000}
}

// busy is what acquire says where the key is another's.
func (s store) busy(q queue, held string, r request) [3]int64 {
	rest := s.pttl(r.key)
	if !r.atQueueNode() {
		if held == wire.Sign {
			return [3]int64{busy, 1, rest}
		}
		return [3]int64{busy, 0, rest}
	}
	if !strings.Contains(held, "|") && (rest <= 0 || rest > 50) { // of another library
		rest = 50
	}
	return [3]int64{busy, q.others(r.process), rest}
}

func (s store) raise(r request) [3]int64 {
	if held, _ := s.get(r.key); held != r.argv[0] {
		return [3]int64{unheld}
	}
	return s.raiseTo(r)
}

func (s store) raiseTo(r request) [3]int64 {
	target := number(r.argv[1])
	if s.ahead(target) > 0 {
		return s.tooFar(target)
	}
	if old, _ := s.get(r.counter()); number(old) < target {
		s.keep(r.counter(), target)
	}
	return [3]int64{raised}
}

func (s store) extend(r request) [3]int64 {
	if r.notAfter > 0 && s.now > r.notAfter {
		return [3]int64{late}
	}
	if s.left < 0 {
		return [3]int64{stale}
	}
	whenFilled, whenKept := int64(filled), int64(kept)
	if s.left > 0 {
		whenFilled, whenKept = filledVoteless, keptVoteless
	}
	id, given, target := r.grant()
	held, exists := s.held(r.key)
	switch {
	case !exists:
		s.set(r.key, id+"|0", r.ttl)
		return [3]int64{whenFilled, 0, s.left}
	case held == wire.Placeholder(id):
		return [3]int64{takenAway}
	case !strings.HasPrefix(held, id+"|"):
		return [3]int64{taken}
	}
	if s.pttl(r.key) < number(r.ttl) {
		s.expire(r.key, r.ttl)
	}
	if given != "0" && held == r.argv[0] {
		s.lift(r.counter(), target)
	}
	return [3]int64{whenKept, 0, s.left}
}

// drop deletes the key if it belongs to the attempt, or the placeholder in its place. It
// returns the code, and what the key held.
func (s store) drop(key, id string) (code int64, held string) {
	if held, _ = s.get(key); !strings.HasPrefix(held, id+"|") && held != wire.Placeholder(id) {
		return gone, held
	}
	s.redis.Del(key)
	return released, held
}

func (s store) release(r request) [3]int64 {
	id, given, target := r.grant()
	code, held := s.drop(r.key, id)
	if held == r.argv[0] && given != "0" && target != "0" && r.argv[1] != wire.Same {
		s.lift(r.counter(), target)
	}
	if r.atQueueNode() {
		if code == released {
			held = ""
		}
		queue{s, r.key}.released(r, held)
	}
	return [3]int64{code}
}

func (s store) rest(r request) [3]int64 {
	id, given, _ := r.grant()
	code, held := s.drop(r.key, id)
	if code == released {
		held = ""
	}
	queue{s, r.key}.rested(r, given, held)
	return [3]int64{code}
}

func text(v int64) string { return strconv.FormatInt(v, 10) }
