package results

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// column is a figure of a table: its heading, and its format.
type column struct {
	head   string
	metric string
	text   func(float64) string
	total  bool // show the sum over all repetitions, not the median
}

// Markdown returns the whole report. pictures is the path of the pictures' folder, relative to
// the report; if it is empty, the report has no pictures.
func (s Set) Markdown(pictures string) string {
	var b strings.Builder
	part := func(title string, paragraphs ...string) {
		fmt.Fprintf(&b, "\n## %s\n", title)
		for _, p := range paragraphs {
			if p != "" {
				fmt.Fprintf(&b, "\n%s\n", strings.TrimSuffix(p, "\n"))
			}
		}
	}
	picture := func(name, text string) string {
		if pictures == "" {
			return ""
		}
		return fmt.Sprintf("![%s](%s/%s.svg)", text, pictures, name)
	}
	b.WriteString("# Results\n\n")
	b.WriteString(s.opening() + "\n")
	if p := picture("faults", "What Lock takes while masters are killed, paused or slow"); p != "" && s.has(scenario(Faults)) {
		b.WriteString("\n" + p + "\n")
	}
	part("Machine", s.machine())
	targets := s.Targets()
	unmeasured := ""
	switch names := Unmeasured(targets); {
	case len(names) > 10:
		unmeasured = fmt.Sprintf("Not measured in this run: %d targets.", len(names))
	case len(names) > 0:
		unmeasured = "Not measured in this run: " + strings.Join(names, "; ") + "."
	}
	part("Targets", "Ratios are of two figures of the same repetition. The median of the repetitions counts.",
		TargetTable(targets).Markdown(), unmeasured)
	if lines := s.failures(); len(lines) > 0 {
		part("Cells that could not be measured", strings.Join(lines, "\n"))
	}
	part("Exclusion", s.violations())
	if in := scenario(Cycles); s.has(in) {
		part("One goroutine, a free key", "Lock and Unlock, 50th and 99th percentile.",
			s.latencyTable().Markdown(), s.omitted(in), picture("latency", "What a cycle takes"))
		part("Many goroutines, keys of their own", "Successful cycles in a second.", s.throughputTable().Markdown(),
			"What a cycle costs with 256 goroutines: processor time of the client with the kernel's part, commands that it sends to all "+
				"masters together (a script is one), and what one master spends in commands and in the scripts among them.",
			s.costTable().Markdown(), picture("throughput", "Cycles in a second"))
	}
	if in := scenario(Hot); s.has(in) {
		part("One key, many workers", append(append([]string{s.limits()}, s.hotParts()...),
			s.omitted(in), picture("hot", "Hand-overs in a second"))...)
		part("From Unlock to the next process", "From the call of Unlock until a worker of another process has the key.",
			s.acrossTable().Markdown())
	}
	if in := scenario(Faults); s.has(in) {
		part("Faults", "Five masters, one goroutine; before the fault, and after it with the first calls. *slow*: 50 ms more for "+
			"a round trip. No cycle begins after the time of a cell: a contender with few cycles took that long for each. If the first "+
			"cycle took longer than the cell, it is not measured in further repetitions.",
			s.faultTable().Markdown(), s.omitted(in))
	}
	if in := scenario(Stock); s.has(in) {
		part("Stock", "Every worker makes four attempts to take one unit of a stock: GET, and SET to one less, under the lock.",
			s.table(in, "who", []column{
				{"masters", "n", number, false}, {"processes", "procs", number, false}, {"workers", "workers", number, false}, {"time", "seconds", seconds, false},
				{"attempts", "done", count, false},
				{"not made in time, in all", "undone", count, true}, {"stock", "stock", count, false}, {"sold", "sold", count, false},
				{"failed calls, in all", "failed", count, true},
			}, nil).Markdown(), s.omitted(in))
	}
	if in := scenario(Leases); s.has(in) {
		part("Leases held and renewed", "In one process, for some seconds after all are held. A contender that does not renew by itself gets a goroutine "+
			"for each lease that does, every third of the TTL of 10 s. *Memory*: heap and stacks in use after a collection; *growth*: of the process.",
			s.table(in, "who", []column{
				{"masters", "n", number, false}, {"leases", "leases", number, false}, {"until all held", "filled", seconds, false}, {"of one core", "core", percent, false},
				{"memory a lease", "memory", kibibytes, false}, {"growth a lease", "rss", kibibytes, false}, {"lost, in all", "lost", count, true},
			}, nil).Markdown(), s.omitted(in))
	}
	return b.String()
}

