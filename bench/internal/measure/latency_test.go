package measure

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Percentiles of merged histograms are those of all durations together, to 1 %, even if the
// histograms were text in between. A mean of percentiles would not be.
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
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var back Latency
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if back.Count() != 2000 {
			t.Fatalf("got %d latencies out of the text, want 2000", back.Count())
		}
		merged.Merge(back)
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
	var none Latency
	if none.Count() != 0 || none.Quantile(99) != 0 {
		t.Errorf("got %d, %v of nothing, want 0", none.Count(), none.Quantile(99))
	}
	text, err := json.Marshal(none)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &none); err != nil || none.Count() != 0 {
		t.Errorf("nothing, as text and back: got %d, %v", none.Count(), err)
	}
	l := NewLatency()
	l.Merge(none)
	l.Record(-time.Second)
	l.Record(time.Hour)
	if got := l.Quantile(100); l.Count() != 2 || got < longest {
		t.Errorf("got %d and at most %v, want 2 and the longest there is", l.Count(), got)
	}
	for _, broken := range []string{`"no histogram"`, `7`} {
		if err := json.Unmarshal([]byte(broken), &l); err == nil {
			t.Errorf("%s passes for a histogram", broken)
		}
	}
}
