package results

import (
	"fmt"
	"slices"
	"strings"
)

// Target is a requirement for this library, and its values.
type Target struct {
	Name    string
	Want    float64
	AtLeast bool   // otherwise at most
	Unit    string // after each number and a space
	Values  []float64
}

// Verdict compares the median of the values with the requirement.
func (t Target) Verdict() string {
	v, ok := Median(t.Values)
	switch {
	case !ok:
		return "not measured"
	case t.AtLeast && v >= t.Want, !t.AtLeast && v <= t.Want:
		return "met"
	}
	return "**missed**"
}

// row returns the row of the table, for a target with values.
func (t Target) row() []string {
	bound := "≤ "
	if t.AtLeast {
		bound = "≥ "
	}
	v, _ := Median(t.Values)
	return []string{
		t.Name, bound + t.number(t.Want), t.number(v),
		t.number(slices.Min(t.Values)) + " … " + t.number(slices.Max(t.Values)), t.Verdict(),
	}
}

func (t Target) number(v float64) string {
	if t.Unit == "" {
		return number(v)
	}
	return number(v) + " " + t.Unit
}

// Targets are the requirements of a report.
type Targets []Target

// Table returns a row for each target with values.
func (list Targets) Table() string {
	table := Table{Head: []string{"what", "wanted", "median", "lowest … highest", "verdict"}, Left: 1}
	for _, t := range list {
		if len(t.Values) > 0 {
			table.Rows = append(table.Rows, t.row())
		}
	}
	return table.Markdown()
}

// Unmeasured returns the names of the targets without values, or their number if they are many.
func (list Targets) Unmeasured() string {
	var names []string
	for _, t := range list {
		if len(t.Values) == 0 {
			names = append(names, t.Name)
		}
	}
	if len(names) > 10 {
		return fmt.Sprintf("%d targets", len(names))
	}
	return strings.Join(names, "; ")
}
