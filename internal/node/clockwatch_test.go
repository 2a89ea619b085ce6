package node

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/rules"
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
						if s.least > step+time.Microsecond || s.most < step-time.Microsecond {
							t.Errorf("%s: got a shift from %v to %v", name, s.least, s.most)
						}
						open := trip[0] + trip[1] + time.Duration(float64(elapsed+trip[0]+trip[1])*factor)
						if width := s.most - s.least; width > open+time.Microsecond {
							t.Errorf("%s: got %v of uncertainty, want at most %v", name, width, open)
						}
						if apart := (s.size() - step).Abs(); apart > open/2+2*time.Microsecond {
							t.Errorf("%s: got a size of %v", name, s.size())
						}
						if step == 0 && s.stepped() {
							t.Errorf("%s: got a step", name)
						}
						if step.Abs() > open+clockSlack+time.Microsecond && !s.stepped() {
							t.Errorf("%s: got no step of %v to %v", name, s.least, s.most)
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
		s    shift
		want bool
	}{
		{shift{0, 0}, false},
		{shift{5 * ms, 5 * ms}, false},
		{shift{5*ms + 1, 9 * ms}, true},
		{shift{-1, time.Hour}, false},
		{shift{-5 * ms, -5 * ms}, false},
		{shift{-9 * ms, -5*ms - 1}, true},
		{shift{-time.Hour, 1}, false},
		{shift{-time.Hour, time.Hour}, false},
	} {
		if got := test.s.stepped(); got != test.want {
			t.Errorf("%v to %v stepped: got %v, want %v", test.s.least, test.s.most, got, test.want)
		}
	}
	s := shift{least: 90 * ms, most: 110 * ms}
	if s.size() != 100*ms {
		t.Errorf("size: got %v, want 100ms", s.size())
	}
	for size, want := range map[time.Duration]bool{
		85*ms - 1: false, 85 * ms: true, 100 * ms: true, 115 * ms: true, 115*ms + 1: false, -100 * ms: false,
	} {
		if got := s.alike(size); got != want {
			t.Errorf("%v to %v alike %v: got %v, want %v", s.least, s.most, size, got, want)
		}
	}
}

// What a node can tell about its clock in a round.
const (
	saysNothing = iota
	isSteady
	stepsAlike     // like the others of this kind
	stepsOtherwise // by another amount
	kindsOfTestimony
)

// plainVerdict is whoseStep in plain words: if a quorum moved alike, the local clock stepped.
// As long as silent nodes could complete such a quorum, the cause is open, and at the end it
// stays in doubt.
func plainVerdict(n, alike, silent int, timeUp bool) cause {
	for votes := alike; alike > 0 && votes <= alike+silent; votes++ {
		if 2*votes > n {
			switch {
			case votes == alike:
				return causeLocal
			case timeUp:
				return causeEither
			}
			return causeOpen
		}
	}
	return causeNodes
}

// Source: ALGORITHM section 9 ("One or a few nodes", "At least q nodes").
func TestWhoseStep(t *testing.T) {
	const ms = time.Millisecond
	for n := 1; n <= 5; n++ {
		total := int(math.Pow(kindsOfTestimony, float64(n)))
		for _, step := range []time.Duration{10 * time.Second, -10 * time.Second} {
			for code := range total {
				shifts := make([]*shift, n)
				kinds, rest := make([]int, n), code
				var have [kindsOfTestimony]int
				for i := range shifts {
					kinds[i], rest = rest%kindsOfTestimony, rest/kindsOfTestimony
					have[kinds[i]]++
					switch wide := time.Duration(i) * ms; kinds[i] {
					case isSteady:
						shifts[i] = &shift{-wide, wide}
					case stepsAlike:
						shifts[i] = &shift{step - wide, step + wide}
					case stepsOtherwise:
						size := step + time.Duration(1+i)*time.Minute
						shifts[i] = &shift{size - wide, size + wide}
					}
				}
				for _, timeUp := range []bool{false, true} {
					alike := max(have[stepsAlike], min(1, have[stepsOtherwise])) // a single node is alike itself
					want := plainVerdict(n, alike, have[saysNothing], timeUp)
					got, typical := whoseStep(n/2+1, shifts, timeUp)
					// All nodes are compared to the median of those that stepped, which belongs to the quorum
					// if there is one. While there is none it may be another node.
					luck := have[stepsAlike] > 1 && have[stepsOtherwise] > 0 && got == causeNodes && (want == causeOpen || want == causeEither)
					if got != want && !luck {
						t.Errorf("%d nodes, %v, time up %v: got %v, want %v", n, kinds, timeUp, got, want)
					}
					if size := typical.size(); got == causeLocal && have[stepsAlike] > 0 && size != step {
						t.Errorf("%d nodes, %v: got a size of %v, want %v", n, kinds, size, step)
					}
				}
			}
		}
	}
}

