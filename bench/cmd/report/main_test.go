package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wholeRun returns the results of a run in which each goal and each table has its figures, all of them 1.
func wholeRun() (text string) {
	metrics, cells := map[string]bool{}, map[string]bool{}
	for _, g := range goals {
		metrics[g.metric], metrics[g.by] = true, true
		for _, cell := range strings.Fields(g.cells) {
			cells[cell] = true
		}
	}
	for _, t := range tables {
		for _, r := range t.rows {
			for _, c := range t.columns {
				metrics[c.metric], cells[strings.Replace(r.cell, c.in[0], c.in[1], 1)] = true, true
			}
			cells[r.cell] = true
		}
	}
	delete(metrics, "")
	for cell := range cells {
		for _, who := range []string{ours, "redsync", "floor", "mutex", "rueidislock-3", "Lock"} {
			for round := 1; round <= 2; round++ {
				text += line(cell, who, round)
				for metric := range metrics {
					v := 1
					if metric == "overlaps" || metric == "falls" {
						v = 0
					}
					text += fmt.Sprint(" ", v, " ", metric)
				}
				text += "\n"
			}
		}
	}
	return "commit: abc\ncores: 2\n" + text
}

// line is the beginning of a result.
func line(cell, who string, round int) string {
	return fmt.Sprintf("Benchmark%s/round=%d/who=%s-2 1", cell, round, who)
}

