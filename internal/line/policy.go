package line

import (
	"math/rand/v2"
	"time"
)

// Policy has the times and numbers that tune when the head of a line asks again.
//
// Source: ALGORITHM section 10, "How a process waits".
type Policy struct {
	FirstDelay    time.Duration // largest pause before the second attempt
	MostDelay     time.Duration // largest pause between attempts
	DeniedDelay   time.Duration // largest pause between attempts that a quorum answers with errors
	QueuedDelay   time.Duration // largest pause of a process in the queue
	OutageLook    time.Duration // how often a caller that waits for a quorum of nodes looks, for the log
	HandOverDelay time.Duration // how long a process that has some of several resources waits for a lease that is handed over, before it joins their queue
	RestDelay     time.Duration // how long a process waits for the answer to its rest
	Near          int           // largest number of processes before a process in the queue for which NearDelay counts
	NearDelay     time.Duration // largest pause then: the processes before it may be stopped, and keep their turn
	MostSpread    int           // a process waits for 1 ms for each process before it, but for no more than so many
	AskAllEvery   int           // of so many rests in a row one is an attempt that asks all nodes
	RoomDelay     time.Duration // usual pause of a process that may keep a holder's renewals from the queue node
	MostRefused   int           // attempts in a row that may do so before the process pauses for RoomDelay
}

// DefaultPolicy is the policy of a Locker.
var DefaultPolicy = Policy{
	FirstDelay:    2 * time.Millisecond,
	MostDelay:     100 * time.Millisecond,
	DeniedDelay:   450 * time.Millisecond,
	QueuedDelay:   time.Second,
	OutageLook:    10 * time.Second,
	HandOverDelay: 1 * time.Millisecond,
	RestDelay:     250 * time.Millisecond,
	Near:          3,
	NearDelay:     300 * time.Millisecond,
	MostSpread:    100,
	AskAllEvery:   16,
	RoomDelay:     160 * time.Millisecond,
	MostRefused:   2,
}

// RetryDelay returns the pause after the given number of failed attempts: a random part of a limit
// that doubles, so that callers that collided do not collide again.
func (p *Policy) RetryDelay(failed int) time.Duration {
	limit := p.MostDelay
	if failed < 10 {
		limit = min(p.FirstDelay<<max(failed-1, 0), p.MostDelay)
	}
	return rand.N(limit) + time.Microsecond
}

// DeniedPause returns the pause after the given number of failed attempts, if a quorum of the nodes
// answered the last one with errors: it doubles, and after a second there are two or three attempts a
// second.
func (p *Policy) DeniedPause(failed int) time.Duration {
	limit := p.DeniedDelay
	if failed < 16 {
		limit = min(p.FirstDelay<<max(failed-1, 0), p.DeniedDelay)
	}
	return limit - rand.N(limit/10+1)
}

// patience returns how long a process in the queue waits for its turn, before it asks again:
// holders die, and messages get lost. left is how long what is in the way lasts; it is negative if
// that has no end, or if its end is not known.
func (p *Policy) patience(left time.Duration) time.Duration {
	if p.endsSoon(left) {
		return left + time.Millisecond
	}
	return p.QueuedDelay*4/5 + rand.N(p.QueuedDelay*2/5+1)
}

// soon bounds an end that a process in the queue waits for. It is longer than any other pause, so
// that no process asks all nodes just when what is in the way ends: not all nodes have ended it
// then.
func (p *Policy) soon() time.Duration { return p.QueuedDelay * 7 / 5 }

// endsSoon reports whether what is in the way ends before a process in the queue would ask again.
func (p *Policy) endsSoon(left time.Duration) bool { return left >= 0 && left < p.soon() }

// room returns how long a process pauses, so that a holder's renewals can get the queue node.
func (p *Policy) room() time.Duration { return p.RoomDelay*3/4 + rand.N(p.RoomDelay/2) }
