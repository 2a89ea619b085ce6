package redlock

import (
	"math"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/term"
)

// The allowance is the drift factor times the TTL, rounded up, plus 2 ms.
//
// Source: distlock, "MIN_VALIDITY"; ALGORITHM section 1, "drift".
func TestDriftAllowance(t *testing.T) {
	for _, test := range []struct {
		ttl    time.Duration
		factor float64
		want   time.Duration
	}{
		{10 * time.Second, 0.01, 102 * time.Millisecond},
		{50 * time.Millisecond, 0.01, 2500 * time.Microsecond},
		{time.Second, 0.25, 252 * time.Millisecond},
		{24 * time.Hour, 0.001, 86402 * time.Millisecond},
		{101, 0.25, 2*time.Millisecond + 26}, // 25.25 ns are rounded up to 26
		{100, 0.25, 2*time.Millisecond + 25},
		{1, 0.001, 2*time.Millisecond + 1},
		{0, 0.25, 2 * time.Millisecond},
	} {
		if got := driftAllowance(test.ttl, test.factor); got != test.want {
			t.Errorf("driftAllowance(%v, %v): got %v, want %v", test.ttl, test.factor, got, test.want)
		}
	}
}

// A lease ends a TTL after its requests were sent, less drift and grace.
//
// Source: distlock, step 4; ALGORITHM section 3, point 4.
func TestDeadline(t *testing.T) {
	for _, test := range []struct {
		name              string
		start             instant
		ttl, drift, grace time.Duration
		want              instant
	}{
		{"without grace", 1000, 10 * time.Second, 102 * time.Millisecond, 0, 1000 + 9_898_000_000},
		{"grace comes off", 0, 10 * time.Second, 102 * time.Millisecond, time.Second, 8_898_000_000},
		{"before the origin of the clock", -5_000_000_000, 10 * time.Second, 0, 0, 5_000_000_000},
		{"at the end of the scale it is early", never - 10, time.Second, 4, 3, never - 7},
		{"at the start of the scale", math.MinInt64, 10, 4, 3, math.MinInt64 + 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := deadline(test.start, test.ttl, test.drift, test.grace); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// Neither clock goes back, and both advance.
//
// Source: ALGORITHM section 11.
func TestClocksAreMonotone(t *testing.T) {
	for name, c := range map[string]clock.Source{"system": clock.System(), "runtime": clock.Runtime()} {
		t.Run(name, func(t *testing.T) {
			first := c.Now()
			last := first
			for last == first { // until it has advanced
				for range 1000 {
					now := c.Now()
					if now < last {
						t.Fatalf("got %d after %d", now, last)
					}
					last = now
				}
			}
		})
	}
}

// In a bubble the runtime's clock shows the time of the bubble.
//
// Source: ALGORITHM section 11, "Injected".
func TestRuntimeClockInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		if got := c.Now(); got != 0 {
			t.Errorf("got %v at first, want 0", got)
		}
		time.Sleep(3 * time.Hour)
		if got := c.Now(); got != 3*time.Hour {
			t.Errorf("got %v, want 3h", got)
		}
	})
}

// Whatever the clock shows, a holder gets exactly TTL - elapsed - drift - grace.
//
// Source: distlock, step 4; ALGORITHM section 13, I3.
func FuzzValidity(f *testing.F) {
	const day, ms = int64(24 * time.Hour), int64(time.Millisecond)
	for _, seed := range []struct {
		start, ttl int64
		factor     float64
		grace      int64
		elapsed    int64
	}{
		{0, 10_000 * ms, 0.01, 0, 0},
		{0, 10_000 * ms, 0.01, 2_500 * ms, 9_898 * ms},
		{1, 50 * ms, 0.001, 0, 50 * ms},
		{day * 365, 50*ms + 1, 0.25, 12 * ms, 25 * ms},
		{-day, day, 0.25, day / 4, day},
		{math.MaxInt64, day, 0.01, 0, 0},
		{math.MaxInt64 - 1, 50 * ms, 0.25, 1, 1},
		{math.MaxInt64 - 9_950*ms, 10_000 * ms, 0.01, 0, 9_950 * ms},
		{math.MinInt64, day, 0.001, 0, math.MaxInt64},
		{5, 12_345_678_901, 0.0123456789, 987_654_321, 3_456_789_012},
	} {
		f.Add(seed.start, seed.ttl, seed.factor, seed.grace, seed.elapsed)
	}
	f.Fuzz(func(t *testing.T, startNs, ttlNs int64, factor float64, graceNs, elapsedNs int64) {
		// Out-of-range inputs are folded into the range, so that few inputs are wasted.
		fold := func(n, least, most int64) int64 {
			if n < least || n > most {
				n = least + int64(uint64(n)%uint64(most-least+1))
			}
			return n
		}
		ttlNs = fold(ttlNs, int64(MinTTL), int64(maxMaxTTL))
		graceNs, elapsedNs = fold(graceNs, 0, ttlNs/4), fold(elapsedNs, 0, math.MaxInt64-1)
		if !(factor >= MinDrift && factor <= MaxDrift) {
			factor = MinDrift + float64(math.Float64bits(factor)%1e6)/1e6*(MaxDrift-MinDrift)
		}
		ttl, grace := time.Duration(ttlNs), time.Duration(graceNs)
		conf := config{lockConfig: lockConfig{Options: term.Options{TTL: ttl, Grace: grace}}, maxTTL: maxMaxTTL, drift: factor, clock: clock.NewLease(clock.Runtime())}
		start, now := instant(startNs), instant(startNs+elapsedNs)
		if now < start || conf.validate() != nil {
			t.Skip("past the end of the clock, or too much grace with this drift")
		}
		drift := driftAllowance(ttl, factor)
		d := deadline(start, ttl, drift, grace)
		got := validity(d, now)

		big64 := func(n int64) *big.Int { return big.NewInt(n) }
		// The drift is ttl * factor + 2 ms; it may be a few nanoseconds larger.
		exact := new(big.Rat).SetFloat64(factor)
		exact.Mul(exact, new(big.Rat).SetInt64(ttlNs)).Add(exact, new(big.Rat).SetInt64(2*ms))
		over := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(drift)), exact)
		if lo, hi := big.NewRat(-1, 1), big.NewRat(2, 1); over.Cmp(lo) < 0 || over.Cmp(hi) > 0 {
			t.Errorf("drift of %v at %v: got %d ns, want %s", ttl, factor, drift, exact.FloatString(3))
		}
		end := new(big.Int).Add(big64(startNs), big64(ttlNs))
		if big64(int64(d)).Cmp(end) > 0 {
			t.Errorf("deadline %d is behind start + ttl = %v", d, end)
		}
		// The wanted validity, in numbers that do not overflow.
		want := big64(ttlNs)
		for _, less := range []int64{elapsedNs, int64(drift), graceNs} {
			want.Sub(want, big64(less))
		}
		switch diff := want.Cmp(big64(int64(got))); {
		case diff < 0:
			t.Errorf("start %d, ttl %v, drift %v, grace %v, elapsed %d ns: got %v, want at most %v ns", startNs, ttl, drift, grace, elapsedNs, got, want)
		case diff > 0 && end.IsInt64() && got != math.MinInt64:
			t.Errorf("start %d, ttl %v, drift %v, grace %v, elapsed %d ns: got %v, want %v ns", startNs, ttl, drift, grace, elapsedNs, got, want)
		}
	})
}