// Nodes that moved nearly alike count together, within their error bounds.
//
// Source: ALGORITHM section 9 ("all alike").
func TestWhoseStepNearly(t *testing.T) {
	const ms = time.Millisecond
	at := func(size, wide time.Duration) *shift { return &shift{size - wide, size + wide} }
	for _, test := range []struct {
		name   string
		shifts []*shift
		want   cause
		size   time.Duration // of a typical step
	}{
		{"within the slack", []*shift{at(1000*ms, 0), at(1005*ms, 0), at(0, 0)}, causeLocal, 1005 * ms},
		{"beyond it", []*shift{at(1000*ms, 0), at(1006*ms, 0), at(0, 0)}, causeNodes, 1006 * ms},
		{"beyond it, but one shift is not sharp", []*shift{at(1000*ms, ms), at(1006*ms, 0), at(0, 0)}, causeLocal, 1006 * ms},
		{"an outlier", []*shift{at(1000*ms, 0), at(time.Hour, 0), at(1001*ms, 0)}, causeLocal, 1001 * ms},
		{"one back, two forward", []*shift{at(-1000*ms, 0), at(1000*ms, 0), at(1000*ms, 0)}, causeLocal, 1000 * ms},
		{"one each way", []*shift{at(-1000*ms, 0), at(1000*ms, 0), at(0, 0)}, causeNodes, 1000 * ms},
		{"all back", []*shift{at(-1000*ms, 0), at(-1001*ms, 0), at(-1002*ms, 0)}, causeLocal, -1001 * ms},
		{"nothing at all", []*shift{at(0, 0), nil, at(ms, 0)}, causeNodes, 0},
	} {
		if got, typical := whoseStep(len(test.shifts)/2+1, test.shifts, false); got != test.want || typical.size() != test.size {
			t.Errorf("%s: got %v by %v, want %v by %v", test.name, got, typical.size(), test.want, test.size)
		}
	}
}

// nothing ignores all Events.
type nothing struct{}

func (nothing) Asked(*Node, time.Duration, error) {}
func (nothing) Down(*Node, error)                 {}
func (nothing) Up(*Node)                          {}
func (nothing) Audited(*Node, *Audit, *Audit)     {}
func (nothing) Quarantined(*Node, time.Duration)  {}
func (nothing) Stepped(*Node, time.Duration)      {}
func (nothing) StoodStill(time.Duration)          {}
func (nothing) Warning(*Node, error)              {}

// clockOf is a clock that a test moves.
type clockOf func() time.Duration

func (c clockOf) Now() time.Duration { return c() }

