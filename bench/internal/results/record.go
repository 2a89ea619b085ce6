// Package results has the records of measurements, and presents them: medians, tables,
// targets and pictures. It measures nothing.
package results

import (
	"maps"
	"slices"
)

// Cell identifies a measurement, without the contender. Fields that do not apply are zero.
type Cell struct {
	Scenario   string `json:"scenario"`
	N          int    `json:"n"` // masters; 0: none, the lock is within one process
	Goroutines int    `json:"goroutines,omitempty"`
	Procs      int    `json:"procs,omitempty"`
	Workers    int    `json:"workers,omitempty"` // in all processes
	Hold       string `json:"hold,omitempty"`
	Bench      string `json:"bench,omitempty"` // the name of a Go benchmark, without the contender
}

// Record is one run of one cell.
type Record struct {
	Rep  int    `json:"rep"`
	Who  string `json:"who"`
	Cell Cell   `json:"cell"`

	Values  map[string]float64 `json:"values,omitempty"`
	LeftOut string             `json:"left_out,omitempty"` // why there are no values
	Error   string             `json:"error,omitempty"`    // one of the errors
}

// Module is a dependency and its version.
type Module struct{ Path, Version string }

// Machine describes where and with what the records were measured.
type Machine struct {
	CPU     string
	Cores   int
	Kernel  string
	Go      string
	Redis   string
	Modules []Module
}

// Set has all records of one run of the program.
type Set struct {
	Machine Machine  `json:"machine"`
	Reps    int      `json:"reps"`
	Quick   bool     `json:"quick"`
	Records []Record `json:"records"`
}

// byRep returns the values of one figure by repetition.
func (s Set) byRep(c Cell, who, metric string) map[int]float64 {
	values := map[int]float64{}
	for _, r := range s.Records {
		if r.Cell == c && r.Who == who {
			if v, ok := r.Values[metric]; ok {
				values[r.Rep] = v
			}
		}
	}
	return values
}

// Values returns the values of one figure, in the order of the repetitions.
func (s Set) Values(c Cell, who, metric string) []float64 {
	return inOrder(s.byRep(c, who, metric))
}

// Median returns the median of a figure over all repetitions; ok is false if there is none.
func (s Set) Median(c Cell, who, metric string) (v float64, ok bool) {
	return Median(s.Values(c, who, metric))
}

// Figure is one column of one contender's cells.
type Figure struct {
	Cell   Cell
	Who    string
	Metric string
}

// Ratios divides two figures within each repetition that has both. Ratios to 0 are left out.
func (s Set) Ratios(over, under Figure) []float64 {
	ratios := map[int]float64{}
	divisors := s.byRep(under.Cell, under.Who, under.Metric)
	for rep, v := range s.byRep(over.Cell, over.Who, over.Metric) {
		if divisors[rep] != 0 {
			ratios[rep] = v / divisors[rep]
		}
	}
	return inOrder(ratios)
}

func inOrder(byRep map[int]float64) []float64 {
	values := make([]float64, 0, len(byRep))
	for _, rep := range slices.Sorted(maps.Keys(byRep)) {
		values = append(values, byRep[rep])
	}
	return values
}

// Median returns the middle one of values, or the mean of the two in the middle.
func Median(values []float64) (v float64, ok bool) {
	if len(values) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle], true
	}
	return (sorted[middle-1] + sorted[middle]) / 2, true
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// cells returns the cells with values, in the order of their first records.
func (s Set) cells(in func(Cell) bool) (cells []Cell) {
	for _, r := range s.Records {
		if in(r.Cell) && len(r.Values) > 0 && !slices.Contains(cells, r.Cell) {
			cells = append(cells, r.Cell)
		}
	}
	return cells
}

// who returns the contenders with values in some cells, in the order of their first records.
func (s Set) who(in func(Cell) bool) (names []string) {
	for _, r := range s.Records {
		if in(r.Cell) && len(r.Values) > 0 && !slices.Contains(names, r.Who) {
			names = append(names, r.Who)
		}
	}
	return names
}

// axis returns the different values of one field of some cells, in order.
func (s Set) axis(in func(Cell) bool, of func(Cell) int) (values []int) {
	for _, c := range s.cells(in) {
		values = append(values, of(c))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

func masters(c Cell) int    { return c.N }
func goroutines(c Cell) int { return c.Goroutines }
func workers(c Cell) int    { return c.Workers }
func procs(c Cell) int      { return c.Procs }