func scenario(name string) func(Cell) bool { return func(c Cell) bool { return c.Scenario == name } }

func (s Set) has(in func(Cell) bool) bool {
	return slices.ContainsFunc(s.Records, func(r Record) bool { return in(r.Cell) })
}

func (s Set) opening() string {
	text := fmt.Sprintf("Written by `go run ./cmd/report`, see [README.md](README.md). Repetitions: %d, of which the tables have the medians. In each "+
		"all contenders "+
		"took their turns, on the same servers. Uncontended cycles are measured in rounds of slices of 100 or 200 ms, in which all take turns; a ratio is of one "+
		"round, and the median of the rounds counts.", s.Reps)
	if s.Quick {
		text += " **A quick run**: the figures show that it works, and no more."
	}
	return text
}

func (s Set) machine() string {
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

// violations returns the contenders that let two holders in at a time, or fencing tokens fall.
func (s Set) violations() string {
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

// failures returns the cells that ended with an error and without a figure.
func (s Set) failures() (lines []string) {
	for _, r := range s.Records {
		if r.Error != "" && len(r.Values) == 0 {
			lines = append(lines, fmt.Sprintf("- `%s`, repetition %d (%s): %s", r.Who, r.Rep, r.Cell.where(), strings.ReplaceAll(r.Error, "\n", "; ")))
		}
	}
	return lines
}

func (c Cell) where() string {
	text := fmt.Sprintf("%s, N=%d", c.Scenario, c.N)
	if c.Goroutines > 0 {
		text += fmt.Sprintf(", %d goroutines", c.Goroutines)
	}
	if c.Procs > 0 {
		text += fmt.Sprintf(", %d workers in %d processes, hold %s", c.Workers, c.Procs, c.Hold)
	}
	if c.Fault != "" {
		text += ", " + c.Fault
	}
	return text
}

// omitted returns the contenders that are left out, and why.
func (s Set) omitted(in func(Cell) bool) string {
	lines := s.leftOut(in)
	if len(lines) == 0 {
		return ""
	}
	return "Left out: " + strings.Join(lines, "; ") + "."
}

// text returns the median of a figure as a table shows it.
func (s Set) text(c Cell, who, metric string, text func(float64) string) string {
	v, ok := s.Median(c, who, metric)
	if !ok {
		return missing
	}
	return text(v)
}

// table returns a table with a row for each contender of each of the cells, if there are
// values. label, if any, is a column before the name.
func (s Set) table(in func(Cell) bool, first string, columns []column, label func(Cell) string) Table {
	t := Table{Head: []string{first}, Left: 1}
	if label != nil {
		t.Head, t.Left = append(t.Head, "who"), 2
	}
	for _, col := range columns {
		t.Head = append(t.Head, col.head)
	}
	type line struct {
		cell Cell
		who  string
	}
	var seen []line
	for _, r := range s.Records {
		l := line{r.Cell, r.Who}
		if !in(r.Cell) || r.LeftOut != "" || slices.Contains(seen, l) {
			continue
		}
		seen = append(seen, l)
		row := []string{"`" + l.who + "`"}
		if label != nil {
			row = []string{label(l.cell), row[0]}
		}
		for _, col := range columns {
			of := s.Median
			if col.total {
				of = s.Total
			}
			text := missing
			if v, ok := of(l.cell, l.who, col.metric); ok {
				text = col.text(v)
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, row)
	}
	s.sortRows(t.Rows, label != nil)
	return t
}

// sortRows sorts rows by the order of the contenders in the first repetition, whatever their
// order in later ones, and keeps the order of labels.
func (s Set) sortRows(rows [][]string, labelled bool) {
	var labels []string
	column := 0
	if labelled {
		column = 1
		for _, row := range rows {
			if !slices.Contains(labels, row[0]) {
				labels = append(labels, row[0])
			}
		}
	}
	names := s.who(func(Cell) bool { return true })
	slices.SortStableFunc(rows, func(a, b []string) int {
		if d := slices.Index(labels, a[0]) - slices.Index(labels, b[0]); labelled && d != 0 {
			return d
		}
		return slices.Index(names, strings.Trim(a[column], "`")) - slices.Index(names, strings.Trim(b[column], "`"))
	})
}

// count formats a whole number with all its digits.
func count(v float64) string { return grouped(strconv.FormatFloat(v, 'f', 0, 64)) }

func seconds(v float64) string   { return micros(v * 1e6) }
func percent(v float64) string   { return number(v) + " %" }
func kibibytes(v float64) string { return number(v/1024) + " KiB" }
