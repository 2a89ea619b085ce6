package measure

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/internal/redistest"
)

// lease is a lock of these tests: a context that ends is all that keeps it from being granted.
type lease struct {
	fence   int64
	release func()
}

func (l lease) Fence() int64                 { return l.fence }
func (l lease) Extend(context.Context) error { return nil }
func (l lease) Unlock(context.Context) error {
	if l.release != nil {
		l.release()
	}
	return nil
}

type locker func(ctx context.Context, key string) (contender.Lease, error)

func (l locker) Lock(ctx context.Context, key string) (contender.Lease, error) { return l(ctx, key) }
func (l locker) Close() error                                                  { return nil }

// exclusive makes a lock of one holder, with rising tokens. Handing it over takes a while.
func exclusive(handOver time.Duration) locker {
	turn, fence := make(chan bool, 1), int64(0)
	return func(ctx context.Context, _ string) (contender.Lease, error) {
		select {
		case turn <- true:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		time.Sleep(handOver)
		fence++
		return lease{fence, func() { <-turn }}, nil
	}
}

// broken grants every call, with the same token.
func broken(context.Context, string) (contender.Lease, error) { return lease{fence: 1}, nil }

var errNoLuck = errors.New("no luck")

const ms = time.Millisecond

func TestExclusiveLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := exclusive(1 * ms)
		r := Load{
			Lockers: []contender.Locker{l, l}, Callers: 1, Key: Same("k"), Hold: 9 * ms, For: 100 * ms, Exclusive: true,
		}.Run(t.Context())
		if r.Done() != 10 || r.Changes != 9 || r.Overlaps+r.Falls+r.Failed != 0 || Jain(r.Turns) != 1 {
			t.Errorf("got %+v, want 10 turns, each after one of the other caller", r)
		}
		if r.Took != 100*ms || r.Held != 90*ms || r.Pause != 10*ms || r.Rate() != 100 {
			t.Errorf("got %v with %v held, a pause of %v, rate %v, want 100 ms, 90 ms, 10 ms, 100", r.Took, r.Held, r.Pause, r.Rate())
		}
		if r.Across.At(100) != 1*ms || r.Lock.At(0) != 1*ms || r.Lock.At(50) != 11*ms || r.Cycle.At(100) != 11*ms {
			t.Errorf("got %v across, %v to lock, %v a cycle, want 1, 1 and 11, 11 ms", r.Across.At(100), r.Lock, r.Cycle)
		}
	})
}

// A lock that does not lock is found out. A load of its own keys has nothing to find.
func TestLoadWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Load{Lockers: []contender.Locker{locker(broken)}, Callers: 3, Key: Same("k"), Hold: 5 * ms, Turns: 30, For: time.Hour, Exclusive: true}
		if r := l.Run(t.Context()); r.Done() != 30 || r.Overlaps == 0 || r.Falls != 29 {
			t.Errorf("got %d turns, %d overlaps, %d falls, want 30, some, 29", r.Done(), r.Overlaps, r.Falls)
		}
		l.Key = Own("k")
		if r := l.Run(t.Context()); r.Overlaps != 0 || r.Across != nil {
			t.Errorf("own keys: got %d overlaps, want none", r.Overlaps)
		}
	})
}

// A call that fails is repeated, and the wait goes on.
func TestLoadRepeatsWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		every := func(context.Context, string) (contender.Lease, error) {
			if time.Sleep(2 * ms); calls.Add(1)%2 == 1 {
				return nil, errNoLuck
			}
			return lease{}, nil
		}
		r := Load{Lockers: []contender.Locker{locker(every)}, Callers: 1, Key: Same("k"), Extend: true, For: 51 * ms}.Run(t.Context())
		if r.Done() != 10 || r.Failed != 10 || !errors.Is(r.Err, errNoLuck) {
			t.Errorf("got %d turns and %d failed with %v, want 10 of each", r.Done(), r.Failed, r.Err)
		}
		if r.Lock.At(50) != 5*ms || len(r.Extend) != 10 || len(r.Unlock) != 10 {
			t.Errorf("got %v to lock, %d extended, %d unlocked, want 5 ms, 10, 10", r.Lock.At(50), len(r.Extend), len(r.Unlock))
		}
	})
}

