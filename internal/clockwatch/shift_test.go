package clockwatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// The round trips and the drift bound the shift between two readings. The true shift is
// never outside of the bounds, and the bounds are as narrow as possible.
//
// Source: ALGORITHM section 9.
func TestShiftBetween(t *testing.T) {
	const ms = time.Millisecond
	const factor = 0.01
	for _, elapsed := range []time.Duration{0, 20 * ms, 3 * time.Second, 10 * time.Second} {
		for _, trip := range [][2]time.Duration{{0, 0}, {4 * ms, 4 * ms}, {0, 30 * ms}, {200 * ms, 0}} { // of the two exchanges
			for _, step := range []time.Duration{0, 3 * ms, -3 * ms, 40 * ms, -40 * ms, 10 * time.Second, -30 * time.Second, time.Hour} {
				for _, rate := range []float64{1, 1.005, 0.995} {
					// A node reads its clock at any moment of the exchange.
					for _, read := range [][2]time.Duration{{0, 0}, {0, trip[1]}, {trip[0], 0}, trip} {
						sent0, sent1 := clock.Instant(time.Hour), clock.Instant(time.Hour).Add(trip[0]+elapsed)
						between := sent1.Add(read[1]).Sub(sent0.Add(read[0]))
						const micros = 1_700_000_000_000_000
						s := shiftBetween(
							takeSample(micros, sent0, sent0.Add(trip[0])),
							takeSample(micros+(time.Duration(float64(between)*rate)+step).Microseconds(), sent1, sent1.Add(trip[1])), factor)
						name := fmt.Sprintf("%v later, exchanges of %v read at %v, step %v, rate %v", elapsed, trip, read, step, rate)
						if s.Least > step+time.Microsecond || s.Most < step-time.Microsecond {
							t.Errorf("%s: got a shift from %v to %v", name, s.Least, s.Most)
						}
						open := trip[0] + trip[1] + time.Duration(float64(elapsed+trip[0]+trip[1])*factor)
						if width := s.Most - s.Least; width > open+time.Microsecond {
							t.Errorf("%s: got %v of uncertainty, want at most %v", name, width, open)
						}
						if apart := (s.size() - step).Abs(); apart > open/2+2*time.Microsecond {
							t.Errorf("%s: got a size of %v", name, s.size())
						}
						if step == 0 && s.stepped() {
							t.Errorf("%s: got a step", name)
						}
						if step.Abs() > open+slack+time.Microsecond && !s.stepped() {
							t.Errorf("%s: got no step of %v to %v", name, s.Least, s.Most)
						}
					}
				}
			}
		}
	}
}

// A step is a shift beyond the slack and the drift, in either direction.
//
// Source: ALGORITHM section 9 ("+ 5 ms", "- 5 ms").
func TestStepped(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		s    Shift
		want bool
	}{
		{Shift{0, 0}, false},
		{Shift{5 * ms, 5 * ms}, false},
		{Shift{5*ms + 1, 9 * ms}, true},
		{Shift{-1, time.Hour}, false},
		{Shift{-5 * ms, -5 * ms}, false},
		{Shift{-9 * ms, -5*ms - 1}, true},
		{Shift{-time.Hour, 1}, false},
		{Shift{-time.Hour, time.Hour}, false},
	} {
		if got := test.s.stepped(); got != test.want {
			t.Errorf("%v to %v stepped: got %v, want %v", test.s.Least, test.s.Most, got, test.want)
		}
	}
	s := Shift{Least: 90 * ms, Most: 110 * ms}
	if s.size() != 100*ms {
		t.Errorf("size: got %v, want 100ms", s.size())
	}
	for size, want := range map[time.Duration]bool{
		85*ms - 1: false, 85 * ms: true, 100 * ms: true, 115 * ms: true, 115*ms + 1: false, -100 * ms: false,
	} {
		if got := s.alike(size); got != want {
			t.Errorf("%v to %v alike %v: got %v, want %v", s.Least, s.Most, size, got, want)
		}
	}
	s = Shift{Least: -2 * ms, Most: 3 * ms}
	for size, want := range map[time.Duration]bool{-2*ms - 1: false, -2 * ms: true, 3 * ms: true, 3*ms + 1: false} {
		if got := s.maybe(size); got != want {
			t.Errorf("%v to %v, perhaps %v: got %v, want %v", s.Least, s.Most, size, got, want)
		}
	}
}

