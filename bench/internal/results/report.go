package results

import (
	_ "embed"
	"fmt"
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

// Has reports whether there are results of cells that match a pattern.
func (s Set) Has(pattern string) bool { return len(s.in(pattern)) > 0 }

// Compared are the modules whose versions matter for the figures. The versions are in the
// lines between the results.
var Compared = []string{
	"github.com/bsm/redislock",
	"github.com/go-redsync/redsync/v4",
	"github.com/redis/go-redis/v9",
	"github.com/redis/rueidis",
}

// MachineTable returns what was measured, and on what.
func (s Set) MachineTable() string {
	t := Table{Head: []string{"what", "which"}, Left: 2, Rows: [][]string{
		{"processor", fmt.Sprintf("%s, %s cores for clients and servers together", s.Config["cpu"], s.Config["cores"])},
		{"kernel", s.Config["kernel"]}, {"Go", s.Config["go"]}, {"Redis", s.Config["redis"]},
	}}
	for _, module := range Compared {
		t.Rows = append(t.Rows, []string{module, s.Config[module]})
	}
	return t.Markdown()
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
				lines = append(lines, fmt.Sprintf("- **VIOLATION** `%s`: %.0f %s (%s)", r.Who, n, v.what, r.Cell))
			}
		}
	}
	if len(lines) == 0 {
		return fmt.Sprintf("In each of %d contested runs the holders were compared by one clock: no two at a time, and no fencing token that did not rise.", runs)
	}
	return strings.Join(lines, "\n")
}

// cluster returns the number of masters of a cell.
func cluster(cell string) string {
	if n := param(cell, "N"); n != "0" {
		return "N=" + n
	}
	return "none"
}

// AloneTable returns what a cycle takes one goroutine.
func (s Set) AloneTable() string {
	return s.table("Cycle/N=*/g=1", "masters", cluster, []column{{"p50", "p50-us", micros}, {"p99", "p99-us", micros}})
}

// manyGoroutines matches the end of the name of a cell: ten or more.
const manyGoroutines = "g=[0-9][0-9]*"

// ThroughputTable returns the rates of many goroutines, a column for each number of them.
func (s Set) ThroughputTable() string {
	const many = "Cycle/N=*/" + manyGoroutines
	sizes := s.params(many, "g")
	t := Table{Head: []string{"masters", "who"}, Left: 2}
	for _, g := range sizes {
		t.Head = append(t.Head, g+" goroutines")
	}
	for _, n := range s.params(many, "N") {
		cells := "Cycle/N=" + n + "/g="
		for _, who := range s.who(cells + "*") {
			row := []string{cluster(cells), "`" + who + "`"}
			for _, g := range sizes {
				text := s.text(cells+g, who, "cycles/s", number)
				if failed := sum(s.Values(cells+g, who, "failed")); failed > 0 {
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
	return s.table("Cycle/N=*/g=256", "masters", cluster, []column{
		{"client CPU", "client-cpu-us/op", micros}, {"commands", "commands/op", number}, {"a master's commands", "busy-us/op", micros},
		{"its scripts", "script-us/op", micros}, {"all masters' CPU", "masters-cpu-us/op", micros}, {"bytes to the masters", "sent-B/op", number},
	})
}

// Alone returns what a critical section, or a round trip, takes without contention.
func (s Set) Alone(hold, metric string) string {
	for _, cell := range s.cells("Hot/hold=" + hold + "/*/*") {
		return s.text(cell, Ours, metric, micros)
	}
	return missing
}

// HotTable has the contests with the same hold and number of processes.
type HotTable struct{ Hold, Procs, Table string }

// HotTables returns the contests for one key.
func (s Set) HotTables() (tables []HotTable) {
	for _, hold := range s.params("Hot/*/*/*", "hold") {
		held := "Hot/hold=" + hold
		for _, procs := range s.params(held+"/*/*", "procs") {
			cells := held + "/procs=" + procs + "/*"
			tables = append(tables, HotTable{hold, procs, s.table(cells, "workers", func(c string) string { return param(c, "workers") }, []column{
				{"hand-overs/s", "hand-overs/s", number}, {"of the limit", "limit-%", percent}, {"hold p50", "hold-p50-us", micros},
				{"wait p50", "wait-p50-us", micros}, {"p99", "wait-p99-us", micros}, {"max", "wait-max-us", micros},
				{"next process p50", "across-p50-us", micros}, {"p99", "across-p99-us", micros},
				{"Jain", "jain", number}, {"least share", "least-share", number},
				{"commands", "commands/turn", number}, {"client CPU", "client-cpu-us/turn", micros}, {"failed, in all", "failed", count},
			})})
		}
	}
	return tables
}

// faultName returns the fault in the name of a cell: "2 killed" of "Faults/killed=2/g=1".
func faultName(cell string) string {
	what, many, _ := strings.Cut(strings.Split(cell, "/")[1], "=")
	return many + " " + what
}

// FaultTable returns what the operations take before and after a fault.
func (s Set) FaultTable() string {
	var columns []column
	for _, op := range operations {
		columns = append(columns, column{op + " p50", op + "-p50-us", micros}, column{op + " p99", op + "-p99-us", micros},
			column{"healthy p99", "healthy-" + op + "-p99-us", micros})
	}
	columns = append(columns, column{"cycles", "cycles", count}, column{"failed, in all", "failed", count})
	return s.table(faultCells, "fault", faultName, columns)
}

// StockTable returns the sales.
func (s Set) StockTable() string {
	return s.table("Stock/*", "masters", cluster, []column{
		{"processes", "processes", number}, {"workers", "workers", number}, {"time", "s", seconds}, {"attempts", "done", count},
		{"not made in time, in all", "undone", count}, {"stock", "stock", count}, {"sold", "sold", count}, {"failed, in all", "failed", count},
	})
}