// A caller that starves counts with its wait, and a call that is stuck ends and has failed.
func TestLoadEndsWithItsTime(t *testing.T) {
	first := func(ctx context.Context, key string) (contender.Lease, error) {
		if strings.HasSuffix(key, ":0") {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		time.Sleep(ms)
		return lease{}, nil
	}
	for grace, failed := range map[time.Duration]int{0: 0, 3 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := Load{Lockers: []contender.Locker{locker(first)}, Callers: 2, Key: Own("k"), For: 50 * ms, Grace: grace}.Run(t.Context())
			if r.Turns[0] != 0 || r.Done() < 49 || r.Failed != failed || r.Lock.At(100) != 50*ms+grace || r.Took > 50*ms {
				t.Errorf("grace %v: got %v turns in %v, %d failed, the longest wait %v", grace, r.Turns, r.Took, r.Failed, r.Lock.At(100))
			}
		})
	}
}

// If the last wait was cut off, nothing happened until then: a load that gets stuck after its first turn has no high rate.
func TestLoadThatGetsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := false
		once := func(ctx context.Context, _ string) (contender.Lease, error) {
			if !granted {
				granted = true
				return lease{}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r := Load{Lockers: []contender.Locker{locker(once)}, Callers: 1, Key: Same("k"), Hold: 5 * ms, For: 50 * ms}.Run(t.Context())
		if r.Done() != 1 || r.Took != 50*ms || r.Pause != 50*ms || r.Rate() != 20 {
			t.Errorf("got %d turns in %v, a pause of %v, rate %v, want 1 in 50 ms, 50 ms, 20", r.Done(), r.Took, r.Pause, r.Rate())
		}
	})
}

func TestLatency(t *testing.T) {
	var l Latency
	if l.At(99) != 0 {
		t.Error("a latency of nothing")
	}
	for i := range 200 {
		l = append(l, time.Duration(200-i))
	}
	l.sort()
	for percent, want := range map[float64]time.Duration{0: 1, 50: 100, 99: 198, 99.1: 199, 100: 200} {
		if got := l.At(percent); got != want {
			t.Errorf("p%v of 1 to 200: got %d, want %d", percent, got, want)
		}
	}
}

func TestJain(t *testing.T) {
	for _, test := range []struct {
		shares []int
		want   float64
	}{{nil, 0}, {[]int{0, 0}, 0}, {[]int{3}, 1}, {[]int{7, 7, 7}, 1}, {[]int{4, 0}, 0.5}, {[]int{1, 2, 3}, 36.0 / 42}} {
		if got := Jain(test.shares); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%v: got %v, want %v", test.shares, got, test.want)
		}
	}
}

// A script is one command, whatever it calls.
func TestUsage(outer *testing.T) {
	t := redistest.Timed(outer)
	addr := redistest.Masters(t, 1)[0].Addr()
	s, err := NewServers(t.Context(), []string{addr})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := redistest.Client(t, addr)
	if err := client.Ping(t.Context()).Err(); err != nil { // count the commands of connecting
		t.Fatal(err)
	}
	usage := func(sent ...string) Usage {
		t.Helper()
		u, err := s.Usage(t.Context(), sent)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	inside, all := usage(), usage("set")
	for range 10 {
		if err := client.Eval(t.Context(), "for i = 1, 5 do redis.call('SET', KEYS[1], i) end", []string{"k"}).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
		if err := client.Set(t.Context(), "k", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := usage().Minus(inside); got.Commands != 10 || got.Bytes < 10*50 || got.CPU <= 0 || got.CPU > time.Minute {
		t.Errorf("got %+v, want 10 commands, all of them scripts, with their bytes and some processor time", got)
	}
	// A client that sends SET and also has it in scripts cannot be counted: that is why no
	// contender does both.
	if got := usage("set").Minus(all); got.Commands != 10+10*5+10 {
		t.Errorf("got %d, want every SET", got.Commands)
	}
	if _, err := NewServers(t.Context(), []string{"127.0.0.1:1"}); err == nil {
		t.Error("no error without a server")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Again(m)) }