// Nodes that moved nearly alike count together, within their error bounds. If they are a quorum, the local clock
// stepped.
//
// Source: ALGORITHM section 9 ("One or a few nodes", "At least q nodes", "all alike").
func TestWhoseStep(t *testing.T) {
	const ms = time.Millisecond
	at := func(size, wide time.Duration) *Shift { return &Shift{size - wide, size + wide} }
	for _, test := range []struct {
		name   string
		shifts []*Shift
		want   Cause
		size   time.Duration // of a typical step
	}{
		{"within the slack", []*Shift{at(1000*ms, 0), at(1005*ms, 0), at(0, 0)}, CauseLocal, 1005 * ms},
		{"beyond it", []*Shift{at(1000*ms, 0), at(1006*ms, 0), at(0, 0)}, CauseNodes, 1006 * ms},
		{"beyond it, but one shift is not sharp", []*Shift{at(1000*ms, ms), at(1006*ms, 0), at(0, 0)}, CauseLocal, 1006 * ms},
		{"an outlier", []*Shift{at(1000*ms, 0), at(time.Hour, 0), at(1001*ms, 0)}, CauseLocal, 1001 * ms},
		{"one back, two forward", []*Shift{at(-1000*ms, 0), at(1000*ms, 0), at(1000*ms, 0)}, CauseLocal, 1000 * ms},
		{"one each way", []*Shift{at(-1000*ms, 0), at(1000*ms, 0), at(0, 0)}, CauseNodes, 1000 * ms},
		{"all back", []*Shift{at(-1000*ms, 0), at(-1001*ms, 0), at(-1002*ms, 0)}, CauseLocal, -1001 * ms},
		{"nothing at all", []*Shift{at(0, 0), nil, at(ms, 0)}, CauseNodes, 0},
	} {
		if got, typical := WhoseStep(len(test.shifts)/2+1, test.shifts, false); got != test.want || typical.size() != test.size {
			t.Errorf("%s: got %v by %v, want %v by %v", test.name, got, typical.size(), test.want, test.size)
		}
	}
}

// A step that is lost in the doubt about the reading before shows against an older reading that was
// exact, from no longer ago than the largest TTL.
//
// Source: ALGORITHM section 9.
func TestCompare(t *testing.T) {
	const ms, s, maxTTL = time.Millisecond, time.Second, 10 * time.Second
	read := func(v *view, at, off, err time.Duration) (Shift, bool) {
		return v.compare(sample{1e15 + (at + off).Microseconds(), clock.Instant(at), err}, maxTTL, 0.01)
	}
	type reading struct{ at, off, err time.Duration }
	for name, readings := range map[string][]reading{
		"the one before":              {{0, 0, 0}, {s, 20 * ms, 0}},
		"the first":                   {{0, 0, 0}, {s, 20 * ms, 50 * ms}, {2 * s, 20 * ms, 0}},
		"the best since then":         {{0, 0, 50 * ms}, {s, 0, 0}, {2 * s, 20 * ms, 50 * ms}, {2500 * ms, 20 * ms, 50 * ms}, {3 * s, 20 * ms, 0}},
		"that of the half TTL before": {{0, 0, 0}, {6 * s, 60 * ms, 50 * ms}, {6100 * ms, 60 * ms, 0}},
		"that of a whole TTL before":  {{0, 0, 0}, {5 * s, 80 * ms, 60 * ms}, {10001 * ms, 80 * ms, 60 * ms}, {10100 * ms, 80 * ms, 0}},
	} {
		var v view
		for i, r := range readings {
			if moved, known := read(&v, r.at, r.off, r.err); known != (i > 0) || moved.stepped() != (i == len(readings)-1) {
				t.Errorf("against %s, reading %d: got %v, stepped: %v; want a step at the last reading", name, i, moved, moved.stepped())
			}
		}
	}
	var v view
	for at := time.Duration(0); at < time.Minute; at += s {
		if read(&v, at, 0, 0); v.old.known && clock.Instant(at).Sub(v.old.at) > maxTTL+s {
			t.Errorf("at %v: got a reading of %v to compare with, want none so old", at, time.Duration(v.old.at))
		}
	}
}
