// Package results has the records of measurements, and presents them: medians, tables,
// targets and pictures. It measures nothing.
package results

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
	Fault      string `json:"fault,omitempty"`
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
	Machine Machine
	Reps    int
	Quick   bool
	Records []Record
}

// head is the first line of a file of results.
type head struct {
	Machine Machine `json:"machine"`
	Reps    int     `json:"reps"`
	Quick   bool    `json:"quick"`
}

// Write writes a set as JSON lines: the head, and a line for each record.
func (s Set) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	if err := enc.Encode(head{s.Machine, s.Reps, s.Quick}); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	for _, r := range s.Records {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("results: %w", err)
		}
	}
	return nil
}

// Read reads what Write has written.
func Read(r io.Reader) (Set, error) {
	dec := json.NewDecoder(bufio.NewReader(r))
	var h head
	if err := dec.Decode(&h); err != nil {
		return Set{}, fmt.Errorf("results: %w", err)
	}
	s := Set{Machine: h.Machine, Reps: h.Reps, Quick: h.Quick}
	for {
		var rec Record
		switch err := dec.Decode(&rec); err {
		case nil:
			s.Records = append(s.Records, rec)
		case io.EOF:
			return s, nil
		default:
			return Set{}, fmt.Errorf("results: record %d: %w", len(s.Records)+1, err)
		}
	}
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

// Total returns the sum of a figure over all repetitions: a median would hide what goes wrong
// in a few of them.
func (s Set) Total(c Cell, who, metric string) (v float64, ok bool) {
	for _, each := range s.Values(c, who, metric) {
		v, ok = v+each, true
	}
	return v, ok
}

// Figure is one column of one contender's cells.
type Figure struct {
	Cell   Cell
	Who    string
	Metric string
}

// Ratios divides two figures within each repetition that has both.
func (s Set) Ratios(over, under Figure) []float64 {
	return s.Combined(func(v []float64) float64 { return v[0] / v[1] }, over, under)
}

// Combined computes one value from some figures within each repetition that has all of them.
// Results that are infinite or NaN, as with a divisor of 0, are left out.
func (s Set) Combined(of func([]float64) float64, figures ...Figure) []float64 {
	combined := map[int]float64{}
	var columns []map[int]float64
	for _, f := range figures {
		columns = append(columns, s.byRep(f.Cell, f.Who, f.Metric))
	}
	for rep := range columns[0] {
		var values []float64
		for _, column := range columns {
			if v, ok := column[rep]; ok {
				values = append(values, v)
			}
		}
		if len(values) == len(columns) {
			if v := of(values); v-v == 0 { // neither infinite nor NaN
				combined[rep] = v
			}
		}
	}
	return inOrder(combined)
}

func inOrder(byRep map[int]float64) []float64 {
	reps := make([]int, 0, len(byRep))
	for rep := range byRep {
		reps = append(reps, rep)
	}
	slices.Sort(reps)
	values := make([]float64, len(reps))
	for i, rep := range reps {
		values[i] = byRep[rep]
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

// who returns the contenders of some cells, in the order of their first records.
func (s Set) who(in func(Cell) bool) (names []string) {
	for _, r := range s.Records {
		if in(r.Cell) && !slices.Contains(names, r.Who) {
			names = append(names, r.Who)
		}
	}
	return names
}

// leftOut returns why contenders are missing from some cells, a line for each reason.
func (s Set) leftOut(in func(Cell) bool) (lines []string) {
	for _, r := range s.Records {
		line := fmt.Sprintf("`%s`: %s", r.Who, r.LeftOut)
		if in(r.Cell) && r.LeftOut != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}
