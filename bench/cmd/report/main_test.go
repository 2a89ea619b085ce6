package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/bench/internal/results"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                ".",
		"-quick":          "",
		"-quick -out x":   "x",
		"-only hot,stock": "", // a part does not replace the whole report
		"-from raw.txt":   ".",
	} {
		if o, err := parse(strings.Fields(args)); err != nil || o.out != want {
			t.Errorf("%q: got a report to %q, %v, want %q", args, o.out, err, want)
		}
	}
	for _, args := range []string{"-only cold", "-only hot,,stock", "hot"} {
		if _, err := parse(strings.Fields(args)); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%q: got %v, want an error", args, err)
		}
	}
}

// tiny has one short cell of each kind.
var tiny = plan{1, []benchmark{
	{"cycles", "Cycle/N=[15]$/g=(1|16)$/who=(ours|redsync)$", "20ms", 2},
	{"hot", "Hot/hold=0/procs=3/workers=10$/who=(ours|redsync)$|Hot/hold=1ms/procs=1/workers=10$/who=(ours|redsync)$", "1000x", 1},
	{"stock", "Stock/N=[05]/who=(ours|redsync|mutex)$", "24x", 1},
	{"faults", "Faults/who=(ours|redsync)$/slow=1$/g=1$", "2x", 1},
	{"benchmarks", "Pass/lockers=2", "40x", 0},
}}

// All kinds of benchmarks, with worker processes and servers.
func TestMeasure(t *testing.T) {
	redistest.Server(t)
	folder := t.TempDir()
	raw := filepath.Join(folder, "raw.txt")
	text, err := measure(t.Context(), options{quick: true, raw: raw}, tiny)
	if err != nil {
		t.Fatal(err)
	}
	set, err := results.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range set.Failures {
		t.Log(failure)
	}
	measured := map[string]map[string]bool{}
	for _, r := range set.Records {
		kind, _, _ := strings.Cut(r.Cell, "/")
		if measured[kind] == nil {
			measured[kind] = map[string]bool{}
		}
		measured[kind][r.Who] = true
		if r.Who == results.Ours && (r.Values["overlaps"] != 0 || r.Values["falls"] != 0 || r.Values["off"] != 0) {
			t.Errorf("%s: got %v, want nothing wrong", r.Cell, r.Values)
		}
		if r.Who == results.Ours && kind == "Hot" && r.Values["hand-overs/s"] <= 0 {
			t.Errorf("%s: no hand-over", r.Cell)
		}
		if kind == "Cycle" && (r.Rep < 1 || r.Rep > 2) {
			t.Errorf("%s: got repetition %d, want the round", r.Cell, r.Rep)
		}
	}
	for _, kind := range []string{"Cycle", "Hot", "Stock", "Faults"} {
		if !measured[kind][results.Ours] || !measured[kind][results.Redsync] {
			t.Errorf("%s: got %v, want ours and redsync", kind, measured[kind])
		}
	}
	for _, key := range append([]string{"cpu", "cores", "kernel", "go", "redis", "reps", "quick"}, results.Compared...) {
		if set.Config[key] == "" {
			t.Errorf("nothing about %s", key)
		}
	}
	if err := publish(folder, set); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"RESULTS.md", "pictures/latency.svg", "pictures/throughput.svg", "pictures/faults.svg"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: got %v, %v", name, info, err)
		}
	}

	// The file of results gives the same report.
	again := t.TempDir()
	if err := run(t.Context(), []string{"-from", raw, "-out", again}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(folder, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(again, "RESULTS.md"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %v,\n%s\nwant\n%s", err, got, want)
	}
}

func TestViolationFailsTheRun(t *testing.T) {
	raw := filepath.Join(t.TempDir(), "raw.txt")
	for who, want := range map[string]error{results.Redsync: nil, results.Ours: errViolation} {
		text := "rep: 1\nBenchmarkHot/hold=0/procs=3/workers=9/who=" + who + "-2 800 1 overlaps\n"
		if err := os.WriteFile(raw, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), []string{"-from", raw, "-out", t.TempDir()}); !errors.Is(err, want) {
			t.Errorf("%s let two in: got %v, want %v", who, err, want)
		}
	}
}

// A file of another kind does not replace the report.
func TestFileWithoutResults(t *testing.T) {
	raw, out := filepath.Join(t.TempDir(), "raw.json"), t.TempDir()
	if err := os.WriteFile(raw, []byte(`{"records": []}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-from", raw, "-out", out}); err == nil {
		t.Error("a report without results")
	}
	if files, err := os.ReadDir(out); err != nil || len(files) > 0 {
		t.Errorf("got files %v, %v, want none", files, err)
	}
}

// A benchmark that fails does not end the run, and shows.
func TestFailureShows(t *testing.T) {
	var text bytes.Buffer
	p := plan{1, []benchmark{{"stock", "Stock", "none", 1}, {"hot", "Hot", "none", 1}}}
	if err := p.run(t.Context(), []string{"stock"}, &text); err != nil {
		t.Fatal(err)
	}
	set, err := results.Read(text.Bytes())
	if err != nil || len(set.Failures) != 1 || !strings.Contains(set.Failures[0], "Stock") {
		t.Errorf("got %q, %v, want that Stock failed", set.Failures, err)
	}
}

// A plan without the cells of a target would report the target as not measured, for ever.
func TestFullPlanHasAllTargets(t *testing.T) {
	p := fullPlan()
	for _, name := range []string{
		"Cycle/N=1/g=1/who=redsync", "Cycle/N=3/g=16/who=ours", "Cycle/N=5/g=256/who=floor", "Cycle/N=0/g=1024/who=mutex",
		"Hot/hold=0/procs=1/workers=200/who=mutex", "Hot/hold=0/procs=10/workers=50/who=ours", "Hot/hold=1ms/procs=10/workers=10/who=ours",
		"Hot/hold=1ms/procs=10/workers=200/who=ours", "Stock/N=0/who=mutex", "Stock/N=5/who=ours", "Faults/who=ours/killed=1/g=1",
		"Faults/who=ours/paused=2/g=1", "Pass/lockers=2/who=rueidislock-3", "HandOver/N=3/who=ours", "Leases/rtt=0s/leases=10000",
		"Unequal/lockers=3/callers=1/trip=0s/mute=true", "SeveralContended/resources=1/of=6",
	} {
		runs := 0
		for _, b := range p.benchmarks {
			if picks(t, b.pattern, name) {
				runs++
			}
			if !slices.Contains(scenarios, b.scenario) {
				t.Errorf("%s: no -only has it", b.pattern)
			}
		}
		if runs != 1 {
			t.Errorf("%s: the plan has it %d times, want once", name, runs)
		}
	}
}

// picks reports whether go test -bench runs the benchmark of that name.
func picks(t *testing.T, pattern, name string) bool {
	t.Helper()
	parts := strings.Split(name, "/")
	for i, want := range strings.Split(pattern, "/") {
		if ok, err := regexp.MatchString(want, parts[i]); err != nil {
			t.Fatal(err)
		} else if !ok {
			return false
		}
	}
	return true
}
