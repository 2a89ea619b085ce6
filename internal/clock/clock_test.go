package clock

import (
	"math"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"
)

// clockOf is a source that a test moves.
type clockOf func() time.Duration

func (c clockOf) Now() time.Duration { return c() }

// What the clock itself showed does not move when it is found to have stood still, and
// leases are judged by the sum.
//
// Source: ALGORITHM section 9 ("Add the median step to the elapsed time").
func TestLeaseClock(t *testing.T) {
	raw := 5 * time.Second
	c := NewLease(clockOf(func() time.Duration { return raw }))
	if c.Now() != raw || c.Shown(Instant(raw)) != Instant(raw) {
		t.Errorf("got %v, shown as %v, want %v for both", c.Now(), c.Shown(Instant(raw)), raw)
	}
	for range 2 {
		c.StoodStill(time.Minute)
		raw += time.Second
		if got := c.Shown(Instant(c.Now())); got != Instant(raw) {
			t.Errorf("shown: got %v, want %v", time.Duration(got), raw)
		}
	}
	if want := raw + 2*time.Minute; c.Now() != want {
		t.Errorf("now: got %v, want %v", c.Now(), want)
	}
	if got, want := c.Shown(Instant(c.Now()).Add(time.Second)), Instant(raw+time.Second); got != want {
		t.Errorf("what it will show: got %d, want %d", got, want)
	}
	if c.Shown(math.MinInt64) != math.MinInt64 {
		t.Error("the start of the scale has wrapped")
	}
}

// A source that counts from a moment to come shows negative times. Instants are not negative.
func TestLeaseClockOfANegativeSource(t *testing.T) {
	for _, first := range []time.Duration{math.MinInt64, -27 * 365 * 24 * time.Hour, -1} {
		raw := first
		c := NewLease(clockOf(func() time.Duration { return raw }))
		if got := c.Instant(); got != 0 {
			t.Errorf("source at %v: got instant %d, want 0", raw, got)
		}
		raw += time.Minute
		if got := c.Instant(); got != Instant(time.Minute) {
			t.Errorf("source at %v: got instant %d, want a minute", raw, got)
		}
	}
}

// Instants stop at the ends of the scale instead of wrapping.
func TestInstantSaturates(t *testing.T) {
	const least = Instant(math.MinInt64)
	for _, test := range []struct {
		i    Instant
		d    time.Duration
		want Instant
	}{
		{1, 2, 3}, {1, -2, -1}, {0, 0, 0},
		{Never, 0, Never}, {Never, 1, Never}, {Never, -1, Never - 1}, {Never - 1, 1, Never}, {Never - 1, 2, Never},
		{Never, math.MaxInt64, Never}, {Never, math.MinInt64, -1}, {0, math.MaxInt64, Never}, {1, math.MaxInt64, Never},
		{least, 0, least}, {least, -1, least}, {least, 1, least + 1}, {least + 1, -1, least}, {least + 1, -2, least},
		{least, math.MinInt64, least}, {0, math.MinInt64, least}, {-1, math.MinInt64, least}, {least, math.MaxInt64, -1},
	} {
		if got := test.i.Add(test.d); got != test.want {
			t.Errorf("%d.Add(%d): got %d, want %d", test.i, test.d, got, test.want)
		}
	}
	for _, test := range []struct {
		i, j Instant
		want time.Duration
	}{
		{3, 1, 2}, {1, 3, -2}, {5, 5, 0}, {Never, Never, 0}, {least, least, 0},
		{Never, 0, math.MaxInt64}, {Never, -1, math.MaxInt64}, {Never, least, math.MaxInt64},
		{0, Never, -math.MaxInt64}, {-1, Never, math.MinInt64}, {-2, Never, math.MinInt64}, {least, Never, math.MinInt64},
		{least, 0, math.MinInt64}, {least, 1, math.MinInt64}, {0, least, math.MaxInt64}, {-1, least, math.MaxInt64},
	} {
		if got := test.i.Sub(test.j); got != test.want {
			t.Errorf("%d.Sub(%d): got %d, want %d", test.i, test.j, got, test.want)
		}
	}
}

// In a bubble the default clock is that of the bubble. Outside it goes on while the machine is suspended, where there is such a clock.
func TestSystem(t *testing.T) {
	_, runtime := System().(runtimeClock)
	if want := goruntime.GOOS != "linux"; runtime != want {
		t.Errorf("outside of a bubble: got the clock of the runtime: %t, want %t", runtime, want)
	}
	synctest.Test(t, func(t *testing.T) {
		c := System()
		before := c.Now()
		time.Sleep(time.Hour)
		if got := c.Now() - before; got != time.Hour {
			t.Errorf("after an hour in a bubble: got %v", got)
		}
	})
}

// The clock that goes on in suspend asks the system once a second, and notices a suspend with the first reading after it, also
// if the wall clock was set meanwhile. It never goes back, whatever comes in between.
//
// Source: ALGORITHM section 11.
func TestBootClock(t *testing.T) {
	var wall, mono, boot, delay time.Duration
	asked := 0
	pass := func(d time.Duration) { wall, mono, boot = wall+d, mono+d, boot+d }
	sleep := func(d time.Duration) { wall, boot = wall+d, boot+d }
	boot, wall = 50*time.Hour, 1e6*time.Hour
	c := &bootClock{boot: func() time.Duration {
		asked++
		defer pass(delay)
		return boot
	}, both: func() (time.Duration, time.Duration) { return wall, mono }}
	var last time.Duration
	want := func(what string, times int) {
		t.Helper()
		asked = 0
		if got := c.Now(); asked != times || got > boot || boot-got >= apartAt && delay < apartAt || got < last {
			t.Errorf("%s: got %v after %v, and %d calls of the system; want %v, and %d", what, got, last, asked, boot, times)
		} else {
			last = got
		}
	}
	want("first", 1)
	for range 9 {
		pass(100 * time.Millisecond)
		want("within a second", 0)
	}
	pass(100 * time.Millisecond)
	want("after a second", 1)
	for _, d := range []time.Duration{200 * time.Microsecond, time.Minute, 1000 * time.Hour} {
		sleep(d)
		want("after a suspend", 1)
		want("again", 0)
		sleep(d)
		wall -= d / 2
		want("after a suspend, and the wall clock was set", 1)
		wall += d
		want("the wall clock was set", 1)
	}
	delay = time.Millisecond
	sleep(time.Minute)
	want("interrupted", mostReads)
	want("interrupted again", mostReads)
	delay = 0
	want("not interrupted", 1)
	want("at last", 0)
}
