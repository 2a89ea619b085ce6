package virtual

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
)

// queue is lua/queue.lua in Go, for one lock key.
type queue struct {
	store
	key string
}

func (q queue) line() string { return q.key + "~queue" }
func (q queue) seen() string { return q.key + "~seen" }
func (q queue) turn() string { return q.key + "~turn" }

func (q queue) crowded() bool { return q.redis.Exists(q.line()) || q.redis.Exists(q.turn()) }

// members is who waits, with when they came.
func (q queue) members() map[string]float64 {
	all, _ := q.redis.SortedSet(q.line())
	return all
}

func (q queue) waiting() int64 { return int64(len(q.members())) }

func (q queue) join(who string) int64 {
	if who != "-" {
		if _, in := q.members()[who]; !in {
			_, _ = q.redis.ZAdd(q.line(), float64(q.now), who)
		}
		q.redis.HSet(q.seen(), who, strconv.FormatFloat(float64(q.now)/1000, 'f', 0, 64))
		q.redis.SetTTL(q.line(), 10*time.Second)
		q.redis.SetTTL(q.seen(), 10*time.Second)
	}
	return q.waiting()
}

// forget takes a process out of what is known of those who wait.
func (q queue) forget(who string) {
	q.redis.HDel(q.seen(), who)
	if left, _ := q.redis.HKeys(q.seen()); len(left) == 0 {
		q.redis.Del(q.seen())
	}
}

func (q queue) leave(who string) {
	_, _ = q.redis.ZRem(q.line(), who)
	q.forget(who)
	if called, _ := q.get(q.turn()); called == who {
		q.redis.Del(q.turn())
	}
}

func (q queue) callNext() {
	if called, some := q.get(q.turn()); some {
		q.redis.Publish(called, q.key)
		return
	}
	for range 16 {
		all := q.members()
		if len(all) == 0 {
			return
		}
		head := slices.MinFunc(slices.Collect(maps.Keys(all)), func(a, b string) int {
			return cmp.Or(cmp.Compare(all[a], all[b]), cmp.Compare(a, b))
		})
		_, _ = q.redis.ZRem(q.line(), head)
		last := q.redis.HGet(q.seen(), head)
		q.forget(head)
		if float64(number(last)) > float64(q.now)/1000-3000 && q.redis.Publish(head, q.key) > 0 {
			q.set(q.turn(), head, "250")
			return
		}
	}
}
