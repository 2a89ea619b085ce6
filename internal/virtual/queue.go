package virtual

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/wire"
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

// members has the waiting processes, with the times at which they came.
func (q queue) members() map[string]float64 {
	all, _ := q.redis.SortedSet(q.line())
	return all
}

func (q queue) waiting() int64 { return int64(len(q.members())) }

// others returns the number of waiting processes except who.
func (q queue) others(who string) int64 {
	n := q.waiting()
	if n > 0 && q.redis.HGet(q.seen(), who) != "" {
		n--
	}
	return n
}

// called returns the process that has its turn, and for how many ms. If no process has its turn,
// it returns "", and whether a release was missed.
func (q queue) called() (who string, left int64, missed bool) {
	who, some := q.get(q.turn())
	switch {
	case !some:
		return "", 0, false
	case who == "-":
		return "", 0, true
	case q.redis.TTL(q.turn()) == 0:
		q.expire(q.turn(), turnMillis)
	}
	return who, q.pttl(q.turn()), false
}

const turnMillis = "250"

func (q queue) join(who string) {
	if who == "-" {
		return
	}
	if _, in := q.members()[who]; !in {
		_, _ = q.redis.ZAdd(q.line(), float64(q.now), who)
	}
	q.redis.HSet(q.seen(), who, strconv.FormatFloat(float64(q.now)/1000, 'f', 0, 64))
	q.redis.SetTTL(q.line(), 10*time.Second)
	q.redis.SetTTL(q.seen(), 10*time.Second)
}

// forget removes a process from the waiting processes.
func (q queue) forget(who string) {
	q.redis.HDel(q.seen(), who)
	if left, _ := q.redis.HKeys(q.seen()); len(left) == 0 {
		q.redis.Del(q.seen())
	}
}

func (q queue) leave(who string) {
	_, _ = q.redis.ZRem(q.line(), who)
	q.forget(who)
	if called, _ := q.get(q.turn()); called == who && who != "-" {
		q.redis.Del(q.turn())
	}
}

// miss records that a release came while another attempt had the key.
func (q queue) miss() {
	if !q.redis.Exists(q.turn()) {
		q.set(q.turn(), "-", turnMillis)
	}
}

// released tells the queue that an attempt has ended here. held has the present value of the key.
func (q queue) released(r request, held string) {
	if q.crowded() {
		q.leave(r.process)
		q.callNext(held)
	}
	if held != "" && r.argv[1] != "0" {
		q.miss()
	}
}

// rested puts the process of an attempt that failed into the queue.
func (q queue) rested(r request, given, held string) {
	q.join(r.process)
	if called, _, missed := q.called(); called == "" && (given == "0" || missed) {
		q.callNext(held)
	}
}

// wants returns what a process waits for, as the end of its name says.
func wants(who string) (channel, suffix string) {
	if channel, isReader := strings.CutSuffix(who, wire.OfReaders); isReader {
		return channel, wire.OfReaders
	}
	channel, _ = wire.CutPermits(who)
	return channel, who[len(channel):]
}

// admits reports whether a process can get in where readers or permits let processes in.
func (q queue) admits(who string) bool {
	channel, p := wire.CutPermits(who)
	if p.Of == 0 {
		_, suffix := wants(channel)
		return suffix == wire.OfReaders
	}
	free := 0
	for i := range p.Of {
		if !q.redis.Exists(wire.Slot(q.key, int(i)+1)) {
			free++
		}
	}
	return free >= int(p.Count)
}

// tell calls a process. It reports whether the process listens.
func (q queue) tell(who string) bool {
	channel, suffix := wants(who)
	return q.redis.Publish(channel, q.key+suffix) > 0
}

func (q queue) lives(who string) bool {
	return float64(number(q.redis.HGet(q.seen(), who))) > float64(q.now)/1000-3000
}

// head returns the process that came first.
func (q queue) head() string {
	all := q.members()
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(slices.Collect(maps.Keys(all)), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[a], all[b]), cmp.Compare(a, b))
	})
}

// first returns the head of the queue, and drops heads that do not live.
func (q queue) first() string {
	for range 16 {
		head := q.head()
		if head == "" || q.lives(head) {
			return head
		}
		_, _ = q.redis.ZRem(q.line(), head)
		q.forget(head)
	}
	return ""
}

// behind reports whether a process waits before who.
func (q queue) behind(who string) bool {
	head := q.first()
	return head != "" && head != who
}

func (q queue) callNext(held string) {
	if held != "" && held != wire.Sign {
		return
	}
	shared := held != ""
	called, _, missed := q.called()
	if called != "" {
		if !shared || q.admits(called) {
			q.tell(called)
		}
		return
	}
	if missed && !shared {
		q.redis.Del(q.turn())
	}
	for range 16 {
		head := q.head()
		if shared {
			head = q.first()
		}
		if head == "" || shared && !q.admits(head) {
			return
		}
		_, _ = q.redis.ZRem(q.line(), head)
		lives := q.lives(head)
		q.forget(head)
		if lives && q.tell(head) {
			q.set(q.turn(), head, turnMillis)
			return
		}
	}
}
