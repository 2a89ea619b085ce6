package results

import (
	"reflect"
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

const free = "Cycle/N=3/g=1"

func rec(rep int, who, cell, metric string, v float64) Record {
	return Record{Rep: rep, Who: who, Cell: cell, Values: map[string]float64{metric: v}}
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
	if got := s.Ratios(Figure{free, Ours, "p50"}, Figure{"Cycle/N=5/g=1", Redsync, "p50"}); len(got) != 0 {
		t.Errorf("got %v for a cell that was not measured, want none", got)
	}
}

func TestRead(t *testing.T) {
	s, err := Read([]byte(`cpu: A Processor  
cores: 2
rep: 1
BenchmarkCycle/N=3/g=1/who=redsync-16   500   199 ns/op   250.5 p50-us
BenchmarkCycle/N=3/g=1/who=ours-16
ours wrote a line
BenchmarkHot/hold=1ms/procs=3/who=floor-2   --- FAIL: BenchmarkHot/hold=1ms/procs=3/who=floor-2
    hot_test.go:53: EOF
--- FAIL: BenchmarkHot/hold=1ms/procs=3
--- FAIL: BenchmarkHot
rep: 2
BenchmarkUnequal/lockers=2-16   40   7.5 longest-ms
--- FAIL: go test -bench 'Hot': exit status 1
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{1, Redsync, free, map[string]float64{"ns/op": 199, "p50-us": 250.5}},
		{2, Ours, "Unequal/lockers=2", map[string]float64{"longest-ms": 7.5}},
	}
	if !reflect.DeepEqual(s.Records, want) {
		t.Errorf("got %+v, want %+v", s.Records, want)
	}
	if s.Config["cpu"] != "A Processor" || s.Config["cores"] != "2" {
		t.Errorf("got %q of the machine", s.Config)
	}
	if want := []string{"BenchmarkHot/hold=1ms/procs=3/who=floor-2", "go test -bench 'Hot': exit status 1"}; !slices.Equal(s.Failures, want) {
		t.Errorf("got failures %q, want %q", s.Failures, want)
	}
}

func TestCells(t *testing.T) {
	s := Set{Records: []Record{
		rec(1, Redsync, "Cycle/N=3/g=16", "x", 1), rec(1, Ours, "Cycle/N=3/g=16", "x", 1), rec(1, Ours, free, "x", 1), rec(1, Ours, "Cycle/N=1/g=256", "x", 1),
	}}
	if got, want := s.cells("Cycle/N=3/*"), []string{"Cycle/N=3/g=16", free}; !slices.Equal(got, want) {
		t.Errorf("got cells %q, want %q", got, want)
	}
	if got, want := s.params("Cycle/*/"+manyGoroutines, "g"), []string{"16", "256"}; !slices.Equal(got, want) {
		t.Errorf("got values %q, want %q", got, want)
	}
	if got, want := s.who("Cycle/N=3/*"), []string{Ours, Redsync}; !slices.Equal(got, want) {
		t.Errorf("got contenders %q, want %q", got, want)
	}
}
