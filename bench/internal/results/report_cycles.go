package results

import (
	"fmt"
	"slices"
)

// axis returns the different values of one field of some cells, in order.
func (s Set) axis(in func(Cell) bool, of func(Cell) int) (values []int) {
	for _, r := range s.Records {
		if in(r.Cell) && r.LeftOut == "" && !slices.Contains(values, of(r.Cell)) {
			values = append(values, of(r.Cell))
		}
	}
	slices.Sort(values)
	return values
}

func masters(c Cell) int    { return c.N }
func goroutines(c Cell) int { return c.Goroutines }
func workers(c Cell) int    { return c.Workers }
func procs(c Cell) int      { return c.Procs }

func clusterName(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("N=%d", n)
}

func (s Set) latencyTable() Table {
	alone := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines == 1 }
	t := Table{Head: []string{"who"}, Left: 1}
	counts := s.axis(alone, masters)
	for _, n := range counts {
		t.Head = append(t.Head, clusterName(n)+": p50", "p99")
	}
	for _, who := range s.who(alone) {
		row := []string{"`" + who + "`"}
		for _, n := range counts {
			c := Cell{Scenario: Cycles, N: n, Goroutines: 1}
			row = append(row, s.text(c, who, "p50", micros), s.text(c, who, "p99", micros))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (s Set) throughputTable() Table {
	many := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines > 1 }
	sizes := s.axis(many, goroutines)
	t := Table{Head: []string{"masters", "who"}, Left: 2}
	for _, g := range sizes {
		t.Head = append(t.Head, fmt.Sprintf("%d goroutines", g))
	}
	for _, n := range s.axis(many, masters) {
		for _, who := range s.who(many) {
			row, some := []string{clusterName(n), "`" + who + "`"}, false
			for _, g := range sizes {
				c := Cell{Scenario: Cycles, N: n, Goroutines: g}
				text := s.text(c, who, "rate", number)
				if failed, _ := s.Total(c, who, "failed"); failed > 0 {
					text += fmt.Sprintf(" (%s failed in all)", count(failed))
				}
				row, some = append(row, text), some || text != missing
			}
			if some {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return t
}

func (s Set) costTable() Table {
	in := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines == 256 }
	return s.table(in, "masters", []column{
		{"client CPU", "cpu", micros, false}, {"commands", "commands", number, false}, {"a master's commands", "busy", micros, false}, {"its scripts", "script", micros, false}, {"all masters' CPU", "masters", micros, false}, {"bytes to the masters", "bytes", number, false},
	}, func(c Cell) string { return clusterName(c.N) })
}
