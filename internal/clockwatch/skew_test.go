package clockwatch

import (
	"math"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// The distance of a node is the distance from the median of all known clocks, which must be a
// quorum; of two medians the farther one counts.
//
// Source: ALGORITHM section 9 ("Distance of a node's clock from the median of all").
func TestSkew(t *testing.T) {
	const ms = time.Millisecond
	const unknown = time.Duration(math.MaxInt64)
	for _, test := range []struct {
		at   []time.Duration // of each node's clock from the true time
		want []time.Duration
	}{
		{[]time.Duration{time.Hour}, []time.Duration{0}},
		{[]time.Duration{unknown}, nil},
		{[]time.Duration{0, 10 * time.Second}, []time.Duration{-10 * time.Second, 10 * time.Second}},
		{[]time.Duration{0, unknown}, nil},
		{[]time.Duration{0, 3 * ms, time.Hour}, []time.Duration{-3 * ms, 0, time.Hour - 3*ms}},
		{[]time.Duration{-time.Hour, 0, 3 * ms}, []time.Duration{-time.Hour, 0, 3 * ms}},
		{[]time.Duration{time.Hour, unknown, 0}, []time.Duration{time.Hour, unknown, -time.Hour}},
		{[]time.Duration{time.Hour, unknown, unknown}, nil},
		{[]time.Duration{4 * ms, 0, 8 * ms, -6 * ms}, []time.Duration{4 * ms, -4 * ms, 8 * ms, -10 * ms}},
		{[]time.Duration{4 * ms, unknown, 8 * ms, -6 * ms}, []time.Duration{0, unknown, 4 * ms, -10 * ms}},
		{[]time.Duration{4 * ms, 2 * ms, unknown, unknown}, nil},
		{[]time.Duration{5 * ms, 4 * ms, 3 * ms, 2 * ms, ms}, []time.Duration{2 * ms, ms, 0, -ms, -2 * ms}},
		{[]time.Duration{time.Hour, 0, -time.Minute, unknown, unknown}, []time.Duration{time.Hour, 0, -time.Minute, unknown, unknown}},
		{[]time.Duration{time.Hour, 0, unknown, unknown, unknown}, nil},
	} {
		w := watchOf(len(test.at))
		for i, off := range test.at {
			if off == unknown {
				continue
			}
			// Read at different times; an earlier standstill does not matter.
			read := time.Hour - time.Duration(i)*time.Second
			w.clocks[i].best.Store(&sample{micros: 1e15 + (read + off).Microseconds(), at: clock.Instant(read), err: ms})
		}
		w.conf.Clock.StoodStill(time.Minute)
		for i := range test.at {
			want := unknown
			if test.want != nil {
				want = test.want[i]
			}
			far, _, known := w.Skew(i, w.Moment(w.conf.Clock.Instant()))
			got := far
			if !known {
				got = unknown
			}
			if got != want {
				t.Errorf("clocks off by %v, node %d: got %v, want %v", test.at, i, got, want)
			}
		}
	}
}

// Of two clocks in the middle that are too far apart, neither is the median, and neither is certainly wrong. A
// reading that is off by more than half of the bound does not count.
//
// Source: ALGORITHM section 9.
func TestMiddle(t *testing.T) {
	const far, now = 6 * time.Second, int64(1e15)
	read := func(doubt time.Duration, offs ...time.Duration) (*Watch, Moment) {
		w := watchOf(len(offs))
		for i, off := range offs {
			w.clocks[i].best.Store(&sample{micros: now + off.Microseconds(), at: clock.Instant(time.Hour), err: doubt})
		}
		return w, w.Moment(w.conf.Clock.Instant())
	}
	for _, test := range []struct {
		name            string
		offs            []time.Duration
		tooFar, certain bool // the last clock
		median          bool
	}{
		{"two clocks, near", []time.Duration{0, 0}, false, false, true},
		{"two clocks, far", []time.Duration{0, far}, true, false, false},
		{"three clocks", []time.Duration{0, 0, far}, true, true, true},
	} {
		w, at := read(0, test.offs...)
		err, certain := w.TooFar(len(test.offs)-1, at)
		if (err != nil) != test.tooFar || certain != test.certain {
			t.Errorf("%s: got %v, certain: %v; want too far: %v, certain: %v", test.name, err, certain, test.tooFar, test.certain)
		}
		median, seed := int64(0), int64(0)
		if test.median {
			median, seed = now, now+time.Second.Microseconds()
		}
		if w.Median(at) != median || w.Seed(at, 2*time.Second) != seed {
			t.Errorf("%s: got median %d and seed %d, want %d and %d", test.name, w.Median(at), w.Seed(at, 2*time.Second), median, seed)
		}
	}
	for doubt, want := range map[time.Duration]bool{5150 * time.Millisecond / 2: true, 5150*time.Millisecond/2 + 1: false} {
		w, at := read(doubt, 0)
		if _, fresh := w.span(w.clocks[0].best.Load(), at.shown); fresh != want {
			t.Errorf("a reading that may be off by %v: got fresh %v, want %v", doubt, !want, want)
		}
	}
}

// A clock is too far from the others by a microsecond more than MaxSkew and what both readings can be
// wrong by. That is the doubt of each, rounded up to the next microsecond.
//
// Source: ALGORITHM section 9, "Skew".
func TestTooFarFrom(t *testing.T) {
	const us, now = time.Microsecond, int64(1e15)
	for doubt, wrong := range map[time.Duration]time.Duration{0: 2 * us, us - 1: 2 * us, us: 4 * us, 100 * time.Millisecond: 200*time.Millisecond + 2*us} {
		for _, ahead := range []time.Duration{1, -1} {
			for _, more := range []time.Duration{0, us} {
				for n := 2; n <= 3; n++ { // with two clocks, no median is known if they are too far apart
					w := watchOf(n)
					off := ahead * (w.conf.MaxSkew + wrong + more)
					for i := range n {
						w.clocks[i].best.Store(&sample{micros: now, at: clock.Instant(time.Hour), err: doubt})
					}
					w.clocks[n-1].best.Store(&sample{micros: now + off.Microseconds(), at: clock.Instant(time.Hour), err: doubt})
					at := w.Moment(w.conf.Clock.Instant())
					err, certain := w.TooFar(n-1, at)
					median := w.Median(at) != 0
					if tooFar := more > 0; (err != nil) != tooFar || certain != (tooFar && n == 3) || median != (!tooFar || n == 3) {
						t.Errorf("%d clocks, the last off by %v, each read to %v: got %v, certain: %v, a median: %v; want too far: %v, certain: %v, a median: %v",
							n, off, doubt, err, certain, median, tooFar, tooFar && n == 3, !tooFar || n == 3)
					}
				}
			}
		}
	}
}
