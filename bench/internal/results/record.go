// Package results reads the output of Go benchmarks and presents it: medians, tables, targets
// and pictures. It measures nothing.
package results

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Record is one result of one benchmark.
type Record struct {
	Rep    int                // which repetition, from the line "rep: 1" before it
	Who    string             // the contender; ours if the name has none
	Cell   string             // the name without the contender, such as Cycle/N=3/g=16
	Values map[string]float64 // by unit
}

// Set has all results of one run of the program.
type Set struct {
	Config   map[string]string // the lines "key: value" between the results
	Records  []Record
	Failures []string // what failed
}

// Read reads results in the Go benchmark format.
func Read(text []byte) (Set, error) {
	var s Set
	r := benchfmt.NewReader(bytes.NewReader(text), "results")
	for r.Scan() {
		line, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue // a benchmark without a result: it failed, or was interrupted
		}
		s.Config = map[string]string{}
		for _, c := range line.Config {
			s.Config[c.Key] = strings.TrimSpace(string(c.Value))
		}
		cell, who := cellOf(line.Name)
		values := map[string]float64{}
		for _, v := range line.Values {
			values[cmp.Or(v.OrigUnit, v.Unit)] = cmp.Or(v.OrigValue, v.Value)
		}
		rep, _ := strconv.Atoi(s.Config["rep"]) // 0 in the output of go test itself
		s.Records = append(s.Records, Record{rep, who, cell, values})
	}
	for line := range strings.Lines(string(text)) {
		_, what, failed := strings.Cut(strings.TrimSpace(line), "--- FAIL: ")
		if failed && !slices.ContainsFunc(s.Failures, func(part string) bool { return strings.HasPrefix(part, what) }) {
			s.Failures = append(s.Failures, what)
		}
	}
	return s, r.Err()
}

// cellOf takes the contender out of the name of a benchmark, and the number of processors.
func cellOf(name benchfmt.Name) (cell, who string) {
	base, parts := name.Parts()
	cell, who = string(base), Ours
	for _, part := range parts {
		if its, ok := strings.CutPrefix(string(part), "/who="); ok {
			who = its
		} else if part[0] == '/' {
			cell += string(part)
		}
	}
	return cell, who
}

// param returns the value of a key in the name of a cell.
func param(cell, key string) string {
	_, rest, _ := strings.Cut(cell, "/"+key+"=")
	value, _, _ := strings.Cut(rest, "/")
	return value
}

// in returns the records of the cells that match a pattern, see [path.Match].
func (s Set) in(pattern string) (list []Record) {
	for _, r := range s.Records {
		if ok, err := path.Match(pattern, r.Cell); err != nil {
			panic(err) // the patterns are constants
		} else if ok {
			list = append(list, r)
		}
	}
	return list
}

// cells returns the cells that match a pattern, in the order of their first records.
func (s Set) cells(pattern string) (cells []string) {
	for _, r := range s.in(pattern) {
		if !slices.Contains(cells, r.Cell) {
			cells = append(cells, r.Cell)
		}
	}
	return cells
}

// params returns the different values of a key in the names of some cells, in the same order.
func (s Set) params(pattern, key string) (values []string) {
	for _, c := range s.cells(pattern) {
		if v := param(c, key); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// who returns the contenders with values in some cells, in the order of the palette.
func (s Set) who(pattern string) (names []string) {
	records := s.in(pattern)
	for _, c := range palette {
		if slices.ContainsFunc(records, func(r Record) bool { return r.Who == c.who }) {
			names = append(names, c.who)
		}
	}
	return names
}

// byRep returns the values of one figure by repetition.
func (s Set) byRep(f Figure) map[int]float64 {
	values := map[int]float64{}
	for _, r := range s.Records {
		if v, ok := r.Values[f.Metric]; ok && r.Cell == f.Cell && r.Who == f.Who {
			values[r.Rep] = v
		}
	}
	return values
}

// Figure is one column of one contender's cells.
type Figure struct{ Cell, Who, Metric string }

// Values returns the values of one figure, in the order of the repetitions.
func (s Set) Values(cell, who, metric string) []float64 {
	return inOrder(s.byRep(Figure{cell, who, metric}))
}

// Median returns the median of a figure over all repetitions; ok is false if there is none.
func (s Set) Median(cell, who, metric string) (v float64, ok bool) {
	return Median(s.Values(cell, who, metric))
}

// Ratios divides two figures within each repetition that has both. Ratios to 0 are left out.
func (s Set) Ratios(over, under Figure) []float64 {
	ratios := map[int]float64{}
	divisors := s.byRep(under)
	for rep, v := range s.byRep(over) {
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
