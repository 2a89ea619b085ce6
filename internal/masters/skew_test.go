package masters_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// skewed starts a master whose clock can be moved.
func skewed(t testing.TB) (*masters.Process, *redis.Client) {
	t.Helper()
	p := redistest.Skewed(t, 1)[0]
	return p, redistest.Client(t, p.Addr())
}

// span bounds the time of an event, by the clock of this process.
type span struct{ from, to time.Time }

func during(f func()) span {
	from := time.Now().Round(0)
	f()
	return span{from, time.Now().Round(0)}
}

// since returns the shortest and the longest time from an instant in s to one in t.
func (t span) since(s span) (least, most time.Duration) {
	return t.from.Sub(s.to), t.to.Sub(s.from)
}

// rounding is the largest error by the microseconds of a clock and of its file.
const rounding = 3 * time.Microsecond

// wantSkew checks that the server's clock is between least and most from ours.
func wantSkew(t testing.TB, c *redis.Client, least, most time.Duration) {
	t.Helper()
	var node time.Time
	at := during(func() { node = nodeTime(t, c) })
	low, high := node.Sub(at.to), node.Sub(at.from)
	if high < least-rounding || low > most+rounding {
		t.Errorf("the clock is between %v and %v from ours, want %v to %v", low, high, least, most)
	}
}

func nodeTime(t testing.TB, c *redis.Client) time.Time {
	t.Helper()
	node, err := c.Time(t.Context()).Result()
	ok(t, err)
	return node
}

func TestStepClock(outer *testing.T) {
	t := redistest.Timed(outer)
	p, c := skewed(t)
	wantSkew(t, c, 0, 0)
	if got := configured(t, p.Addr(), "jemalloc-bg-thread"); got != "no" {
		t.Errorf("jemalloc-bg-thread: got %q, want no: its threads spin on a slow clock", got)
	}
	const ttl = 10 * time.Second
	for _, step := range []time.Duration{8 * time.Second, -30 * time.Second, 11 * time.Second, 1234567 * time.Microsecond} {
		t.Run(step.String(), func(t *redistest.T) {
			set := during(func() { ok(t, c.Set(t.Context(), "k", "v", ttl).Err()) })
			ok(t, p.StepClock(step))
			wantSkew(t, c, step, step)

			var left time.Duration
			asked := during(func() {
				var err error
				left, err = c.PTTL(t.Context(), "k").Result()
				ok(t, err)
			})
			least, most := asked.since(set)
			switch {
			case step > ttl:
				if left != -2 { // the reply for no such key
					t.Errorf("got %v left, want an expired key", left)
				}
			case left < ttl-step-most-time.Millisecond || left > ttl-step-least+time.Millisecond:
				t.Errorf("got %v left of %v after %v to %v", left, ttl-step, least, most)
			}
			ok(t, p.StepClock(-step))
			wantSkew(t, c, 0, 0)
		})
	}
}

func TestDriftClock(outer *testing.T) {
	t := redistest.Timed(outer)
	p, c := skewed(t)
	const step = time.Minute // the drift starts from the stepped clock
	ok(t, p.StepClock(step))
	least, most := step, step // of the skew, until the latest change of the rate
	var changed span
	rate := 0.0
	gained := func(now span) (time.Duration, time.Duration) {
		a, b := now.since(changed)
		a, b = time.Duration(float64(a)*rate), time.Duration(float64(b)*rate)
		return least + min(a, b), most + max(a, b)
	}
	for _, ppm := range []int{80_000, -50_000, 1_000_000, -1_000_000, 0} {
		now := during(func() { ok(t, p.DriftClock(ppm)) })
		if !changed.from.IsZero() {
			least, most = gained(now)
		}
		changed, rate = now, float64(ppm)/1e6
		for range 3 {
			time.Sleep(20 * time.Millisecond) // the clock gains
			var node time.Time
			at := during(func() { node = nodeTime(t, c) })
			low, high := gained(at)
			if node.Before(at.from.Add(low-rounding)) || node.After(at.to.Add(high+rounding)) {
				t.Errorf("%d ppm: the clock is %v from ours, want %v to %v", ppm, node.Sub(at.to), low, high)
			}
		}
	}
}

// An offset must never be combined with another rate: the error would be as large as the
// age of the clock.
func TestClockChangesAreAtomic(outer *testing.T) {
	t := redistest.Timed(outer)
	p, c := skewed(t)
	time.Sleep(100 * time.Millisecond) // the age of the clock
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = errors.Join(p.DriftClock(1_000_000), p.DriftClock(-1_000_000))
		}
		done <- err
	}()
	for range 2000 {
		// No rate can move the clock by more than the time that has passed.
		node := nodeTime(t, c)
		if time.Until(node) > time.Since(began)+rounding || node.Before(began.Add(-rounding)) {
			t.Errorf("%v after it was true, the clock is %v from ours", time.Since(began), time.Until(node))
		}
	}
	cancel()
	ok(t, <-done)
}

func TestClockOutlastsTheServer(outer *testing.T) {
	t := redistest.Timed(outer)
	p, c := skewed(t)
	ok(t, p.StepClock(time.Hour))
	ok(t, p.Restart())
	wantSkew(t, c, time.Hour, time.Hour)
	ok(t, p.Kill())
	ok(t, p.StepClock(time.Minute))
	ok(t, p.Restart())
	wantSkew(t, c, time.Hour+time.Minute, time.Hour+time.Minute)
	ok(t, p.Pause())
	ok(t, p.StepClock(-time.Hour))
	ok(t, p.Resume())
	wantSkew(t, c, time.Minute, time.Minute)

	dir := configured(t, p.Addr(), "dir")
	ok(t, p.Close())
	wantNoDir(t, dir)
	if err := p.StepClock(time.Second); !errors.Is(err, masters.ErrClosed) {
		t.Errorf("step: got %v, want ErrClosed", err)
	}
	if err := p.DriftClock(1); !errors.Is(err, masters.ErrClosed) {
		t.Errorf("drift: got %v, want ErrClosed", err)
	}
}
