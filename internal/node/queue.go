package node

import (
	"cmp"
	"slices"
	"strings"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/wire"
)

// queue has the requests that wait to be sent to one node. Releases go first, then renewals: new
// acquires must not make a holder lose its lease.
//
// Source: ALGORITHM section 5.
type queue struct {
	lists  [3][]*Request
	tasks  []*task
	latest map[place]*Request // for regroup
}

const maxTasks = 16 // in one exchange

// The lists, in the order in which they are sent.
const (
	releases = iota
	renewals // raises and adopts, too
	acquires
)

func (q *queue) add(r *Request) {
	list := listOf(r.Op)
	q.lists[list] = append(q.lists[list], r)
}

func listOf(o wire.Op) int {
	switch o {
	case wire.Release, wire.Rest:
		return releases
	case wire.Acquire:
		return acquires
	}
	return renewals
}

// putBack puts requests that have to be sent once more in front, in their order. Of several exchanges under way the
// later ones come back after the earlier ones.
func (q *queue) putBack(again []*Request) {
	for i := len(again) - 1; i >= 0; i-- {
		var one queue
		one.add(again[i])
		for l := range q.lists {
			if len(one.lists[l]) > 0 {
				q.lists[l] = append(one.lists[l], q.lists[l]...)
				slices.SortStableFunc(q.lists[l], func(a, b *Request) int { return cmp.Compare(a.queued, b.queued) })
			}
		}
	}
}

func (q *queue) empty() bool { return q.len() == 0 && len(q.tasks) == 0 }

func (q *queue) len() int { return len(q.lists[0]) + len(q.lists[1]) + len(q.lists[2]) }

func (q *queue) full() bool { return q.len() >= maxBatch || len(q.tasks) >= maxTasks }

// oldest returns when the first of the waiting requests was queued.
func (q *queue) oldest() (at clock.Instant, some bool) {
	at = clock.Never
	for _, l := range q.lists {
		if len(l) > 0 {
			at = min(at, l[0].queued)
		}
	}
	for _, t := range q.tasks {
		at = min(at, t.queued)
	}
	return at, at < clock.Never
}

// drop removes the requests for which is returns true.
func (q *queue) drop(is func(*Request) bool) {
	for i, l := range q.lists {
		keep := l[:0]
		for _, r := range l {
			if !is(r) {
				keep = append(keep, r)
			}
		}
		clear(l[len(keep):])
		q.lists[i] = keep
	}
}

// take moves requests to a batch until the batch has most of them. A request marked alone makes
// a batch by itself. Requests that have become pointless are left out and answered.
func (q *queue) take(batch []*Request, most int, pointless func(*Request) error, tell func(*Request, error)) []*Request {
	for i, l := range q.lists {
		n := 0
		for ; n < len(l) && len(batch) < most; n++ {
			r := l[n]
			if why := pointless(r); why != nil {
				tell(r, why)
				continue
			}
			if r.alone {
				if len(batch) == 0 {
					batch, n = append(batch, r), n+1
				}
				most = 0
				break
			}
			batch = append(batch, r)
		}
		rest := copy(l, l[n:])
		clear(l[rest:])
		q.lists[i] = l[:rest]
	}
	return batch
}

// place is that of a process in a queue.
type place struct{ process, queue string }

// regroup puts the requests of a batch in an order in which those that have arguments in common
// are neighbours. The order of the lists stays, and within a list the order of a process's requests for
// one queue: a request that would come before an earlier one of these moves to the next round.
//
// Source: ALGORITHM section 5, "Order of requests".
func (q *queue) regroup(batch []*Request) {
	if slices.IsSortedFunc(batch, byGroup) {
		return
	}
	list := -1
	for _, r := range batch {
		if l := listOf(r.Op); l != list {
			list = l
			clear(q.latest)
		}
		if r.round = 0; r.Process == "" { // the order matters to the queue alone
			continue
		}
		at := place{r.Process, wire.QueueOf(r.Key.Lock)}
		if earlier := q.latest[at]; earlier != nil {
			if r.round = earlier.round; byGroup(earlier, r) > 0 {
				r.round++
			}
		}
		q.latest[at] = r
	}
	clear(q.latest)
	slices.SortStableFunc(batch, func(a, b *Request) int {
		return cmp.Or(cmp.Compare(listOf(a.Op), listOf(b.Op)), cmp.Compare(a.round, b.round), byGroup(a, b))
	})
}

// byGroup compares two requests by their list, and by what a group has in common.
func byGroup(a, b *Request) int {
	return cmp.Or(
		cmp.Compare(listOf(a.Op), listOf(b.Op)),
		cmp.Compare(a.function(), b.function()),
		strings.Compare(a.Process, b.Process),
		cmp.Compare(a.ttl(), b.ttl()),
		cmp.Compare(a.Timeout, b.Timeout),
	)
}
