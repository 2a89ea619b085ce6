// Package measure lets callers take turns with locks, and says what that took.
package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/d0720281/redlock/bench/internal/contender"
)

// Load is callers that lock, hold and unlock, again and again.
type Load struct {
	Lockers []contender.Locker // each as a process has it
	Callers int                // of each Locker
	Key     func(*Caller) string
	Hold    time.Duration
	Extend  bool // a turn extends its lease, too

	For   time.Duration // no turn begins later
	Turns int           // no more turns begin, in all; 0: as many as the time allows

	// Grace is how long a call may take after For. Some contenders wait for ever for a server that
	// does not answer: then the call is cancelled, and has failed. With 0 the wait of callers that
	// have no lease by then is cut off, as callers of one key always wait.
	Grace time.Duration

	// Exclusive says that no two callers may have a key at a time. Then each key is followed.
	Exclusive bool
}

// Caller is one caller, as it chooses a key.
type Caller struct {
	Locker int // by index
	Number int // among all callers
	*rand.Rand

	own string // its key, see Own
}

// Own gives each caller a key of its own.
func Own(name string) func(*Caller) string {
	return func(c *Caller) string {
		if c.own == "" { // once, as a turn should allocate nothing here
			c.own = fmt.Sprint(name, ":", c.Number)
		}
		return c.own
	}
}

// Each gives each turn the next of n keys.
func Each(name string, n int64) func(*Caller) string {
	var next atomic.Int64
	return func(*Caller) string { return fmt.Sprint(name, ":", next.Add(1)%n) }
}

// Same gives all callers the same key.
func Same(name string) func(*Caller) string { return func(*Caller) string { return name } }

// Result has the figures of a [Load].
type Result struct {
	Turns  []int         // of each caller, those of the first Locker first
	Failed int           // calls
	Err    error         // one of their errors
	Took   time.Duration // until the last turn without a failure ended, or all of For if a wait was cut off

	// Lock is how long each caller waited for its turn, including calls that failed before, and waits
	// that were cut off. Cycle is Lock, Extend and Unlock together.
	Lock, Extend, Unlock, Cycle Latency

	Held    time.Duration // by all turns together
	Pause   time.Duration // the longest time in which no caller got a lease
	CPU     time.Duration // of this process, the kernel's part included
	Mallocs uint64

	// Of an exclusive load:
	Overlaps int     // leases granted while another caller had one on the same key: the lock did not lock
	Falls    int     // fencing tokens that did not rise
	Changes  int     // turns after a turn of another Locker
	Across   Latency // of these: from the call of Unlock until the next caller had its lease
}

// Done is the number of turns.
func (r Result) Done() (n int) {
	for _, turns := range r.Turns {
		n += turns
	}
	return n
}

// Rate is the turns in a second.
func (r Result) Rate() float64 { return float64(r.Done()) / max(r.Took, 1).Seconds() }

// run is a load in progress.
type run struct {
	Load
	waiting context.Context // of Lock
	start   time.Time
	begun   atomic.Int64

	mu   sync.Mutex
	keys map[string]*followed // guarded by mu, as what follows
	sum  Result
	got  Latency // when leases were granted
	cut  bool    // a wait was cut off
}

// followed is a key of an exclusive load.
type followed struct {
	inside int // callers
	locker int // of the last turn
	left   time.Time
	fence  int64
}

