package results

import (
	"math"
	"strconv"
	"strings"
)

// Table is a table of text, with a line of headings.
type Table struct {
	Head []string
	Rows [][]string
	Left int // number of columns that are aligned to the left, as words are
}

// Markdown returns the table in GitHub's Markdown. It pads rows that are too short.
func (t Table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) {
		for i := range t.Head {
			cell := ""
			if i < len(cells) {
				cell = strings.ReplaceAll(strings.ReplaceAll(cells[i], "|", `\|`), "\n", " ")
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
	}
	line(t.Head)
	for i := range t.Head {
		if i < t.Left {
			b.WriteString("|---")
		} else {
			b.WriteString("|--:")
		}
	}
	b.WriteString("|\n")
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
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
