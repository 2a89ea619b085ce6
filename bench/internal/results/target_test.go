package results

import (
	"strings"
	"testing"
)

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name   string
		target Target
		want   string
	}{
		{"nothing", Target{Want: 1}, "not measured"},
		{"just at most", Target{Want: 2, Values: []float64{2}}, "met"},
		{"more than at most", Target{Want: 2, Values: []float64{2.001}}, "**missed**"},
		{"just at least", Target{Want: 2, AtLeast: true, Values: []float64{2}}, "met"},
		{"less than at least", Target{Want: 2, AtLeast: true, Values: []float64{1.999}}, "**missed**"},
		{"the median decides, not the mean", Target{Want: 2, Values: []float64{1, 1, 1000}}, "met"},
		{"nor the best", Target{Want: 2, Values: []float64{0, 3, 3}}, "**missed**"},
	} {
		if got := test.target.Verdict(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestTargetTable(t *testing.T) {
	targets := Targets{
		{Name: "a", Want: 2, Unit: "ms", Values: []float64{3, 1, 2.5}},
		{Name: "b", Want: 0.7, AtLeast: true},
	}
	if got, want := targets.Table(), "|---|--:|--:|--:|--:|\n| a | ≤ 2 ms | 2.50 ms | 1 ms … 3 ms | **missed** |\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant one row\n%s", got, want)
	}
	if got := targets.Unmeasured(); got != "b" {
		t.Errorf("got %q, want b alone", got)
	}
}

// find returns the target whose name contains these words.
func find(t *testing.T, s Set, words string) Target {
	t.Helper()
	var found []Target
	for _, target := range s.Targets() {
		if strings.Contains(target.Name, words) {
			found = append(found, target)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d targets with %q, want 1", len(found), words)
	}
	return found[0]
}

func TestTargets(t *testing.T) {
	const hot, fault = "Hot/hold=1ms/procs=10/workers=50", "Faults/paused=2/g=1"
	record := func(cell, who string, values map[string]float64) Record {
		return Record{Rep: 1, Who: who, Cell: cell, Values: values}
	}
	s := Set{Records: []Record{
		record(free, Ours, map[string]float64{"p50-us": 74}),
		record(free, Redsync, map[string]float64{"p50-us": 100}),
		record(free, Floor, map[string]float64{"p50-us": 60}),
		record(hot, Ours, map[string]float64{"limit-%": 69, "jain": 0.96, "wait-p50-us": 10, "wait-max-us": 99, "overlaps": 0, "falls": 0}),
		record(fault, Ours, map[string]float64{"lock-p99-us": 5, "healthy-lock-p99-us": 2, "extend-p99-us": 3, "healthy-extend-p99-us": 2}),
		record(leases, Ours, map[string]float64{"client-cores": 0.16, "B/lease": 6144}),
		record(pass, Ours, map[string]float64{"commands/op": 6.8, "changes/s": 850}),
		record(pass, "rueidislock-3", map[string]float64{"changes/s": 1000}),
	}}
	for words, want := range map[string]string{
		"N=3: p50, times `redsync`":                    "met",
		"N=3: p50, times `floor`":                      "**missed**",
		"N=5: p50, times `floor`":                      "not measured",
		"50 workers, hold 1ms: hand-overs/s":           "**missed**",
		"50 workers, hold 1ms: Jain":                   "met",
		"50 workers, hold 1ms: longest wait":           "met",
		"2 paused of 5: p99 of lock":                   "**missed**",
		"2 paused of 5: p99 of extend":                 "met",
		"2 paused of 5: p99 of unlock":                 "not measured",
		"10,000 leases held and renewed":               "**missed**",
		"commands a lock":                              "met",
		"changes of owner a second":                    "**missed**",
		"memory of a lease, heap and stacks":           "met",
		"two holders at a time":                        "met",
		"stock: units sold too many or too few":        "not measured",
		"from Unlock to the next process, N=5, hold 0": "not measured",
	} {
		if got := find(t, s, words).Verdict(); got != want {
			t.Errorf("%s: got %s, want %s", words, got, want)
		}
	}

	// A median does not forgive what must never happen.
	for rep := 2; rep <= 5; rep++ {
		s.Records = append(s.Records, Record{Rep: rep, Who: Ours, Cell: hot, Values: map[string]float64{"overlaps": 0, "falls": 0}})
	}
	s.Records[len(s.Records)-1].Values["overlaps"] = 1
	if got := find(t, s, "two holders at a time").Verdict(); got != "**missed**" {
		t.Errorf("one overlap in five repetitions: got %s, want missed", got)
	}
}
