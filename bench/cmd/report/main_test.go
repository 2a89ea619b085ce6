package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/bench/internal/results"
	"github.com/d0720281/redlock/internal/redistest"
)

// The worker processes of the tests are this binary.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		work(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                ".",
		"-quick":          "",
		"-quick -out x":   "x",
		"-only hot,stock": "", // a part does not replace the whole report
		"-from raw.json":  ".",
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

// tiny returns a plan with one short cell of each kind.
func tiny() plan {
	p := quickPlan()
	p.masters = []int{1, 5}
	p.goroutines = []int{1, 20}
	p.cycles, p.hotTime = 20*time.Millisecond, time.Second
	p.hot = []contest{{1, 4, results.NoHold}, {3, 6, results.ShortHold}}
	p.stock = stockPlan{units: 10, procs: 2, workers: 4, attempts: 3, limit: 2 * time.Second}
	p.faults = []benchmark{{"Faults/who=(ours|redsync)$/slow=1$/g=1$", 2, false}}
	p.benchmarks = []benchmark{{"Cycle/who=(ours|redsync)$/N=1/g=1$", 3, false}}
	return p
}

// All scenarios, with worker processes and servers.
func TestMeasureAll(t *testing.T) {
	redistest.Server(t)
	set, err := measureAll(t.Context(), options{quick: true}, tiny())
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]map[string]bool{}
	for _, r := range set.Records {
		if r.Error != "" {
			t.Logf("%s, %+v: %s", r.Who, r.Cell, r.Error)
		}
		if r.LeftOut != "" && len(r.Values) > 0 {
			t.Errorf("%s, %+v: left out, with values", r.Who, r.Cell)
		}
		if len(r.Values) > 0 {
			if measured[r.Cell.Scenario] == nil {
				measured[r.Cell.Scenario] = map[string]bool{}
			}
			measured[r.Cell.Scenario][r.Who] = true
		}
		if r.Who == results.Ours && (r.Values["overlaps"] != 0 || r.Values["falls"] != 0 || r.Values["off"] != 0) {
			t.Errorf("%+v: got %v, want nothing wrong", r.Cell, r.Values)
		}
		if r.Who == results.Ours && r.Cell.Scenario == results.Hot && len(r.Values) > 0 && r.Values["rate"] <= 0 {
			t.Errorf("%+v: no hand-over", r.Cell)
		}
	}
	for _, scenario := range scenarioNames() {
		for _, who := range []string{results.Ours, results.Redsync} {
			if !measured[scenario][who] {
				t.Errorf("%s: nothing of %s", scenario, who)
			}
		}
	}
	folder := t.TempDir()
	if err := publish(folder, set); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"RESULTS.md", "pictures/latency.svg", "pictures/throughput.svg", "pictures/faults.svg"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: got %v, %v", name, info, err)
		}
	}

	// The file of records gives the same report.
	raw, again := filepath.Join(folder, "raw.json"), t.TempDir()
	if err := store(raw, set); err != nil {
		t.Fatal(err)
	}
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
	raw := filepath.Join(t.TempDir(), "raw.json")
	for who, want := range map[string]error{results.Redsync: nil, results.Ours: errViolation} {
		set := results.Set{Reps: 1, Records: []results.Record{{
			Rep: 1, Who: who, Cell: results.Cell{Scenario: results.Hot, N: 5}, Values: map[string]float64{"overlaps": 1},
		}}}
		if err := store(raw, set); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), []string{"-from", raw, "-out", t.TempDir()}); !errors.Is(err, want) {
			t.Errorf("%s let two in: got %v, want %v", who, err, want)
		}
	}
}
