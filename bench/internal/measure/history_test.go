package measure

import (
	"math"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestJain(t *testing.T) {
	for _, test := range []struct {
		shares []int
		want   float64
	}{
		{nil, 0}, {[]int{0, 0}, 0}, {[]int{3}, 1}, {[]int{7, 7, 7}, 1}, {[]int{1, 0, 0, 0}, 0.25}, {[]int{1, 2, 3}, 36.0 / 42},
	} {
		if got := Jain(test.shares); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%v: got %v, want %v", test.shares, got, test.want)
		}
	}
}

func TestLeast(t *testing.T) {
	for _, test := range []struct {
		shares []int
		want   float64
	}{
		{nil, 0}, {[]int{0, 0}, 0}, {[]int{3}, 1}, {[]int{7, 7, 7}, 1}, {[]int{4, 0}, 0}, {[]int{1, 2, 3}, 0.5},
	} {
		if got := Least(test.shares); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%v: got %v, want %v", test.shares, got, test.want)
		}
	}
}

// section returns a section after one millisecond of waiting.
func section(worker int, start, end time.Duration, fence int64) Section {
	return Section{Worker: worker, Asked: start - ms, Start: start, End: end, Fence: fence}
}

func TestHistory(t *testing.T) {
	h := NewHistory(Contest{Start: 10 * ms, For: 15 * ms}, []int{2, 1}, []Attempts{
		{Sections: []Section{section(0, 11*ms, 12*ms, 5), section(1, 14*ms, 15*ms, 6)}, Waiting: []time.Duration{50 * ms}, Outcome: Outcome{1, "no luck", 2, ms}},
		{Sections: []Section{section(0, 20*ms, 22*ms, 9)}, Outcome: Outcome{2, "", 3, 2 * ms}},
	})
	if want := (Outcome{3, "no luck", 5, 3 * ms}); h.Outcome != want {
		t.Errorf("got %+v, want %+v", h.Outcome, want)
	}
	if h.HandOvers != 3 || h.Span != 15*ms || h.Overlaps != 0 || h.Falls != 0 || h.Jain != 1 {
		t.Errorf("got %+v, want 3 in 15 ms, all with the same share and nothing wrong", h)
	}
	about := func(what string, l Latency, count int64, want time.Duration) {
		t.Helper()
		if got := l.Quantile(100); l.Count() != count || got < want || got > want+want/50 {
			t.Errorf("%s: got %d, at most %v, want %d, %v", what, l.Count(), got, count, want)
		}
	}
	about("across", h.Across, 1, 5*ms)
	about("waiting, with a worker that had nothing", h.Wait, 4, 50*ms)
	about("holding", h.Hold, 3, 2*ms)
}

// If no worker waited at the end, a contest lasts until its last unlock. If all workers got
// stuck, it lasts to its end.
func TestSpan(t *testing.T) {
	c := Contest{Start: 10 * ms, For: 50 * ms}
	one := []Section{section(0, 12*ms, 30*ms, 0)}
	if h := NewHistory(c, []int{1}, []Attempts{{Sections: one}}); h.Span != 20*ms {
		t.Errorf("all rounds done: got %v, want 20 ms", h.Span)
	}
	if h := NewHistory(c, []int{1}, []Attempts{{Sections: one, Waiting: []time.Duration{30 * ms}}}); h.Span != 50*ms {
		t.Errorf("stuck after the first: got %v, want 50 ms", h.Span)
	}
}

func TestHistorySeesWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		name            string
		one, other      []Section
		overlaps, falls int
	}{
		{"nothing", nil, nil, 0, 0},
		{"at the same moment one ends and the next begins", []Section{section(0, 1*ms, 2*ms, 1)}, []Section{section(0, 2*ms, 3*ms, 2)}, 0, 0},
		{"the next begins before", []Section{section(0, 1*ms, 3*ms, 1)}, []Section{section(0, 2*ms, 4*ms, 2)}, 1, 0},
		{"in one process", []Section{section(0, 1*ms, 3*ms, 1), section(0, 2*ms, 4*ms, 2)}, nil, 1, 0},
		{"within a long section, and after a short section in it", []Section{section(0, 1*ms, 9*ms, 1)},
			[]Section{section(0, 2*ms, 3*ms, 2), section(0, 5*ms, 6*ms, 3)}, 2, 0},
		{"a fencing token that falls", []Section{section(0, 1*ms, 2*ms, 7)}, []Section{section(0, 3*ms, 4*ms, 6)}, 0, 1},
		{"an equal token", []Section{section(0, 1*ms, 2*ms, 7)}, []Section{section(0, 3*ms, 4*ms, 7)}, 0, 1},
		{"below a token from long before", []Section{section(0, 1*ms, 2*ms, 9), section(0, 3*ms, 4*ms, 5)},
			[]Section{section(0, 5*ms, 6*ms, 8)}, 0, 2},
		{"without fencing tokens", []Section{section(0, 1*ms, 2*ms, 0)}, []Section{section(0, 3*ms, 4*ms, 0)}, 0, 0},
	} {
		h := NewHistory(Contest{}, []int{1, 1}, []Attempts{{Sections: test.one}, {Sections: test.other}})
		if h.Overlaps != test.overlaps || h.Falls != test.falls {
			t.Errorf("%s: got %d overlaps and %d falls, want %d and %d", test.name, h.Overlaps, h.Falls, test.overlaps, test.falls)
		}
	}
}
