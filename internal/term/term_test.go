package term

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/rules"
)

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

var (
	errGone     = errors.New("gone from too many nodes")
	errReleased = errors.New("released")
)

// newTerm returns the term of a lease of 10 s that was granted at 0, without drift.
func newTerm(o Options) *Term {
	o.TTL = 10 * time.Second
	o.Manual = o.Manual || o.MaxHold > 0 && o.MaxHold <= o.TTL
	t := &Term{}
	t.Init(&o, rules.New())
	t.Extend(instant(o.TTL-o.Grace), 0)
	t.renewAt = seconds(3)
	return t
}

func seconds(s float64) instant { return instant(s * float64(time.Second)) }

// What is due about a lease, and when it is to be looked at next.
func TestTerm(t *testing.T) {
	lost := errors.New("lost")
	late := func(t *Term) { t.Extend(seconds(15), 0); t.Extend(seconds(11), 0) }
	for _, test := range []struct {
		name    string
		options Options
		do      func(*Term)
		at      float64       // seconds
		stood   time.Duration // since the start
		want    Duty
		due     float64 // seconds; negative for clock.Never
	}{
		{name: "at the grant", want: Nothing, due: 3},
		{name: "a renewal", at: 3, want: ToRenew, due: 3.1},
		{name: "a renewal that is answered", at: 4, do: func(t *Term) { t.Extend(seconds(13), 0); t.renewAt = seconds(6) }, want: Nothing, due: 6},
		{name: "a renewal that failed", at: 3, do: func(t *Term) { t.Failed(seconds(3)) }, want: Nothing, due: 3.1},
		{name: "a renewal that failed near the end", at: 9.5, do: func(t *Term) { t.Failed(seconds(9.5)) }, want: Nothing, due: 9.5625},
		{name: "a renewal near the end", at: 9.5, do: func(t *Term) { t.renewAt = seconds(9.5) }, want: ToRenew, due: 9.5625},
		{name: "a renewal that would not move the deadline", options: Options{MaxHold: 15 * time.Second}, at: 7, do: func(t *Term) { t.Extend(seconds(16), 0) }, want: Nothing, due: 14.8},
		{name: "a renewal before the end", at: 9.7, do: func(t *Term) { t.renewAt = clock.Never }, want: Nothing, due: 9.8},
		{name: "the end", options: Options{Manual: true}, at: 9.8, want: ToEnd, due: 9.8},
		{name: "with a grace", options: Options{Grace: time.Second, Manual: true}, at: 8.8, want: ToEnd, due: 8.8},
		{name: "without renewal", options: Options{Manual: true}, at: 9, want: Nothing, due: 9.8},
		{name: "a maximum hold", options: Options{MaxHold: 5 * time.Second}, at: 4, want: Nothing, due: 4.8},
		{name: "the end of a maximum hold", options: Options{MaxHold: 5 * time.Second}, at: 4.8, want: ToEnd, due: 4.8},
		{name: "two answers in the wrong order", options: Options{Manual: true}, do: late, at: 10, want: Nothing, due: 14.8},
		{name: "the next holder, after these", options: Options{Manual: true, MaxHold: 12 * time.Second}, do: func(t *Term) { late(t); t.PassTo(seconds(6)) }, at: 10, want: Nothing, due: 14.8},
		{name: "the next holder's maximum hold", options: Options{MaxHold: 5 * time.Second}, do: func(t *Term) { t.PassTo(seconds(4)) }, at: 4.8, want: Nothing, due: 8.8},
		{name: "kept", options: Options{Manual: true}, do: func(t *Term) { t.KeepFor(5*time.Second, seconds(1), 0) }, at: 5.9, want: Nothing, due: 6},
		{name: "kept, and renewed", do: func(t *Term) { t.KeepFor(5*time.Second, seconds(1), 0) }, at: 5, want: ToRenew, due: 5.1},
		{name: "the end of a minimum hold", do: func(t *Term) { t.KeepFor(5*time.Second, seconds(1), 0) }, at: 6, want: ToUnlock, due: 3},
		{name: "a minimum hold while the clock was corrected", options: Options{Manual: true}, do: func(t *Term) { t.KeepFor(5*time.Second, seconds(1), 0) }, at: 8, stood: 2500 * time.Millisecond, want: Nothing, due: 8.5},
		{name: "a minimum hold after the clock was corrected", options: Options{Manual: true}, do: func(t *Term) { t.KeepFor(5*time.Second, seconds(1), time.Second) }, at: 5, stood: time.Second, want: Nothing, due: 6},
		{name: "a minimum hold longer than the maximum", options: Options{MaxHold: 5 * time.Second}, do: func(t *Term) { t.KeepFor(8*time.Second, seconds(1), 0) }, at: 5, want: ToUnlock, due: 5},
		{name: "kept, and taken by the next caller", do: func(t *Term) { t.KeepFor(time.Second, seconds(1), 0); t.PassTo(seconds(1)) }, at: 2.5, want: Nothing, due: 3},
		{name: "lost", do: func(t *Term) { t.End(lost, seconds(1)) }, at: 20, want: Nothing, due: -1},
		{name: "broken", do: func(t *Term) { t.End(ErrBroken, seconds(1)) }, at: 1.1, want: Nothing, due: 1.2},
		{name: "broken with a grace", options: Options{Grace: time.Second}, do: func(t *Term) { t.End(ErrBroken, seconds(1)) }, at: 2, want: Nothing, due: 2.2},
		{name: "the keys of a broken lease", do: func(t *Term) { t.End(ErrBroken, seconds(1)) }, at: 1.2, want: ToDrop, due: -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.NodeTimeout = 100 * time.Millisecond
			lease := newTerm(test.options)
			if test.do != nil {
				test.do(lease)
			}
			if got := lease.Check(seconds(test.at), test.stood); got != test.want {
				t.Errorf("at %v s: got duty %d, want %d", test.at, got, test.want)
			}
			want := seconds(test.due)
			if test.due < 0 {
				want = clock.Never
			}
			if got := lease.Due(test.stood); max(got-want, want-got) > 1000 {
				t.Errorf("then due at %v, want %v", time.Duration(got), time.Duration(want))
			}
		})
	}
}

