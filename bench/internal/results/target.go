package results

import "slices"

// Target is something wanted of this library, and what was measured of it.
type Target struct {
	Name    string
	Want    float64
	AtLeast bool   // else at most
	Unit    string // of all numbers, after a space
	Values  []float64
}

// Verdict compares the median of the values with what is wanted.
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

// row is that of the table, for a target that was measured.
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

// Unmeasured names the targets for which there are no values.
func Unmeasured(targets []Target) (names []string) {
	for _, t := range targets {
		if len(t.Values) == 0 {
			names = append(names, t.Name)
		}
	}
	return names
}

// TargetTable has a row for each that was measured.
func TargetTable(targets []Target) Table {
	table := Table{Head: []string{"what", "wanted", "median", "lowest … highest", "verdict"}, Left: 1}
	for _, t := range targets {
		if len(t.Values) > 0 {
			table.Rows = append(table.Rows, t.row())
		}
	}
	return table
}
