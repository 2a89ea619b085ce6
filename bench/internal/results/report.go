package results

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

//go:embed report.tmpl
var reportText string

var reportTemplate = template.Must(template.New("report").Parse(reportText))

// report is a set as the template sees it.
type report struct {
	Set
	pictures string // their folder; empty: none
}

// Markdown returns the whole report. pictures is the path of the pictures' folder, relative to
// the report; if it is empty, the report has no pictures.
func (s Set) Markdown(pictures string) string {
	var b strings.Builder
	if err := reportTemplate.Execute(&b, report{s, pictures}); err != nil {
		panic(err) // the template calls something that is not there
	}
	return b.String()
}

// Picture returns a picture as a paragraph.
func (r report) Picture(name, text string) string {
	if r.pictures == "" {
		return ""
	}
	return fmt.Sprintf("\n![%s](%s/%s.svg)\n", text, r.pictures, name)
}

func scenario(name string) func(Cell) bool { return func(c Cell) bool { return c.Scenario == name } }

// Has reports whether there are records of a scenario.
func (s Set) Has(name string) bool { return len(s.cells(scenario(name))) > 0 }

// MachineTable returns what was measured, and on what.
func (s Set) MachineTable() string {
	m := s.Machine
	t := Table{Head: []string{"what", "which"}, Left: 2, Rows: [][]string{
		{"processor", fmt.Sprintf("%s, %d cores for clients and servers together", m.CPU, m.Cores)},
		{"kernel", m.Kernel}, {"Go", m.Go}, {"Redis", m.Redis},
	}}
	for _, mod := range m.Modules {
		t.Rows = append(t.Rows, []string{mod.Path, mod.Version})
	}
	return t.Markdown()
}

// TargetTable returns the targets that were measured.
func (s Set) TargetTable() string { return TargetTable(s.Targets()).Markdown() }

// Unmeasured returns the targets that were not measured.
func (s Set) Unmeasured() string {
	names := Unmeasured(s.Targets())
	if len(names) > 10 {
		return fmt.Sprintf("%d targets", len(names))
	}
	return strings.Join(names, "; ")
}

// Violations returns the contenders that let two holders in at a time, or fencing tokens fall.
func (s Set) Violations() string {
	runs := 0
	var lines []string
	for _, r := range s.Records {
		if _, ok := r.Values["overlaps"]; !ok {
			continue
		}
		runs++
		for _, v := range []struct{ metric, what string }{
			{"overlaps", "times two holders at once"}, {"falls", "times a fencing token that did not rise"},
		} {
			if n := r.Values[v.metric]; n > 0 {
				lines = append(lines, fmt.Sprintf("- **VIOLATION** `%s`: %.0f %s (%s)", r.Who, n, v.what, r.Cell.where()))
			}
		}
	}
	if len(lines) == 0 {
		return fmt.Sprintf("In each of %d contested runs the holders were compared by one clock: no two at a time, and no fencing token that did not rise.", runs)
	}
	return strings.Join(lines, "\n")
}

// Failures returns the cells that ended with an error and without a figure.
func (s Set) Failures() string {
	var lines []string
	for _, r := range s.Records {
		if r.Error != "" && len(r.Values) == 0 {
			lines = append(lines, fmt.Sprintf("- `%s`, repetition %d (%s): %s", r.Who, r.Rep, r.Cell.where(), strings.ReplaceAll(r.Error, "\n", "; ")))
		}
	}
	return strings.Join(lines, "\n")
}

func (c Cell) where() string {
	text := c.Scenario
	if c.Bench != "" {
		text += ", " + c.Bench
	} else {
		text += fmt.Sprintf(", N=%d", c.N)
	}
	if c.Goroutines > 0 {
		text += fmt.Sprintf(", %d goroutines", c.Goroutines)
	}
	if c.Procs > 0 {
		text += fmt.Sprintf(", %d workers in %d processes, hold %s", c.Workers, c.Procs, c.Hold)
	}
	return text
}

// LeftOut returns why contenders are missing from a scenario, as a paragraph.
func (s Set) LeftOut(name string) string {
	var lines []string
	for _, r := range s.Records {
		line := fmt.Sprintf("`%s`: %s", r.Who, r.LeftOut)
		if r.Cell.Scenario == name && r.LeftOut != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	return "\nLeft out: " + strings.Join(lines, "; ") + ".\n"
}

func clusterName(c Cell) string {
	if c.N == 0 {
		return "none"
	}
	return fmt.Sprintf("N=%d", c.N)
}

// AloneTable returns what a cycle takes one goroutine.
func (s Set) AloneTable() string {
	alone := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines == 1 }
	return s.table(alone, "masters", clusterName, []column{{"p50", "p50", micros}, {"p99", "p99", micros}})
}

