package clockwatch

import (
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/rules"
)

// clockOf is a clock that a test moves.
type clockOf func() time.Duration

func (c clockOf) Now() time.Duration { return c() }

// watchOf returns a Watch of n clocks. The local clock stands still at one hour.
func watchOf(n int) *Watch {
	return New(Config{
		Nodes: n, Quorum: n/2 + 1, MaxTTL: 10 * time.Second, MaxSkew: 5150 * time.Millisecond, Drift: 0.01,
		Clock: clock.NewLease(clockOf(func() time.Duration { return time.Hour })), Rules: rules.New(),
	})
}

// orders returns what a verdict orders, by node.
func orders(n int, v Verdict) []Action {
	all := make([]Action, n)
	for _, o := range v.Orders {
		all[o.Node] |= o.Do
	}
	return all
}

// Within a round each node counts by what it saw since the step. A reply about a time before
// the round, or before the end of the last round that blamed the local clock, counts for
// nothing.
//
// Source: ALGORITHM section 9.
func TestWatchRound(t *testing.T) {
	const ms, at = time.Millisecond, clock.Instant(time.Hour)
	jump, steady := Shift{time.Second, time.Second}, Shift{0, 0}
	asked := func(at clock.Instant) sample { return sample{at: at.Add(2 * ms), err: 2 * ms} }
	wantDecided := func(t *testing.T, v Verdict, want ...Action) {
		t.Helper()
		for i, got := range orders(len(want), v) {
			if got &^= Ask; got != want[i] {
				t.Errorf("verdict for node %d: got %v, want %v", i, got, want[i])
			}
		}
	}
	t.Run("a steady clock opens none", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		w.weigh(0, steady, asked(at), 0, &v)
		if w.InDoubt() || len(v.Orders) > 0 {
			t.Errorf("a round was opened: %v", v.Orders)
		}
	})
	t.Run("all others are asked", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		w.weigh(1, jump, asked(at), 0, &v)
		for i, do := range orders(3, v) {
			if got, want := do&Ask != 0, i != 1; got != want {
				t.Errorf("node %d asked for its clock: got %v, want %v", i, got, want)
			}
		}
		wantDecided(t, v, 0, 0, 0)
	})
	t.Run("replies that were under way clear nothing", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		opened := at.Add(4 * ms)
		w.weigh(0, jump, asked(at), 0, &v)
		w.weigh(1, steady, asked(opened-1), 0, &v)
		w.weigh(2, steady, asked(opened-1), 0, &v)
		wantDecided(t, v, 0, 0, 0)
		w.weigh(1, steady, asked(opened), 0, &v)
		wantDecided(t, v, 0, 0, 0)
		w.weigh(2, steady, asked(opened), 0, &v)
		wantDecided(t, v, Mark, 0, 0)
		if got := w.conf.Clock.Stood(); got != 0 || v.StoodStill != 0 {
			t.Errorf("stood still: got %d and a verdict of %d, want 0", got, v.StoodStill)
		}
	})
	t.Run("nor does a first sample", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		w.weigh(0, jump, asked(at), 0, &v)
		for i := 1; i <= 2; i++ {
			wantDecided(t, w.Observe(i, 1e15, w.Moment(at.Add(4*ms)), at.Add(4*ms)), 0, 0, 0)
		}
	})
	t.Run("nor do they spoil what comes after them", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		w.weigh(0, jump, asked(at), 0, &v)
		w.weigh(1, steady, asked(at), 0, &v)
		w.weigh(1, jump, asked(at.Add(4*ms)), 0, &v)
		wantDecided(t, v, Trust, Trust, 0)
		if got := w.conf.Clock.Stood(); got != time.Second || v.StoodStill != time.Second {
			t.Errorf("stood still: got %d and a verdict of %d, want a second", got, v.StoodStill)
		}
		if w.InDoubt() {
			t.Error("the round goes on")
		}
	})
	t.Run("of the time before a standstill", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		w.weigh(0, jump, asked(at), 0, &v)
		w.weigh(1, jump, asked(at), 0, &v)
		v = Verdict{}
		w.weigh(2, jump, asked(at), 0, &v)
		wantDecided(t, v, 0, 0, Trust)
		if w.InDoubt() || w.conf.Clock.Stood() != time.Second {
			t.Errorf("round open: %v, stood still: %v", w.InDoubt(), w.conf.Clock.Stood())
		}
	})
	t.Run("when time is up", func(t *testing.T) {
		w, v := watchOf(5), Verdict{}
		w.weigh(3, jump, asked(at), 0, &v)
		w.weigh(4, jump, asked(at), 0, &v)
		w.weigh(0, steady, asked(at.Add(4*ms)), 0, &v)
		wantDecided(t, v, 0, 0, 0, 0, 0)
		v = w.TimeUp(3)
		wantDecided(t, v, 0, 0, 0, Doubt, Doubt)
		if got := w.conf.Clock.Stood(); got != time.Second || v.StoodStill != time.Second {
			t.Errorf("stood still: got %d and a verdict of %d, want a second, to be on the safe side", got, v.StoodStill)
		}
		wantDecided(t, w.TimeUp(3), 0, 0, 0, 0, 0)
		wantDecided(t, w.TimeUp(4), 0, 0, 0, 0, 0)
	})
	t.Run("all begin anew after a correction", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		w.weigh(0, jump, asked(at), 0, &v)
		v = Verdict{}
		w.weigh(1, jump, asked(at), 0, &v)
		for i, do := range orders(3, v) {
			if do&Ask == 0 {
				t.Errorf("node %d is not asked for its clock", i)
			}
		}
	})
	t.Run("a node that becomes another server ends it", func(t *testing.T) {
		w, v := watchOf(3), Verdict{}
		w.weigh(0, jump, asked(at), 0, &v)
		w.Forget(1)
		if !w.InDoubt() {
			t.Error("the round is over, but the node that stepped is the same server")
		}
		w.Forget(0)
		if w.InDoubt() {
			t.Error("the round goes on without a node that stepped")
		}
	})
}

