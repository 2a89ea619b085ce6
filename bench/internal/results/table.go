package results

import (
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

// table returns a table with a row for each contender of each of the cells that match a pattern.
func (s Set) table(pattern, first string, label func(cell string) string, columns []column) string {
	t := Table{Head: []string{first, "who"}, Left: 2}
	for _, col := range columns {
		t.Head = append(t.Head, col.head)
	}
	for _, cell := range s.cells(pattern) {
		for _, who := range s.who(cell) {
			row := []string{label(cell), "`" + who + "`"}
			for _, col := range columns {
				row = append(row, s.text(cell, who, col.metric, col.text))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t.Markdown()
}

// summed are the figures of which a table has the sum over all repetitions: a median would hide
// what goes wrong in a few of them.
var summed = []string{"failed", "undone"}

// text returns a figure as a table shows it.
func (s Set) text(cell, who, metric string, text func(float64) string) string {
	values := s.Values(cell, who, metric)
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