// ThroughputTable returns the rates of many goroutines, a column for each number of them.
func (s Set) ThroughputTable() string {
	many := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines > 1 }
	sizes := s.axis(many, goroutines)
	t := Table{Head: []string{"masters", "who"}, Left: 2}
	for _, g := range sizes {
		t.Head = append(t.Head, fmt.Sprintf("%d goroutines", g))
	}
	for _, n := range s.axis(many, masters) {
		for _, who := range s.who(func(c Cell) bool { return many(c) && c.N == n }) {
			row := []string{clusterName(Cell{N: n}), "`" + who + "`"}
			for _, g := range sizes {
				c := Cell{Scenario: Cycles, N: n, Goroutines: g}
				text := s.text(c, who, "rate", number)
				if failed := sum(s.Values(c, who, "failed")); failed > 0 {
					text += fmt.Sprintf(" (%s failed in all)", count(failed))
				}
				row = append(row, text)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t.Markdown()
}

// CostTable returns what a cycle costs.
func (s Set) CostTable() string {
	return s.table(func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines == 256 }, "masters", clusterName, []column{
		{"client CPU", "cpu", micros}, {"commands", "commands", number}, {"a master's commands", "busy", micros},
		{"its scripts", "script", micros}, {"all masters' CPU", "masters", micros}, {"bytes to the masters", "bytes", number},
	})
}

// Probe returns a base of comparison for the hand-overs.
func (s Set) Probe(metric string) string {
	return s.text(Cell{Scenario: Probe}, Probe, metric, micros)
}

// OfLimit returns the rate of hand-overs as a percentage of the limit: a hand-over takes at
// least the critical section without contention, and two round trips, in µs.
func OfLimit(rate, section, roundTrip float64) float64 {
	return 100 * rate * (section + 2*roundTrip) / 1e6
}

// HotTable has the contests with the same hold and number of processes.
type HotTable struct {
	Hold  string
	Procs int
	Table string
}

// HotTables returns the contests for one key.
func (s Set) HotTables() (tables []HotTable) {
	for _, hold := range []string{NoHold, ShortHold} {
		held := func(c Cell) bool { return c.Scenario == Hot && c.Hold == hold }
		for _, n := range s.axis(held, procs) {
			in := func(c Cell) bool { return held(c) && c.Procs == n }
			tables = append(tables, HotTable{hold, n, s.table(in, "workers", func(c Cell) string { return fmt.Sprint(c.Workers) }, []column{
				{"hand-overs/s", "rate", number}, {"of the limit", "limit", percent}, {"hold p50", "hold.p50", micros},
				{"wait p50", "wait.p50", micros}, {"p99", "wait.p99", micros}, {"max", "wait.max", micros},
				{"next process p50", "across.p50", micros}, {"p99", "across.p99", micros},
				{"Jain", "jain", number}, {"least share", "least", number},
				{"commands", "commands", number}, {"client CPU", "cpu", micros}, {"failed, in all", "failed", count},
			})})
		}
	}
	return tables
}

// faultName returns the fault in the name of a benchmark: "2 killed" of "Faults/killed=2/g=1".
func faultName(c Cell) string {
	_, name, _ := strings.Cut(c.Bench, "/")
	name, _, _ = strings.Cut(name, "/")
	what, many, _ := strings.Cut(name, "=")
	return many + " " + what
}

// FaultTable returns what the operations take before and after a fault.
func (s Set) FaultTable() string {
	var columns []column
	for _, op := range Operations {
		columns = append(columns, column{op + " p50", op + "-p50-us", micros}, column{op + " p99", op + "-p99-us", micros},
			column{"healthy p99", "healthy-" + op + "-p99-us", micros})
	}
	columns = append(columns, column{"cycles", "cycles", count}, column{"failed, in all", "failed", count})
	return s.table(scenario(Faults), "fault", faultName, columns)
}

// StockTable returns the sales.
func (s Set) StockTable() string {
	return s.table(scenario(Stock), "masters", clusterName, []column{
		{"processes", "procs", number}, {"workers", "workers", number}, {"time", "seconds", seconds}, {"attempts", "done", count},
		{"not made in time, in all", "undone", count}, {"stock", "stock", count}, {"sold", "sold", count}, {"failed, in all", "failed", count},
	})
}