// Run returns when the load is over.
func (l Load) Run(ctx context.Context) Result {
	r := &run{Load: l, keys: map[string]*followed{}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	var cancel context.CancelFunc
	r.waiting, cancel = context.WithTimeout(ctx, l.For+l.Grace)
	defer cancel()
	r.start = time.Now()
	r.sum.Turns = make([]int, len(l.Lockers)*l.Callers)
	var callers sync.WaitGroup
	for number := range r.sum.Turns {
		c := &Caller{Locker: number / l.Callers, Number: number, Rand: rand.New(rand.NewPCG(1, uint64(number)))}
		callers.Go(func() { r.call(context.WithoutCancel(ctx), c) })
	}
	callers.Wait()
	r.sum.CPU = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	r.sum.Mallocs = after.Mallocs - before.Mallocs
	return r.result()
}

// result sorts what all callers noted.
func (r *run) result() Result {
	s := &r.sum
	for _, l := range []Latency{s.Lock, s.Extend, s.Unlock, s.Cycle, s.Across, r.got} {
		l.sort()
	}
	last := time.Duration(0)
	for _, at := range r.got {
		s.Pause, last = max(s.Pause, at-last), at
	}
	if r.cut {
		s.Took, s.Pause = r.For, max(s.Pause, r.For-last)
	}
	return *s
}

// call makes the turns of one caller.
func (r *run) call(ctx context.Context, c *Caller) {
	var mine Result // Turns stays empty
	var got Latency
	turns := 0
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s := &r.sum
		s.Turns[c.Number] = turns
		s.Failed, s.Held, s.Took = s.Failed+mine.Failed, s.Held+mine.Held, max(s.Took, mine.Took)
		if mine.Err != nil {
			s.Err = mine.Err
		}
		s.Lock, s.Extend, s.Unlock = append(s.Lock, mine.Lock...), append(s.Extend, mine.Extend...), append(s.Unlock, mine.Unlock...)
		s.Cycle, r.got = append(s.Cycle, mine.Cycle...), append(r.got, got...)
	}()
	fail := func(err error) {
		mine.Failed++
		mine.Err = err
	}
	asked := time.Now()
	for r.goesOn() {
		key := r.Key(c)
		lease, err := r.Lockers[c.Locker].Lock(r.waiting, key)
		now := time.Now()
		lock := now.Sub(asked)
		if r.waiting.Err() != nil { // a mutex does not check it
			mine.Lock = append(mine.Lock, lock)
			if err == nil {
				_ = lease.Unlock(ctx)
			}
			if r.Grace > 0 {
				fail(r.waiting.Err())
			}
			r.mu.Lock()
			r.cut = r.cut || r.Grace == 0
			r.mu.Unlock()
			return
		}
		if err != nil { // the next call waits on
			fail(err)
			time.Sleep(time.Millisecond)
			continue
		}
		got = append(got, now.Sub(r.start))
		r.enter(key, c.Locker, lease)
		held := time.Now()
		if r.Hold > 0 {
			time.Sleep(r.Hold)
		}
		mine.Held += time.Since(held)
		var extend time.Duration
		if r.Extend {
			held = time.Now()
			err = lease.Extend(ctx)
			extend = time.Since(held)
			mine.Extend = append(mine.Extend, extend)
		}
		r.leave(key, c.Locker)
		held = time.Now()
		err = errors.Join(err, lease.Unlock(ctx))
		asked = time.Now()
		unlock := asked.Sub(held)
		turns++
		mine.Lock, mine.Unlock = append(mine.Lock, lock), append(mine.Unlock, unlock)
		mine.Cycle = append(mine.Cycle, lock+extend+unlock)
		if err != nil {
			fail(err)
			continue
		}
		mine.Took = asked.Sub(r.start)
	}
}

// goesOn reports whether another turn begins.
func (r *run) goesOn() bool {
	return (r.Turns == 0 || r.begun.Add(1) <= int64(r.Turns)) && time.Since(r.start) < r.For
}

// enter notes that a caller has a lease, after Lock has returned.
func (r *run) enter(key string, locker int, lease contender.Lease) {
	if !r.Exclusive {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k, again := r.keys[key]
	if !again {
		k = &followed{locker: locker}
		r.keys[key] = k
	}
	if k.inside > 0 {
		r.sum.Overlaps++
	} else if k.locker != locker {
		r.sum.Changes++
		r.sum.Across = append(r.sum.Across, time.Since(k.left))
	}
	k.inside++
	k.locker = locker
	if f, ok := lease.(contender.Fenced); ok {
		if f.Fence() <= k.fence {
			r.sum.Falls++
		}
		k.fence = max(k.fence, f.Fence())
	}
}

// leave notes that a caller gives its lease back, before it calls Unlock.
func (r *run) leave(key string, locker int) {
	if !r.Exclusive {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[key]
	k.inside--
	k.locker, k.left = locker, time.Now()
}

// cpuTime returns the processor time of this process, in its own code and in the kernel. The
// servers are not included.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic("measure: getrusage: " + err.Error()) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// CPU returns the processor time that this process spends while do runs.
func CPU(do func()) time.Duration {
	before := cpuTime()
	do()
	return cpuTime() - before
}
