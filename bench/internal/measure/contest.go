package measure

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/bench/internal/contender"
)

// Contest has workers of one process that want the same key, again and again, and access a
// plain Redis while they have it.
type Contest struct {
	Key     string
	Workers int
	Rounds  int           // for each worker; 0: as many as time allows
	Start   time.Duration // by the shared clock
	For     time.Duration
	Plain   string        // a server that is no master
	Hold    time.Duration // in addition to the critical section's own time
	Stock   string        // the key of a stock of which a section takes one; empty: a section is one GET
}

// Section is one worker's critical section, by the shared clock.
type Section struct {
	Worker int           `json:"w"`
	Asked  time.Duration `json:"a"`
	Start  time.Duration `json:"s"` // Lock returned
	End    time.Duration `json:"e"` // Unlock was called
	Fence  int64         `json:"f,omitempty"`
}

// Attempts is the result of a contest in one process.
type Attempts struct {
	Sections []Section
	Waiting  []time.Duration // of workers that had no key at the end: how long they had waited
	Outcome
}

// Outcome is what the attempts came to, besides their sections.
type Outcome struct {
	Failed int    // failed calls, each repeated or given up
	Err    string // one of the errors
	Sold   int
	CPU    time.Duration // of the processes
}

// arena is a contest in progress.
type arena struct {
	Contest
	locker contender.Locker
	plain  *redis.Client

	mu   sync.Mutex
	seen Attempts // guarded by mu
}

// note adds to the result.
func (a *arena) note(add func(*Attempts)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add(&a.seen)
}

func (a *arena) failed(err error) {
	a.note(func(seen *Attempts) {
		seen.Failed++
		seen.Err = err.Error()
	})
}

// plainClient connects to the Redis of the critical section.
func plainClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 4 * runtime.NumCPU()})
}

// Run waits for the start and returns when the time is over, or all rounds are done.
func (c Contest) Run(ctx context.Context, l contender.Locker) Attempts {
	a := &arena{Contest: c, locker: l, plain: plainClient(c.Plain)}
	defer a.plain.Close()
	_ = a.plain.Ping(ctx).Err() // this connects; an error will show later
	rounds := c.Rounds
	if rounds == 0 {
		rounds = math.MaxInt
	}
	waiting, cancel := context.WithTimeout(ctx, c.Start+c.For-Now())
	defer cancel()
	var workers sync.WaitGroup
	time.Sleep(c.Start - Now())
	cpu := CPUTime()
	for id := range c.Workers {
		workers.Go(func() {
			for range rounds {
				if !a.round(ctx, waiting, id) {
					return
				}
			}
		})
	}
	workers.Wait()
	a.seen.CPU = CPUTime() - cpu
	return a.seen
}

// round is one worker's round. It returns false when the time is over. That ends waiting, but
// not ctx.
func (a *arena) round(ctx, waiting context.Context, id int) bool {
	s := Section{Worker: id, Asked: Now()}
	lease := a.lock(waiting)
	s.Start = Now()
	if waiting.Err() != nil { // a mutex does not check it
		if lease != nil {
			_ = lease.Unlock(ctx)
		}
		a.note(func(seen *Attempts) { seen.Waiting = append(seen.Waiting, s.Start-s.Asked) })
		return false
	}
	if f, ok := lease.(contender.Fenced); ok {
		s.Fence = f.Fence()
	}
	sold, err := a.section(ctx, a.plain)
	s.End = Now()
	if err := errors.Join(err, lease.Unlock(ctx)); err != nil {
		a.failed(err)
	}
	a.note(func(seen *Attempts) {
		seen.Sections = append(seen.Sections, s)
		if sold {
			seen.Sold++
		}
	})
	return true
}

// lock asks until it has the key. It returns nil if the time is over before.
func (a *arena) lock(waiting context.Context) contender.Lease {
	for waiting.Err() == nil {
		lease, err := a.locker.Lock(waiting, a.Key)
		if err == nil {
			return lease
		}
		if waiting.Err() == nil {
			a.failed(err)
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// section is protected by the key: a GET to the plain Redis, and with a stock also the
// decrement, as two commands that only the lock makes atomic. A stock that compared fencing
// tokens would hide a lock that fails.
func (c Contest) section(ctx context.Context, plain *redis.Client) (sold bool, err error) {
	key := c.Stock
	if key == "" {
		key = c.Key
	}
	left, err := plain.Get(ctx, key).Int()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	if err == nil && c.Stock != "" && left > 0 {
		sold = true
		err = plain.Set(ctx, key, left-1, 0).Err()
	}
	if c.Hold > 0 {
		time.Sleep(c.Hold)
	}
	return sold, err
}

// Section measures the critical section without contention.
func (c Contest) Section(ctx context.Context, n int) (Latency, error) {
	plain := plainClient(c.Plain)
	defer plain.Close()
	took := NewLatency()
	for range n {
		start := time.Now()
		if _, err := c.section(ctx, plain); err != nil {
			return took, err
		}
		took.Record(time.Since(start))
	}
	return took, nil
}
