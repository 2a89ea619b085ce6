package virtual

import (
	"fmt"
	"strings"

	"github.com/d0720281/redlock/internal/wire"
)

// This file is lua/permits.lua in Go.

// choose is the acquire of permits. The last part of its reply is a text.
func (s store) choose(r request) (code, counter int64, extra any) {
	const ours = mine
	refuse := func(v [3]int64) (int64, int64, any) { return v[0], v[1], v[2] }
	if r.notAfter > 0 && s.now > r.notAfter {
		return refuse([3]int64{late})
	}
	if s.left < 0 {
		return refuse([3]int64{stale})
	}
	var wish, count, of, first int64
	_, _ = fmt.Sscan(r.argv[1], &wish, &count, &of, &first)
	id, q := r.argv[0], queue{s, r.key}
	var mine, free []string
	taken := ""
	for k := range of {
		slot := wire.Slot(r.key, int((first-1+k)%of+1))
		switch held, some := s.get(slot); {
		case strings.HasPrefix(held, id+"|"):
			mine = append(mine, slot)
		case !some:
			free = append(free, slot)
		case taken == "":
			taken = slot
		}
	}
	crowd := r.atQueueNode() && q.crowded()
	if crowd && int64(len(mine)) < count {
		switch called, left, _ := q.called(); {
		case called != "" && called != r.process:
			return refuse([3]int64{queued, q.others(r.process), left})
		case called == "" && q.behind(r.process):
			return refuse([3]int64{queued, q.others(r.process), 1000})
		}
	}
	mine = append(mine, free...)
	var got, texts []string
	var refused [3]int64
	for _, slot := range mine {
		if int64(len(mine)) < count || int64(len(got)) == count {
			break
		}
		_, number := wire.CutSlot(slot)
		switch v := s.acquire(request{key: slot, ttl: r.ttl, argv: []string{id, text(wish)}}); v[0] {
		case granted, ours, setVoteless, unseeded:
			got = append(got, slot)
			texts = append(texts, fmt.Sprintf("%d:%d:%d:%d", number, v[0], v[1], v[2]))
		default:
			refused = [3]int64{v[0], int64(number), v[2]}
		}
	}
	if int64(len(got)) < count {
		for _, slot := range got {
			s.redis.Del(slot)
		}
		if taken == "" {
			return refuse(refused)
		}
		busy := [3]int64{busy, 0, s.pttl(taken)}
		if crowd {
			busy[1] = q.others(r.process)
		}
		return busy[0], busy[1], s.extra(taken, busy)
	}
	more := "0 "
	if _, some := s.get(wire.Slot(r.key, int(of+1))); some {
		more = "1 "
	}
	if crowd {
		q.leave(r.process)
		q.callNext(wire.Sign)
		counter = q.waiting()
	}
	return chosen, counter, more + strings.Join(texts, " ")
}

// dropSlots deletes all slots of an attempt.
func (s store) dropSlots(r request) int64 {
	code := int64(gone)
	for i := range number(r.argv[1]) {
		if dropped, _ := s.drop(wire.Slot(r.key, int(i+1)), r.id()); dropped == released {
			code = released
		}
	}
	return code
}

func (s store) releasePermits(r request) [3]int64 {
	code := s.dropSlots(r)
	if q := (queue{s, r.key}); r.atQueueNode() && q.crowded() {
		q.leave(r.process)
		q.callNext(wire.Sign)
	}
	return [3]int64{code}
}

func (s store) restPermits(r request) [3]int64 {
	_, given, _ := r.grant()
	code := s.dropSlots(r)
	queue{s, r.key}.rested(r, given, wire.Sign)
	return [3]int64{code}
}