// A lease is renewed each third of its TTL, or up to a tenth of that earlier.
//
// Source: ALGORITHM section 1, "RenewEvery".
func TestTermRenewed(t *testing.T) {
	least, most := clock.Never, instant(0)
	for range 500 {
		lease := newTerm(Options{})
		lease.Renewed(seconds(1))
		least, most = min(least, lease.renewAt), max(most, lease.renewAt)
	}
	if least < seconds(4) || least > seconds(4.1) || most < seconds(4.25) || most > seconds(4.334) {
		t.Errorf("got renewals at %v to %v, want 4 s to 4.33 s", time.Duration(least), time.Duration(most))
	}
}

// Why a lease has ended at its deadline.
func TestTermExpired(t *testing.T) {
	for _, test := range []struct {
		options Options
		at      float64
		stood   time.Duration
		want    error
	}{
		{at: 9.999},
		{at: 10, want: ErrExpired},
		{at: 10, stood: time.Millisecond, want: ErrStoodStill},
		{at: 11, stood: time.Second, want: ErrExpired},
		{options: Options{MaxHold: 5 * time.Second}, at: 5, want: ErrMaxHold},
	} {
		if got := newTerm(test.options).Expired(seconds(test.at), test.stood); got != test.want {
			t.Errorf("at %v s, of which the clock stood still for %v: got %v, want %v", test.at, test.stood, got, test.want)
		}
	}
}

// An expired lease keeps its last moments. Any other lease that is over has none.
func TestTermEnd(t *testing.T) {
	for cause, want := range map[error]float64{ErrExpired: 10, ErrStoodStill: 10, ErrMaxHold: 10, errGone: 9, ErrBroken: 9, errReleased: 9} {
		lease := newTerm(Options{})
		if lease.End(cause, seconds(9)); lease.Deadline() != seconds(want) || lease.Cause() != cause || lease.Stands() {
			t.Errorf("%v: got deadline %v, cause %v, standing %v; want %v s, itself, false", cause, time.Duration(lease.Deadline()), lease.Cause(), lease.Stands(), want)
		}
	}
}

// Whatever happens, a lease that is over stays over, its deadline does not rise, and it moves as termPhases says.
// The control calls a lease that is over standing again.
func TestTermIsOverForGood(t *testing.T) {
	walk := func(seed uint64, wrong bool) error {
		r := rand.New(rand.NewPCG(seed, 1))
		lease, now := newTerm(Options{Grace: time.Second, NodeTimeout: 100 * time.Millisecond}), instant(0)
		for range 60 {
			now = now.Add(rand.N(time.Second))
			was, stood, d := lease.phase, lease.Stands(), lease.Deadline()
			switch r.IntN(7) {
			case 0:
				if stood {
					lease.Extend(now.Add(10*time.Second), 0)
				}
			case 1:
				lease.Failed(now)
			case 2:
				lease.KeepFor(time.Second, now, 0)
			case 3:
				lease.PassTo(now)
				if wrong {
					lease.phase = Standing
				}
			case 4:
				if stood && r.IntN(8) == 0 {
					lease.End(ErrBroken, now)
				}
			case 5:
				if stood && r.IntN(8) == 0 {
					lease.End(errGone, now)
				}
			default:
				if lease.Check(now, 0) == ToEnd && stood {
					lease.End(ErrExpired, now)
				}
			}
			if !stood && (lease.Stands() || lease.Deadline() > d) {
				return fmt.Errorf("seed %d: a lease in phase %d has come to phase %d, with a deadline %v later", seed, was, lease.phase, lease.Deadline().Sub(d))
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
