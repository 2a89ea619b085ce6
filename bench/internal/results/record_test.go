package results

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
		ok     bool
	}{
		{nil, 0, false},
		{[]float64{7}, 7, true},
		{[]float64{9, 1}, 5, true},
		{[]float64{9, 1, 2}, 2, true},
		{[]float64{1000, 3, 1, 2, 4}, 3, true}, // an outlier counts as one value
	} {
		given := slices.Clone(test.values)
		if got, ok := Median(given); got != test.want || ok != test.ok {
			t.Errorf("%v: got %v, %v, want %v, %v", test.values, got, ok, test.want, test.ok)
		}
		if !slices.Equal(given, test.values) {
			t.Errorf("%v became %v", test.values, given)
		}
	}
}

var free = Cell{Scenario: Cycles, N: 3, Goroutines: 1}

func rec(rep int, who string, c Cell, metric string, v float64) Record {
	return Record{Rep: rep, Who: who, Cell: c, Values: map[string]float64{metric: v}}
}

// A ratio is taken within one repetition: the ratio of the medians would be different.
func TestRatiosAreWithinRepetitions(t *testing.T) {
	s := Set{Records: []Record{
		rec(2, Ours, free, "p50", 30), rec(1, Ours, free, "p50", 10), rec(3, Ours, free, "p50", 20),
		rec(1, Redsync, free, "p50", 20), rec(2, Redsync, free, "p50", 10), rec(4, Redsync, free, "p50", 1),
		rec(3, Redsync, free, "p50", 0), // no ratio
	}}
	got := s.Ratios(Figure{free, Ours, "p50"}, Figure{free, Redsync, "p50"})
	if want := []float64{0.5, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	other := free
	other.N = 5
	if got := s.Ratios(Figure{free, Ours, "p50"}, Figure{other, Redsync, "p50"}); len(got) != 0 {
		t.Errorf("got %v for a cell that was not measured, want none", got)
	}
}
