package node

import (
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// This file repeats releases, until the master confirms or the key must have expired.

// retry is a release that has to be sent again, because the master did not confirm it, or a lost
// request of the same attempt may still arrive.
type retry struct {
	*Request
	at, until clock.Instant
	wait      time.Duration
}

// retries are the releases to be sent again. While a master is down there can be 100,000 of them,
// so the list is looked through only when something in it is due.
type retries struct {
	list   []retry
	sendAt clock.Instant // no release is due before
	endAt  clock.Instant // no key has expired before
}

// pruneEvery bounds how often the list is searched for keys that have expired.
const pruneEvery = 50 * time.Millisecond

func (s *retries) add(r retry) {
	if len(s.list) == 0 {
		s.sendAt, s.endAt = clock.Never, clock.Never
	}
	s.list = append(s.list, r)
	r.retry = len(s.list)
	s.sendAt, s.endAt = min(s.sendAt, r.at), min(s.endAt, r.until)
}

// drop removes a release from the list, if it is there.
func (s *retries) drop(r *Request) {
	i, last := r.retry-1, len(s.list)-1
	if i < 0 {
		return
	}
	s.list[i] = s.list[last]
	s.list[i].retry = i + 1
	s.list[last] = retry{}
	s.list = s.list[:last]
	r.retry = 0
}

// due returns when to look for releases that are due.
func (s *retries) due() clock.Instant {
	if len(s.list) == 0 {
		return clock.Never
	}
	return s.sendAt
}

// take appends releases that are due to a batch, until the batch is full, and at most half a batch of
// those for which along returns true, if it is not nil. They stay in the list until they are confirmed,
// and are due again after the timeout and a pause that grows.
func (s *retries) take(batch []*Request, now clock.Instant, timeout time.Duration, along func(*Request) bool) []*Request {
	if now < s.due() && along == nil {
		return batch
	}
	s.sendAt = clock.Never
	for i := range s.list {
		r := &s.list[i]
		isDue := now >= r.at && len(batch) < maxBatch
		if isDue || along != nil && len(batch) < maxBatch/2 && along(r.Request) {
			batch = append(batch, r.Request)
			r.wait = longerPause(r.wait)
			r.at = now.Add(timeout + r.wait)
		}
		s.sendAt = min(s.sendAt, r.at)
	}
	return batch
}

// sendNow makes all releases due for which may returns true.
func (s *retries) sendNow(now clock.Instant, may func(*Request) bool) {
	for i := range s.list {
		if r := &s.list[i]; may(r.Request) {
			r.at = now
			s.sendAt = now
		}
	}
}

// prune removes the releases of keys that have expired by now, and returns them.
func (s *retries) prune(now clock.Instant) (expired []*Request) {
	if len(s.list) == 0 || now < s.endAt {
		return nil
	}
	s.endAt = clock.Never
	for i := 0; i < len(s.list); {
		r := s.list[i].Request
		if until := s.list[i].until; now < until {
			s.endAt = min(s.endAt, until)
			i++
			continue
		}
		s.drop(r)
		expired = append(expired, r)
	}
	s.endAt = max(s.endAt, now.Add(pruneEvery))
	return expired
}

const (
	firstPause = 20 * time.Millisecond  // after the first failure of a node or of a release
	maxPause   = 500 * time.Millisecond // between two tries
)

func longerPause(d time.Duration) time.Duration { return min(max(2*d, firstPause), maxPause) }