// A node has one verdict for each step of its clock.
func TestWatchNextStep(t *testing.T) {
	w, v := watchOf(1), Verdict{}
	step := Shift{-time.Second, -time.Second}
	w.weigh(0, step, sample{}, 0, &v) // the clock of a single node counts as the local one
	if got := orders(1, v)[0]; got&Trust == 0 {
		t.Fatalf("got order %d, want the node to be trusted", got)
	}
	if got := w.TimeUp(0).Orders; len(got) > 0 {
		t.Errorf("with a verdict: got %v, want no other", got)
	}
	v = Verdict{}
	if w.weigh(0, step, sample{}, 1, &v); orders(1, v)[0]&Trust == 0 {
		t.Errorf("after another step: got %v, want another verdict", v.Orders)
	}

	w, v = watchOf(3), Verdict{}
	w.weigh(0, step, sample{}, 0, &v)
	w.weigh(1, Shift{}, sample{}, 0, &v)
	w.weigh(2, Shift{}, sample{}, 0, &v)
	if got := orders(3, v)[0]; got&Mark == 0 {
		t.Fatalf("got order %d, want the node to be marked", got)
	}
	w.weigh(0, step, sample{}, 0, &v)
	w.Forget(0) // which ends the round without a verdict
	if got := orders(3, w.TimeUp(0))[0]; got != Doubt {
		t.Errorf("after a step without a verdict: got order %d, want doubt", got)
	}
}

// A reply to a request from before the correction of the clock tells nothing: one of its two
// times is wrong by the correction. The samples from before tell nothing either.
//
// Source: ALGORITHM section 9.
func TestWatchReplyAcrossACorrection(t *testing.T) {
	w := watchOf(3)
	now := w.conf.Clock.Instant
	const micros = int64(1_700_000_000_000_000)
	if w.Observe(0, micros, w.Moment(now()), now()); !w.clocks[0].view.latest.known {
		t.Fatal("the first sample was not kept")
	}
	before, sent := *w.clocks[0].best.Load(), w.Moment(now())
	w.epoch.Add(1)
	w.conf.Clock.StoodStill(time.Minute)
	v := w.Observe(0, micros+time.Minute.Microseconds(), sent, now())
	if got := *w.clocks[0].best.Load(); got != before || v.Stepped || !v.Stale {
		t.Errorf("after a reply from before: got sample %+v, stepped %v, stale %v, want %+v, false, true", got, v.Stepped, v.Stale, before)
	}
	v = w.Observe(0, micros+time.Minute.Microseconds(), w.Moment(now()), now())
	if got := *w.clocks[0].best.Load(); got == before || v.Stepped || v.Stale || w.InDoubt() {
		t.Errorf("after the next: got sample %+v, stepped %v, stale %v, round open %v, want a new sample, false, false, false",
			got, v.Stepped, v.Stale, w.InDoubt())
	}
}

// While no clock steps, a sample costs no memory beside itself.
func TestObserveAllocates(t *testing.T) {
	w := watchOf(5)
	now := clock.Instant(time.Hour)
	for i := range w.clocks {
		w.Observe(i, 1e15, w.Moment(now), now)
	}
	allocs := testing.AllocsPerRun(100, func() {
		w.Observe(2, 1e15, w.Moment(now), now.Add(time.Millisecond))
	})
	if allocs > 0 {
		t.Errorf("got %v allocations of a sample that is no better than the last, want 0", allocs)
	}
}
