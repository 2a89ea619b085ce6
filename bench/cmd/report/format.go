package main

import (
	"math"
	"strconv"
	"strings"
)

// unit says how a figure looks.
type unit int

const (
	plain   unit = iota
	micros       // microseconds
	percent      // of 100
	whole        // all digits
)

// text formats a figure, with three significant digits.
func (u unit) text(v float64) string {
	switch {
	case u == micros && v >= 0.9995e6:
		return plain.text(v/1e6) + " s"
	case u == micros && v >= 999.5:
		return plain.text(v/1e3) + " ms"
	case u == micros:
		return plain.text(v) + " µs"
	case u == percent:
		return plain.text(v) + " %"
	case u == whole:
		return grouped(strconv.FormatFloat(v, 'f', 0, 64))
	}
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
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return grouped(strconv.FormatFloat(rounded, 'f', 0, 64))
}

// grouped separates the thousands of a whole number.
func grouped(text string) string {
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// markdown returns a table, whose first columns have words and the others figures.
func markdown(head []string, words int, rows [][]string) string {
	rules := ""
	for i := range head {
		if i < words {
			rules += "|---"
		} else {
			rules += "|--:"
		}
	}
	text := "| " + strings.Join(head, " | ") + " |\n" + rules + "|\n"
	for _, row := range rows {
		text += "| " + strings.Join(row, " | ") + " |\n"
	}
	return text
}