// idle returns nodes that do not run. Their clock stands still at one hour.
func idle(t *testing.T, n int) *Set {
	t.Helper()
	masters := make([]redis.Options, n)
	for i := range masters {
		masters[i].Addr = fmt.Sprintf("%c:1", 'a'+i)
	}
	return NewSet(Config{
		Rules:   rules.New(),
		Timeout: 250 * time.Millisecond, MaxTTL: 10 * time.Second, Drift: 0.01, Quorum: n/2 + 1, Guard: true,
		Clock:  clock.NewLease(clockOf(func() time.Duration { return time.Hour })),
		Events: nothing{}, CameUp: func() {}, Corrected: func() {},
	}, masters)
}

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
		p := idle(t, len(test.at))
		for i, off := range test.at {
			if off == unknown {
				continue
			}
			// Read at different times; an earlier standstill does not matter.
			read := time.Hour - time.Duration(i)*time.Second
			p.nodes[i].sample.Store(&sample{micros: 1e15 + (read + off).Microseconds(), at: clock.Instant(read), err: ms})
		}
		p.conf.Clock.StoodStill(time.Minute)
		for i := range test.at {
			want := unknown
			if test.want != nil {
				want = test.want[i]
			}
			far, _, known := p.nodes[i].Skew()
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

// A node's clock may be off by half a quarantine.
//
// Source: ALGORITHM section 1, "MaxSkew".
func TestMaxSkew(t *testing.T) {
	const ms = time.Millisecond
	if got, want := MaxSkew(10*time.Second, 0.01), 5150*ms; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Within a round each node counts by what it saw since the step. A reply about a time before
// the round, or before the end of the last round that blamed the local clock, counts for
// nothing.
//
// Source: ALGORITHM section 9.
func TestWatchRound(t *testing.T) {
	const ms, at = time.Millisecond, clock.Instant(time.Hour)
	jump, steady := shift{time.Second, time.Second}, shift{0, 0}
	var out outcomes
	asked := func(at clock.Instant) sample { return sample{at: at.Add(2 * ms), err: 2 * ms} }
	wantOrders := func(t *testing.T, p *Set, want ...verdict) {
		t.Helper()
		for i, n := range p.nodes {
			if got := verdict(n.verdicts.Load()); got != want[i] {
				t.Errorf("verdict for node %d: got %v, want %v", i, got, want[i])
			}
		}
	}
	t.Run("a steady clock opens none", func(t *testing.T) {
		p := idle(t, 3)
		p.watch.observe(0, steady, asked(at), 0, &out)
		if p.watch.open.Load() {
			t.Error("a round was opened")
		}
	})
	t.Run("all others are asked", func(t *testing.T) {
		p := idle(t, 3)
		p.watch.observe(1, jump, asked(at), 0, &out)
		for i, n := range p.nodes {
			if got, want := n.wantSample.Load(), i != 1; got != want || len(n.wake) > 0 != want {
				t.Errorf("node %d asked for its clock: got %v and %d tokens, want %v", i, got, len(n.wake), want)
			}
		}
		wantOrders(t, p, 0, 0, 0)
	})
	t.Run("replies that were under way clear nothing", func(t *testing.T) {
		p := idle(t, 3)
		opened := at.Add(4 * ms)
		p.watch.observe(0, jump, asked(at), 0, &out)
		p.watch.observe(1, steady, asked(opened-1), 0, &out)
		p.watch.observe(2, steady, asked(opened-1), 0, &out)
		wantOrders(t, p, 0, 0, 0)
		p.watch.observe(1, steady, asked(opened), 0, &out)
		wantOrders(t, p, 0, 0, 0)
		p.watch.observe(2, steady, asked(opened), 0, &out)
		wantOrders(t, p, mark, 0, 0)
		if got := p.conf.Clock.Stood(); got != 0 {
			t.Errorf("stood still: got %d, want 0", got)
		}
	})
	t.Run("nor do they spoil what comes after them", func(t *testing.T) {
		p := idle(t, 3)
		p.watch.observe(0, jump, asked(at), 0, &out)
		p.watch.observe(1, steady, asked(at), 0, &out)
		p.watch.observe(1, jump, asked(at.Add(4*ms)), 0, &out)
		wantOrders(t, p, trust, trust, 0)
		if got := p.conf.Clock.Stood(); got != time.Second {
			t.Errorf("stood still: got %d, want a second", got)
		}
		if p.watch.open.Load() {
			t.Error("the round goes on")
		}
	})
	t.Run("of the time before a standstill", func(t *testing.T) {
		p := idle(t, 3)
		p.watch.observe(0, jump, asked(at), 0, &out)
		p.watch.observe(1, jump, asked(at), 0, &out)
		for _, n := range p.nodes {
			n.verdicts.Store(0)
		}
		p.watch.observe(2, jump, asked(at), 0, &out)
		wantOrders(t, p, 0, 0, trust)
		if p.watch.open.Load() || p.conf.Clock.Stood() != time.Second {
			t.Errorf("round open: %v, stood still: %v", p.watch.open.Load(), p.conf.Clock.Stood())
		}
	})
	t.Run("when time is up", func(t *testing.T) {
		p := idle(t, 5)
		p.watch.observe(3, jump, asked(at), 0, &out)
		p.watch.observe(4, jump, asked(at), 0, &out)
		p.watch.observe(0, steady, asked(at.Add(4*ms)), 0, &out)
		wantOrders(t, p, 0, 0, 0, 0, 0)
		p.watch.timeUp(3, &out)
		wantOrders(t, p, 0, 0, 0, doubt, doubt)
		if got := p.conf.Clock.Stood(); got != time.Second {
			t.Errorf("stood still: got %d, want a second, to be on the safe side", got)
		}
		p.watch.timeUp(3, &out)
		wantOrders(t, p, 0, 0, 0, doubt, doubt)
	})
}

// A node whose clock is suspect, but that is part of no round, gets an order all the same.
// Otherwise it would ask for orders for ever.
func TestWatchWithoutARound(t *testing.T) {
	p := idle(t, 3)
	var out outcomes
	p.watch.timeUp(1, &out)
	for i, want := range []verdict{0, doubt, 0} {
		if got := verdict(p.nodes[i].verdicts.Load()); got != want {
			t.Errorf("node %d: got order %d, want %d", i, got, want)
		}
	}
}

// A Reply to a request from before the correction of the clock tells nothing: one of its two
// times is wrong by the correction. The samples from before tell nothing either.
//
// Source: ALGORITHM section 9.
func TestWatchReplyAcrossACorrection(t *testing.T) {
	p := idle(t, 3)
	n := p.nodes[0]
	var out outcomes
	const micros = int64(1_700_000_000_000_000)
	look := func(micros int64, sent moment) (known bool) {
		n.observeLocked(micros, sent, n.now(), &out)
		return n.view.latest.known
	}
	if !look(micros, n.momentAt(n.now())) {
		t.Fatal("the first sample was not kept")
	}
	before, sent := *n.sample.Load(), n.momentAt(n.now())
	p.watch.epoch.Add(1)
	p.conf.Clock.StoodStill(time.Minute)
	look(micros+time.Minute.Microseconds(), sent)
	if got := *n.sample.Load(); got != before || n.view.suspect {
		t.Errorf("after a Reply from before: got sample %+v, suspect %v, want %+v and false", got, n.view.suspect, before)
	}
	look(micros+time.Minute.Microseconds(), n.momentAt(n.now()))
	if got := *n.sample.Load(); got == before || n.view.suspect || p.watch.open.Load() {
		t.Errorf("after the next: got sample %+v, suspect %v, round open %v, want a new sample, false, false", got, n.view.suspect, p.watch.open.Load())
	}
}
