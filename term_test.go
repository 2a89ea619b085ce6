package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/rules"
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

// The context ends a fiftieth of the TTL early, and at least 5 ms. The keys of a broken lease are dropped a fifth
// later, and at most 200 ms.
//
// Source: ALGORITHM section 1, "CancelLead"; section 5, "Break".
func TestCancelLead(t *testing.T) {
	for ttl, want := range map[time.Duration][2]time.Duration{
		50 * time.Millisecond:      {5 * time.Millisecond, 10 * time.Millisecond},
		250 * time.Millisecond:     {5 * time.Millisecond, 50 * time.Millisecond},
		250*time.Millisecond + 50:  {5*time.Millisecond + 1, 50*time.Millisecond + 10},
		10 * time.Second:           {200 * time.Millisecond, 200 * time.Millisecond},
		24 * time.Hour:             {28*time.Minute + 48*time.Second, 200 * time.Millisecond},
		250*time.Millisecond - 100: {5 * time.Millisecond, 50*time.Millisecond - 20},
	} {
		if got := [2]time.Duration{cancelLead(ttl), dropLead(ttl)}; got != want {
			t.Errorf("a TTL of %v: got %v, want %v", ttl, got, want)
		}
	}
}

// Neither clock goes back, and both advance.
//
// Source: ALGORITHM section 11.
func TestClocksAreMonotone(t *testing.T) {
	for name, c := range map[string]Clock{"system": clock.System(), "runtime": RuntimeClock()} {
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
		c := RuntimeClock()
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
		conf := config{lockConfig: lockConfig{termOptions: termOptions{ttl: ttl, grace: grace}}, maxTTL: maxMaxTTL, drift: factor, clock: clock.NewLease(RuntimeClock())}
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

// newTerm returns the term of a lease of 10 s that was granted at 0, without drift.
func newTerm(o termOptions) *term {
	o.ttl = 10 * time.Second
	o.manual = o.manual || o.maxHold > 0 && o.maxHold <= o.ttl
	t := &term{}
	t.init(&o, rules.New())
	t.extend(0, o.ttl, 0, 0)
	t.renewAt = seconds(3)
	return t
}

func seconds(s float64) instant { return instant(s * float64(time.Second)) }

// What is due about a lease, and when it is to be looked at next.
func TestTerm(t *testing.T) {
	lost := errors.New("lost")
	late := func(t *term) { t.extend(seconds(5), 10*time.Second, 0, 0); t.extend(seconds(1), 10*time.Second, 0, 0) }
	for _, test := range []struct {
		name    string
		options termOptions
		do      func(*term)
		at      float64       // seconds
		stood   time.Duration // since the start
		want    duty
		due     float64 // seconds; negative for never
	}{
		{name: "at the grant", want: noDuty, due: 3},
		{name: "a renewal", at: 3, want: toRenew, due: 3.1},
		{name: "a renewal that is answered", at: 4, do: func(t *term) { t.extend(seconds(3), 10*time.Second, 0, 0); t.renewAt = seconds(6) }, want: noDuty, due: 6},
		{name: "a renewal that failed", at: 3, do: func(t *term) { t.failed(seconds(3)) }, want: noDuty, due: 3.1},
		{name: "a renewal that failed near the end", at: 9.5, do: func(t *term) { t.failed(seconds(9.5)) }, want: noDuty, due: 9.5625},
		{name: "a renewal near the end", at: 9.5, do: func(t *term) { t.renewAt = seconds(9.5) }, want: toRenew, due: 9.5625},
		{name: "a renewal that would not move the deadline", options: termOptions{maxHold: 15 * time.Second}, at: 7, do: func(t *term) { t.extend(seconds(6), 10*time.Second, 0, 0) }, want: noDuty, due: 14.8},
		{name: "a renewal before the end", at: 9.7, do: func(t *term) { t.renewAt = never }, want: noDuty, due: 9.8},
		{name: "the end", options: termOptions{manual: true}, at: 9.8, want: toEnd, due: 9.8},
		{name: "with a grace", options: termOptions{grace: time.Second, manual: true}, at: 8.8, want: toEnd, due: 8.8},
		{name: "without renewal", options: termOptions{manual: true}, at: 9, want: noDuty, due: 9.8},
		{name: "a maximum hold", options: termOptions{maxHold: 5 * time.Second}, at: 4, want: noDuty, due: 4.8},
		{name: "the end of a maximum hold", options: termOptions{maxHold: 5 * time.Second}, at: 4.8, want: toEnd, due: 4.8},
		{name: "two answers in the wrong order", options: termOptions{manual: true}, do: late, at: 10, want: noDuty, due: 14.8},
		{name: "the next holder, after these", options: termOptions{manual: true, maxHold: 12 * time.Second}, do: func(t *term) { late(t); t.passTo(seconds(6)) }, at: 10, want: noDuty, due: 14.8},
		{name: "the next holder's maximum hold", options: termOptions{maxHold: 5 * time.Second}, do: func(t *term) { t.passTo(seconds(4)) }, at: 4.8, want: noDuty, due: 8.8},
		{name: "kept", options: termOptions{manual: true}, do: func(t *term) { t.keepFor(5*time.Second, seconds(1), 0) }, at: 5.9, want: noDuty, due: 6},
		{name: "kept, and renewed", do: func(t *term) { t.keepFor(5*time.Second, seconds(1), 0) }, at: 5, want: toRenew, due: 5.1},
		{name: "the end of a minimum hold", do: func(t *term) { t.keepFor(5*time.Second, seconds(1), 0) }, at: 6, want: toUnlock, due: 3},
		{name: "a minimum hold while the clock was corrected", options: termOptions{manual: true}, do: func(t *term) { t.keepFor(5*time.Second, seconds(1), 0) }, at: 8, stood: 2500 * time.Millisecond, want: noDuty, due: 8.5},
		{name: "a minimum hold after the clock was corrected", options: termOptions{manual: true}, do: func(t *term) { t.keepFor(5*time.Second, seconds(1), time.Second) }, at: 5, stood: time.Second, want: noDuty, due: 6},
		{name: "a minimum hold longer than the maximum", options: termOptions{maxHold: 5 * time.Second}, do: func(t *term) { t.keepFor(8*time.Second, seconds(1), 0) }, at: 5, want: toUnlock, due: 5},
		{name: "kept, and taken by the next caller", do: func(t *term) { t.keepFor(time.Second, seconds(1), 0); t.passTo(seconds(1)) }, at: 2.5, want: noDuty, due: 3},
		{name: "lost", do: func(t *term) { t.end(lost, seconds(1)) }, at: 20, want: noDuty, due: -1},
		{name: "broken", do: func(t *term) { t.end(errLostBroken, seconds(1)) }, at: 1.1, want: noDuty, due: 1.2},
		{name: "broken with a grace", options: termOptions{grace: time.Second}, do: func(t *term) { t.end(errLostBroken, seconds(1)) }, at: 2, want: noDuty, due: 2.2},
		{name: "the keys of a broken lease", do: func(t *term) { t.end(errLostBroken, seconds(1)) }, at: 1.2, want: toDrop, due: -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.nodeTimeout = 100 * time.Millisecond
			lease := newTerm(test.options)
			if test.do != nil {
				test.do(lease)
			}
			if got := lease.check(seconds(test.at), test.stood); got != test.want {
				t.Errorf("at %v s: got duty %d, want %d", test.at, got, test.want)
			}
			want := seconds(test.due)
			if test.due < 0 {
				want = never
			}
			if got := lease.due(test.stood); max(got-want, want-got) > 1000 {
				t.Errorf("then due at %v, want %v", time.Duration(got), time.Duration(want))
			}
		})
	}
}

// A lease is renewed each third of its TTL, or up to a tenth of that earlier.
//
// Source: ALGORITHM section 1, "RenewEvery".
func TestTermRenewed(t *testing.T) {
	least, most := never, instant(0)
	for range 500 {
		lease := newTerm(termOptions{})
		lease.renewed(seconds(1))
		least, most = min(least, lease.renewAt), max(most, lease.renewAt)
	}
	if least < seconds(4) || least > seconds(4.1) || most < seconds(4.25) || most > seconds(4.334) {
		t.Errorf("got renewals at %v to %v, want 4 s to 4.33 s", time.Duration(least), time.Duration(most))
	}
}

// Why a lease has ended at its deadline.
func TestTermExpired(t *testing.T) {
	for _, test := range []struct {
		options termOptions
		at      float64
		stood   time.Duration
		want    error
	}{
		{at: 9.999},
		{at: 10, want: errLostExpired},
		{at: 10, stood: time.Millisecond, want: errLostStill},
		{at: 11, stood: time.Second, want: errLostExpired},
		{options: termOptions{maxHold: 5 * time.Second}, at: 5, want: errLostMaxHold},
	} {
		if got := newTerm(test.options).expired(seconds(test.at), test.stood); got != test.want {
			t.Errorf("at %v s, of which the clock stood still for %v: got %v, want %v", test.at, test.stood, got, test.want)
		}
	}
}

// An expired lease keeps its last moments. Any other lease that is over has none.
func TestTermEnd(t *testing.T) {
	for cause, want := range map[error]float64{errLostExpired: 10, errLostStill: 10, errLostMaxHold: 10, errLostQuorum: 9, errLostBroken: 9, ErrReleased: 9, ErrDetached: 9} {
		lease := newTerm(termOptions{})
		if lease.end(cause, seconds(9)); lease.deadline() != seconds(want) || lease.cause != cause || lease.stands() {
			t.Errorf("%v: got deadline %v, cause %v, standing %v; want %v s, itself, false", cause, time.Duration(lease.deadline()), lease.cause, lease.stands(), want)
		}
	}
}

// Whatever happens, a lease that is over stays over, its deadline does not rise, and it moves as termPhases says.
// The control calls a lease that is over standing again.
func TestTermIsOverForGood(t *testing.T) {
	walk := func(seed uint64, wrong bool) error {
		r := rand.New(rand.NewPCG(seed, 1))
		lease, now := newTerm(termOptions{grace: time.Second, nodeTimeout: 100 * time.Millisecond}), instant(0)
		for range 60 {
			now = now.Add(rand.N(time.Second))
			was, stood, d := lease.phase, lease.stands(), lease.deadline()
			switch r.IntN(7) {
			case 0:
				if stood {
					lease.extend(now, 10*time.Second, 0, 0)
				}
			case 1:
				lease.failed(now)
			case 2:
				lease.keepFor(time.Second, now, 0)
			case 3:
				lease.passTo(now)
				if wrong {
					lease.phase = standing
				}
			case 4:
				if stood && r.IntN(8) == 0 {
					lease.end(errLostBroken, now)
				}
			case 5:
				if stood && r.IntN(8) == 0 {
					lease.end(errLostQuorum, now)
				}
			default:
				if lease.check(now, 0) == toEnd && stood {
					lease.end(errLostExpired, now)
				}
			}
			if !stood && (lease.stands() || lease.deadline() > d) {
				return fmt.Errorf("seed %d: a lease in phase %d has come to phase %d, with a deadline %v later", seed, was, lease.phase, lease.deadline().Sub(d))
			}
		}
		return nil
	}
	var found error
	for seed := range uint64(300) {
		if err := walk(seed, false); err != nil {
			t.Error(err)
		}
		found = cmp.Or(found, walk(seed, true))
	}
	if found == nil {
		t.Error("the control was not found")
	}
}
