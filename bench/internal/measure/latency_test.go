package measure

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Percentiles of merged histograms are those of all durations together, to 1 %. A mean of
// percentiles would not be.
func TestMergedPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	merged := NewLatency()
	for part := range 3 {
		l := NewLatency()
		for range 2000 {
			d := time.Duration(random.ExpFloat64() * float64(time.Millisecond) * float64(int(1)<<(4*part)))
			all = append(all, d)
			l.Record(d)
		}
		merged.Merge(l)
	}
	slices.Sort(all)
	for _, percent := range []float64{1, 50, 90, 99, 100} {
		want := all[max(0, int(percent/100*float64(len(all)))-1)]
		got := merged.Quantile(percent)
		if diff := got - want; diff < -want/50 || diff > want/50 {
			t.Errorf("p%v: got %v, want %v", percent, got, want)
		}
	}
}

func TestLatencyEdges(t *testing.T) {
	l := NewLatency()
	l.Merge(NewLatency())
	if l.Count() != 0 || l.Quantile(99) != 0 {
		t.Errorf("got %d, %v of nothing, want 0", l.Count(), l.Quantile(99))
	}
	l.Record(-time.Second)
	l.Record(time.Hour)
	if got := l.Quantile(100); l.Count() != 2 || got < longest {
		t.Errorf("got %d and at most %v, want 2 and the longest there is", l.Count(), got)
	}
	if got := Micros(1500 * time.Nanosecond); got != 1.5 {
		t.Errorf("got %v µs of 1500 ns, want 1.5", got)
	}
}
