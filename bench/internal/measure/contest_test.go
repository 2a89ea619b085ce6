package measure

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/internal/redistest"
)

// broken grants every call.
type broken struct{}

func (broken) Lock(context.Context, string) (contender.Lease, error) { return granted{}, nil }
func (broken) Close() error                                          { return nil }

// granted is free of cost, and cannot be lost.
type granted struct{}

func (granted) Extend(context.Context) error { return nil }
func (granted) Unlock(context.Context) error { return nil }

// failing fails every other call.
type failing struct{ calls atomic.Int64 }

var errFailing = errors.New("no luck")

func (f *failing) Lock(context.Context, string) (contender.Lease, error) {
	if f.calls.Add(1)%2 == 0 {
		return nil, errFailing
	}
	return granted{}, nil
}

func (f *failing) Close() error { return nil }

func mutex(t *testing.T) contender.Locker {
	t.Helper()
	c, ok := contender.ByName("mutex")
	if !ok {
		t.Fatal("no mutex")
	}
	l, err := c.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sell lets a stock of 50 meet 60 attempts.
func sell(t *testing.T, l contender.Locker) (Attempts, History, int) {
	t.Helper()
	plain := redistest.Minis(t, 1)[0].Addr()
	client := redistest.Client(t, plain)
	if err := client.Set(t.Context(), "stock", 50, 0).Err(); err != nil {
		t.Fatal(err)
	}
	c := Contest{Key: "k", Workers: 12, Rounds: 5, Start: Now() + 10*ms, For: time.Minute, Plain: plain, Stock: "stock"}
	a := c.Run(t.Context(), l)
	left, err := client.Get(t.Context(), "stock").Int()
	if err != nil {
		t.Fatal(err)
	}
	return a, NewHistory(c, []int{c.Workers}, []Attempts{a}), left
}

func TestContest(t *testing.T) {
	a, h, left := sell(t, mutex(t))
	if a.Sold != 50 || left != 0 || a.Failed != 0 || len(a.Waiting) != 0 {
		t.Errorf("got %d sold, %d left, %d failed (%s), %d cut off, want 50 sold and nothing else", a.Sold, left, a.Failed, a.Err, len(a.Waiting))
	}
	if h.HandOvers != 60 || h.Overlaps != 0 || h.Jain != 1 {
		t.Errorf("got %d hand-overs, %d overlaps, Jain %v, want 60, 0, 1", h.HandOvers, h.Overlaps, h.Jain)
	}
}

// A lock that does not lock is found out, by the times and by the stock.
func TestContestWithoutALock(t *testing.T) {
	a, h, _ := sell(t, broken{})
	if h.Overlaps == 0 {
		t.Error("no two workers were seen in the section together")
	}
	if a.Sold <= 50 {
		t.Errorf("got %d sold of a stock of 50 without a lock, want more", a.Sold)
	}
}

func TestContestRepeatsWhatFails(t *testing.T) {
	a, h, _ := sell(t, &failing{})
	if h.HandOvers != 60 || a.Failed < 50 || a.Err != errFailing.Error() {
		t.Errorf("got %d hand-overs, %d failed with %q, want 60, about as many, and %q", h.HandOvers, a.Failed, a.Err, errFailing)
	}
}

func TestContestEndsWithItsTime(t *testing.T) {
	plain := redistest.Minis(t, 1)[0].Addr()
	c := Contest{Key: "k", Workers: 4, Start: Now() + 20*ms, For: 1000 * ms, Hold: 10 * ms, Plain: plain}
	a := c.Run(t.Context(), mutex(t))
	h := NewHistory(c, []int{4}, []Attempts{a})
	if h.HandOvers < 1 || h.HandOvers > 101 {
		t.Errorf("got %d hand-overs of 10 ms in 1 s", h.HandOvers)
	}
	if len(a.Waiting) != 4 {
		t.Errorf("got %d that waited in the end, want all 4", len(a.Waiting))
	}
	for _, s := range a.Sections {
		if s.Start < c.Start || s.Start < s.Asked || s.End < s.Start+c.Hold {
			t.Errorf("got %+v in a contest from %v", s, c.Start)
		}
	}
}

func TestCrew(t *testing.T) {
	c := NewCrew(&failing{}, "x", 40, true)
	if done := c.Run(t.Context(), 1000, time.Minute, time.Minute); done != 1000 {
		t.Errorf("got %d cycles, want 1000", done)
	}
	s := c.Summary()
	if s.Lock.Count() != 1000 || s.Cycle.Count() != 1000 || s.Unlock.Count() != 500 || s.Extend.Count() != 500 {
		t.Errorf("got %d locks, %d cycles, %d unlocks, %d extends, want 1000, 1000, 500, 500",
			s.Lock.Count(), s.Cycle.Count(), s.Unlock.Count(), s.Extend.Count())
	}
	if s.Last <= 0 {
		t.Error("no time of the last cycle")
	}
	if s.Failed != 500 || s.Err != errFailing.Error() {
		t.Errorf("got %d failed with %q, want 500 with %q", s.Failed, s.Err, errFailing)
	}
	c.Reset()
	if s := c.Summary(); s.Lock.Count() != 0 || s.Failed != 0 || s.Err != "" || s.Last != 0 {
		t.Errorf("got %+v after a reset", s)
	}
	if done := c.Run(t.Context(), 1000, 0, time.Minute); done != 0 {
		t.Errorf("got %d cycles in no time", done)
	}
}

// stuck has no answer for the key of the first goroutine until the context ends.
type stuck struct{}

func (stuck) Lock(ctx context.Context, key string) (contender.Lease, error) {
	if !strings.HasSuffix(key, ":0") {
		return granted{}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (stuck) Close() error { return nil }

// A call that is stuck ends when nothing else happens any more, and with it the run.
func TestCrewWithAStuckGoroutine(t *testing.T) {
	for size, want := range map[int]int{1: 1, 2: 100} {
		c := NewCrew(stuck{}, "x", size, false)
		if done := c.Run(t.Context(), 100, time.Hour, 200*ms); done != want {
			t.Errorf("%d goroutines: got %d cycles, want %d", size, done, want)
		}
		if s := c.Summary(); s.Failed > 1 {
			t.Errorf("%d goroutines: got %d failed, want one at most", size, s.Failed)
		}
	}
}
