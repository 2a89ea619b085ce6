package results

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Table is a table of text, with a line of headings.
type Table struct {
	Head []string
	Rows [][]string
	Left int // number of columns that are aligned to the left, as words are
}

// Markdown returns the table in GitHub's Markdown.
func (t Table) Markdown() string {
	rules := slices.Repeat([]string{"--:"}, len(t.Head))
	copy(rules, slices.Repeat([]string{"---"}, t.Left))
	text := "| " + strings.Join(t.Head, " | ") + " |\n|" + strings.Join(rules, "|") + "|\n"
	for _, row := range t.Rows {
		text += "| " + strings.Join(row, " | ") + " |\n"
	}
	return text
}

// column is a figure of a table: its heading, and its format.
type column struct {
	head   string
	metric string
	text   func(float64) string
}

// line is a row of a table.
type line struct {
	cell Cell
	who  string
}

// table returns a table with a row for each contender of each of the cells, if there are values.
// The rows with the same label stand together, in the order of the contenders.
func (s Set) table(in func(Cell) bool, first string, label func(Cell) string, columns []column) string {
	t := Table{Head: []string{first, "who"}, Left: 2}
	for _, col := range columns {
		t.Head = append(t.Head, col.head)
	}
	var lines []line
	var labels []string
	for _, c := range s.cells(in) {
		labels = append(labels, label(c))
		for _, who := range s.who(func(other Cell) bool { return other == c }) {
			lines = append(lines, line{c, who})
		}
	}
	names := s.who(func(Cell) bool { return true })
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(
			cmp.Compare(slices.Index(labels, label(a.cell)), slices.Index(labels, label(b.cell))),
			cmp.Compare(slices.Index(names, a.who), slices.Index(names, b.who)))
	})
	for _, l := range lines {
		row := []string{label(l.cell), "`" + l.who + "`"}
		for _, col := range columns {
			row = append(row, s.text(l.cell, l.who, col.metric, col.text))
		}
		t.Rows = append(t.Rows, row)
	}
	return t.Markdown()
}

// summed are the figures of which a table has the sum over all repetitions: a median would hide
// what goes wrong in a few of them.
var summed = []string{"failed", "undone"}

// text returns a figure as a table shows it.
func (s Set) text(c Cell, who, metric string, text func(float64) string) string {
	values := s.Values(c, who, metric)
	v, ok := Median(values)
	if slices.Contains(summed, metric) {
		v = sum(values)
	}
	if !ok {
		return missing
	}
	return text(v)
}

// missing is shown where there is no figure.
const missing = "–"

// number formats v with three significant digits, and separated thousands.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case v == math.Trunc(v) && abs < 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs < 0.995:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case abs < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case abs < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs < 999.5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return grouped(strconv.FormatFloat(round(v, 3), 'f', 0, 64))
}

// grouped separates the thousands of a whole number.
func grouped(text string) string {
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// round rounds to so many significant digits.
func round(v float64, digits int) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	return rounded
}

// micros formats microseconds with a suitable unit.
func micros(v float64) string {
	switch {
	case v >= 0.9995e6:
		return number(v/1e6) + " s"
	case v >= 999.5:
		return number(v/1e3) + " ms"
	}
	return number(v) + " µs"
}

// count formats a whole number with all its digits.
func count(v float64) string { return grouped(strconv.FormatFloat(v, 'f', 0, 64)) }

func seconds(v float64) string { return micros(v * 1e6) }
func percent(v float64) string { return number(v) + " %" }
