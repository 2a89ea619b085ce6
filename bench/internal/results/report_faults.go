package results

import "fmt"

func (s Set) faultTable() Table {
	var columns []column
	for _, op := range Operations {
		for _, percent := range []string{"50", "99"} {
			metric := Quantile(op, percent)
			columns = append(columns, column{fmt.Sprintf("%s p%s", op, percent), metric, micros, false})
		}
		p99 := Quantile(op, "99")
		columns = append(columns, column{"healthy p99", Healthy(p99), micros, false})
	}
	columns = append(columns, column{"cycles", "done", count, false}, column{"failed, in all", "failed", count, true})
	return s.table(scenario(Faults), "fault", columns, func(c Cell) string { return c.Fault })
}
