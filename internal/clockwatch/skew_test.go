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
