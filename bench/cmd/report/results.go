package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// ours is the name of this library.
const ours = "ours"

// figure is one metric of one contender in one benchmark, whose name is without contender and round.
type figure struct{ cell, who, metric string }

// set is the results of a run.
type set struct {
	config map[string]string          // the lines "key: value" before the results
	cells  []string                   // in the order of their first results
	who    map[string][]string        // by cell, ours first, then in alphabetic order
	values map[figure]map[int]float64 // by round
	failed []string                   // benchmarks
}

// read reads results in the Go benchmark format.
func read(text []byte) (set, error) {
	s := set{config: map[string]string{}, who: map[string][]string{}, values: map[figure]map[int]float64{}}
	r := benchfmt.NewReader(bytes.NewReader(text), "results")
	for r.Scan() {
		line, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue // a benchmark without a result: it failed, or was interrupted
		}
		for _, c := range line.Config {
			s.config[c.Key] = strings.TrimSpace(string(c.Value))
		}
		cell, who, round := parse(line.Name)
		if !slices.Contains(s.cells, cell) {
			s.cells = append(s.cells, cell)
		}
		if !slices.Contains(s.who[cell], who) {
			s.who[cell] = append(s.who[cell], who)
			slices.SortFunc(s.who[cell], func(a, b string) int { // ours first
				return strings.Compare(strings.TrimPrefix(a, ours), strings.TrimPrefix(b, ours))
			})
		}
		for _, v := range line.Values {
			f := figure{cell, who, cmp.Or(v.OrigUnit, v.Unit)}
			if s.values[f] == nil {
				s.values[f] = map[int]float64{}
			}
			if _, twice := s.values[f][round]; twice {
				return s, fmt.Errorf("report: %s of %s has two results of round %d: the file has two runs", f.cell, f.who, round)
			}
			s.values[f][round] = cmp.Or(v.OrigValue, v.Value)
		}
	}
	for line := range strings.Lines(string(text)) {
		if _, what, failed := strings.Cut(line, "--- FAIL: "); failed {
			s.failed = append(s.failed, strings.TrimSpace(what))
		}
	}
	return s, r.Err()
}

// parse takes contender and round out of the name of a benchmark, and the number of processors.
func parse(name benchfmt.Name) (cell, who string, round int) {
	base, parts := name.Parts()
	cell, who = string(base), ours
	for _, part := range parts {
		if its, ok := strings.CutPrefix(string(part), "/who="); ok {
			who = its
		} else if its, ok := strings.CutPrefix(string(part), "/round="); ok {
			round, _ = strconv.Atoi(its)
		} else if part[0] == '/' {
			cell += string(part)
		}
	}
	return cell, who, round
}

// each returns the values of a figure, in the order of the rounds.
func (s set) each(f figure) (values []float64) {
	for _, round := range slices.Sorted(maps.Keys(s.values[f])) {
		values = append(values, s.values[f][round])
	}
	return values
}

// ratios divides two figures within each round that has both. Ratios to 0 are left out.
func (s set) ratios(over, under figure) (ratios []float64) {
	for _, round := range slices.Sorted(maps.Keys(s.values[over])) {
		if by := s.values[under][round]; by != 0 {
			ratios = append(ratios, s.values[over][round]/by)
		}
	}
	return ratios
}

// median returns the middle one of some values, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// violation reports whether this library did what no lock may do.
func (s set) violation() error {
	for f, rounds := range s.values {
		for _, n := range rounds {
			if f.who == ours && (f.metric == "overlaps" || f.metric == "falls") && n > 0 {
				return fmt.Errorf("%w: %s", errViolation, f.cell)
			}
		}
	}
	return nil
}