// parsed reads results.
func parsed(t *testing.T, text string) set {
	t.Helper()
	s, err := read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPage(t *testing.T) {
	dir := t.TempDir()
	page, results := filepath.Join(dir, "page.md"), filepath.Join(dir, "results.txt")
	empty, err := os.ReadFile("../../RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	write := func(page0 []byte, text string) (string, error) {
		t.Helper()
		if err := errors.Join(os.WriteFile(page, page0, 0o666), os.WriteFile(results, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
		err := run([]string{"-page", page, results})
		got, _ := os.ReadFile(page)
		return string(got), err
	}
	whole := wholeRun()
	text, err := write(empty, whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Commit abc on", "| a free key, one caller, N=1: p50, times redsync's | ≤ 0.95 | 1 | 1 … 1 | **missed** |", "| 1 paused | `ours` | 1 µs |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if again, err := write([]byte(text), whole); err != nil || again != text {
		t.Errorf("got another page the second time, %v", err)
	}

	// What is missing does not go unnoticed, and neither does a page without a place for it.
	for _, cell := range []string{"Permits/K=8/how=back", leases, handOver} {
		var rest []string
		for l := range strings.Lines(whole) {
			if !strings.HasPrefix(l, "Benchmark"+cell+"/") {
				rest = append(rest, l)
			}
		}
		if got, err := write(empty, strings.Join(rest, "")); !errors.Is(err, errMissing) || got != string(empty) {
			t.Errorf("without %s: got %v, want that figures are missing, and the page as before", cell, err)
		}
	}
	if _, err := write([]byte("# Results\n"), whole); err == nil {
		t.Error("a page without places for tables")
	}

	// Two holders at a time, of this library or of another one.
	for who, want := range map[string]error{ours: errViolation, "redsync": nil} {
		text, err := write(empty, whole+line("Hot/more", who, 1)+" 3 overlaps\n--- FAIL: BenchmarkCycle/N=9\n")
		if !errors.Is(err, want) || !strings.Contains(text, "**VIOLATION** `"+who+"`: 3 times") || !strings.Contains(text, "**FAILED** BenchmarkCycle/N=9") {
			t.Errorf("%s had two holders: got %v in\n%.500s", who, err, text)
		}
	}
}

func TestGoals(t *testing.T) {
	s := parsed(t, strings.Join([]string{
		line("A", ours, 1) + " 10 p50 0 lost", line("A", ours, 2) + " 30 p50 0 lost", line("A", ours, 3) + " 20 p50 5 lost",
		line("A", "redsync", 1) + " 20 p50", line("A", "redsync", 2) + " 10 p50", line("A", "redsync", 3) + " 0 p50",
		line("B", ours, 1) + " 7 p50 4 wait",
	}, "\n"))
	for _, test := range []struct {
		goal goal
		want []string // without the name
	}{
		{goal{want: 20, cells: "A", metric: "p50"}, []string{"≤ 20", "20", "10 … 30", "met"}},
		{goal{want: 19.9, cells: "A", metric: "p50"}, []string{"≤ 19.9", "20", "10 … 30", "**missed**"}},
		{goal{want: 20, least: true, cells: "A", metric: "p50"}, []string{"≥ 20", "20", "10 … 30", "met"}},
		{goal{want: 19, cells: "B A", metric: "p50"}, []string{"≤ 19", "20", "10 … 30", "**missed**"}}, // the worse cell
		{goal{want: 19, least: true, cells: "B A", metric: "p50"}, []string{"≥ 19", "7", "7 … 7", "**missed**"}},
		// Ratios are of one round each: that of the medians would be 2.
		{goal{want: 1, cells: "A", metric: "p50", by: "p50", byWho: "redsync"}, []string{"≤ 1", "1.75", "0.5 … 3", "**missed**"}},
		{goal{want: 2, cells: "B", metric: "p50", by: "wait"}, []string{"≤ 2", "1.75", "1.75 … 1.75", "met"}},
		{goal{want: 1, cells: "B", metric: "p50", by: "p50", byCell: "A"}, []string{"≤ 1", "0.7", "0.7 … 0.7", "met"}},
		{goal{cells: "A", metric: "lost", never: true}, []string{"≤ 0", "5", "0 … 5", "**missed**"}}, // in one round of three
		{goal{cells: "A", metric: "lost"}, []string{"≤ 0", "0", "0 … 5", "met"}},
		{goal{cells: "A C", metric: "lost"}, nil},
	} {
		row, ok := test.goal.judge(s)
		if ok != (test.want != nil) || ok && !slices.Equal(row[1:], test.want) {
			t.Errorf("%+v: got %q, %v, want %q", test.goal, row, ok, test.want)
		}
	}
}

func TestRead(t *testing.T) {
	s := parsed(t, `cpu: A Processor  
BenchmarkCycle/N=3/callers=1/round=12/who=redsync-16   1   199 ns/op   250.5 p50-us
BenchmarkCycle/N=3/callers=1/round=1/who=ours-16   1   5 p50-us
BenchmarkCycle/N=3/callers=1/round=1/who=floor-16
a line of something else
--- FAIL: BenchmarkCycle/N=3/callers=1/round=1/who=floor
BenchmarkBeside/processes=1-16   1   7 turns
`)
	const cell = "Cycle/N=3/callers=1"
	if got := s.values[figure{cell, "redsync", "p50-us"}][12]; got != 250.5 || s.values[figure{cell, "redsync", "ns/op"}][12] != 199 {
		t.Errorf("got %v", s.values)
	}
	if !slices.Equal(s.who[cell], []string{ours, "redsync"}) || !slices.Equal(s.cells, []string{cell, "Beside/processes=1"}) {
		t.Errorf("got %q of %q", s.who, s.cells)
	}
	if s.values[figure{"Beside/processes=1", ours, "turns"}][0] != 7 || s.config["cpu"] != "A Processor" || len(s.failed) != 1 {
		t.Errorf("got %v, %v, %v", s.values, s.config, s.failed)
	}
	if _, err := read([]byte(strings.Repeat(line("A", ours, 1)+" 1 p50\n", 2))); err == nil {
		t.Error("two runs in one file pass for one")
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		unit unit
		v    float64
		want string
	}{
		{plain, 0, "0"}, {plain, 5, "5"}, {plain, 0.04567, "0.046"}, {plain, 0.996, "1.00"},
		{plain, 1.234, "1.23"}, {plain, 9.996, "10.0"}, {plain, 12.34, "12.3"}, {plain, 99.96, "100"},
		{plain, 123.4, "123"}, {plain, 999.6, "1,000"}, {plain, 1234, "1,230"}, {plain, 1234567, "1,230,000"},
		{micros, 0.25, "0.25 µs"}, {micros, 246, "246 µs"}, {micros, 999.6, "1.00 ms"}, {micros, 5033000, "5.03 s"}, {micros, 999900, "1.00 s"},
		{percent, 12, "12 %"}, {whole, 143395, "143,395"},
	} {
		if got := test.unit.text(test.v); got != test.want {
			t.Errorf("%v: got %q, want %q", test.v, got, test.want)
		}
	}
}
