package virtual

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/wire"
)

// This file is lua/readers.lua and lua/shared.lua in Go.

// dropEnded removes the readers whose life is over.
func (s store) dropEnded(key string) {
	for id, ends := range s.readers(key) {
		if int64(ends) <= s.now/1000 {
			_, _ = s.redis.ZRem(key+wire.ReadersSuffix, id)
		}
	}
}

// settle drops the readers whose life is over. It returns what the key holds then.
func (s store) settle(key string) (held string, exists bool) {
	s.dropEnded(key)
	if len(s.readers(key)) > 0 {
		return wire.Sign, true
	}
	s.redis.Del(key)
	s.redis.Del(key + wire.ReadersSuffix)
	return "", false
}

// readers has the readers of a key, with the ends of their lives in ms.
func (s store) readers(key string) map[string]float64 {
	all, _ := s.redis.SortedSet(key + wire.ReadersSuffix)
	return all
}

// held returns what a key holds, without readers whose life is over.
func (s store) held(key string) (held string, exists bool) {
	if held, exists = s.get(key); held == wire.Sign {
		return s.settle(key)
	}
	return held, exists
}

// holderLabel returns the label of the holder of a key: of readers, the label of the reader that lives longest.
func (s store) holderLabel(key string) string {
	held, _ := s.get(key)
	id, counter, _ := strings.Cut(held, "|")
	if held == wire.Sign {
		all := s.readers(key)
		if len(all) == 0 {
			return ""
		}
		id = slices.MaxFunc(slices.Collect(maps.Keys(all)), func(a, b string) int {
			return cmp.Or(cmp.Compare(all[a], all[b]), cmp.Compare(a, b))
		})
	} else if strings.Trim(counter, "0123456789") != "" || counter == "" {
		return ""
	}
	_, label, _ := strings.Cut(id, wire.OwnerMark)
	return label
}

// put adds a reader, or lengthens its life.
func (s store) put(key, id string, ttl int64, missing bool) {
	readers, known := key+wire.ReadersSuffix, float64(0)
	if missing {
		s.redis.Del(readers)
	} else {
		known = s.readers(key)[id]
	}
	if ends := float64(s.now/1000 + ttl); known < ends {
		_, _ = s.redis.ZAdd(readers, ends, id)
	}
	if missing || s.pttl(readers) < ttl+1000 {
		s.redis.SetTTL(readers, time.Duration(ttl+1000)*time.Millisecond)
	}
	if missing {
		s.set(key, wire.Sign, text(ttl))
	} else if s.pttl(key) < ttl {
		s.expire(key, text(ttl))
	}
}

func (s store) acquireShared(r request) [3]int64 {
	if r.notAfter > 0 && s.now > r.notAfter {
		return [3]int64{late}
	}
	if s.left < 0 {
		return [3]int64{stale}
	}
	id := r.argv[0]
	q := queue{s, r.key}
	crowd := r.atQueueNode() && q.crowded()
	called := ""
	if crowd {
		var left int64
		if called, left, _ = q.called(); called != "" && called != r.process {
			return [3]int64{queued, q.others(r.process), left}
		}
	}
	s.dropEnded(r.key)
	held, exists := s.held(r.key)
	if exists && held != wire.Sign {
		return s.busy(q, held, r)
	}
	all := s.readers(r.key)
	if !exists {
		all = nil
	}
	_, isMine := all[id]
	beside := int64(len(all))
	if isMine {
		beside--
	}
	if crowd && !isMine && called == "" && q.behind(r.process) {
		return [3]int64{queued, q.others(r.process), 1000}
	}
	count, refusal := s.nextCounter(r, 0)
	if count == 0 && refusal[0] != unseeded && s.left == 0 {
		return refusal
	}
	if !isMine {
		s.put(r.key, id, number(r.ttl), !exists)
	}
	if s.left == 0 {
		if count == 0 {
			return refusal
		}
		s.keep(r.counter(), count)
	}
	if crowd {
		q.leave(r.process)
		q.callNext(wire.Sign)
	}
	if s.left > 0 {
		return [3]int64{setVoteless, 0, s.left}
	}
	if r.atQueueNode() {
		if beside = 0; crowd {
			beside = q.waiting()
		}
	}
	if isMine {
		return [3]int64{mine, count, beside}
	}
	return [3]int64{granted, count, beside}
}

func (s store) raiseShared(r request) [3]int64 {
	id, _, _ := r.grant()
	if held, _ := s.get(r.key); held != wire.Sign || int64(s.readers(r.key)[id]) <= s.now/1000 {
		return [3]int64{unheld}
	}
	return s.raiseTo(r)
}

func (s store) extendShared(r request) [3]int64 {
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
	_, isMine := s.readers(r.key)[id]
	switch ttl := number(r.ttl); {
	case !exists:
		s.put(r.key, id, ttl, true)
		return [3]int64{whenFilled, 0, s.left}
	case held == wire.Sign:
		s.put(r.key, id, ttl, false)
		if !isMine {
			return [3]int64{whenFilled, 0, s.left}
		}
	case held == wire.Placeholder(wire.Readers), held == wire.Placeholder(id):
		return [3]int64{takenAway}
	case strings.HasPrefix(held, id+"|"):
		s.put(r.key, id, max(ttl, s.pttl(r.key)), true)
	default:
		return [3]int64{taken}
	}
	if given != "0" {
		s.lift(r.counter(), target)
	}
	return [3]int64{whenKept, 0, s.left}
}

// dropShared ends the life of a reader. It returns the code, and what the key holds then.
func (s store) dropShared(r request) (code int64, held string) {
	id, given, target := r.grant()
	if held, _ = s.get(r.key); held != wire.Sign {
		code, held = s.drop(r.key, id)
		if code == released {
			held = ""
		}
		return code, held
	}
	_, isMine := s.readers(r.key)[id]
	_, _ = s.redis.ZRem(r.key+wire.ReadersSuffix, id)
	held, _ = s.settle(r.key)
	if !isMine {
		return gone, held
	}
	if given != "0" && target != "0" && r.argv[1] != wire.Same {
		s.lift(r.counter(), target)
	}
	return released, held
}

func (s store) releaseShared(r request) [3]int64 {
	code, held := s.dropShared(r)
	if r.atQueueNode() {
		queue{s, r.key}.released(r, held)
	}
	return [3]int64{code}
}

func (s store) restShared(r request) [3]int64 {
	_, given, _ := r.grant()
	r.argv = []string{r.argv[0], "0"}
	code, held := s.dropShared(r)
	queue{s, r.key}.rested(r, given, held)
	return [3]int64{code}
}
