package masters_test

import (
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
