package results

import (
	"fmt"
	"slices"
)

// limits describes the base of comparison for the hand-overs.
func (s Set) limits() string {
	probe := Cell{Scenario: Probe}
	return fmt.Sprintf("Workers of one or more processes take turns with one key. The critical section is a GET to a Redis that is no master, "+
		"and with *hold 1ms* a sleep of that length. Without contention the section takes %s (hold 0) or %s (hold 1ms), and a round trip %s: "+
		"the limit is 1/(hold + 2 round trips). *Commands* are those that clients send to all masters together, a script "+
		"being one, and *client CPU* the processor time of all processes, for each hand-over. A worker without the key at the end counts with its wait until then.",
		s.text(probe, Probe, "section."+NoHold, micros), s.text(probe, Probe, "section."+ShortHold, micros), s.text(probe, Probe, "rtt", micros))
}

// hotParts returns a heading and a table for each hold and number of processes.
func (s Set) hotParts() (parts []string) {
	for _, hold := range []string{NoHold, ShortHold} {
		held := func(c Cell) bool { return c.Scenario == Hot && c.Hold == hold }
		for _, n := range s.axis(held, procs) {
			in := func(c Cell) bool { return held(c) && c.Procs == n }
			title := fmt.Sprintf("### Hold %s, %d processes", hold, n)
			if n == 1 {
				title = fmt.Sprintf("### Hold %s, 1 process", hold)
			}
			parts = append(parts, title, s.hotTable(in).Markdown())
		}
	}
	return parts
}

func (s Set) hotTable(in func(Cell) bool) Table {
	t := s.table(in, "workers", []column{
		{"hand-overs/s", "rate", number, false}, {"of the limit", "limit", percent, false}, {"hold p50", "hold.p50", micros, false}, {"wait p50", "wait.p50", micros, false}, {"p99", "wait.p99", micros, false},
		{"max", "wait.max", micros, false}, {"Jain", "jain", number, false}, {"least share", "least", number, false}, {"commands", "commands", number, false}, {"client CPU", "cpu", micros, false}, {"failed, in all", "failed", count, true},
	}, func(c Cell) string {
		if c.N == 3 { // the others have HotN, or the number that they need
			return fmt.Sprintf("%d, N=3", c.Workers)
		}
		return fmt.Sprint(c.Workers)
	})
	slices.SortStableFunc(t.Rows, func(a, b []string) int { return leading(a[0]) - leading(b[0]) })
	return t
}

// leading returns the number at the start of a text.
func leading(text string) (n int) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

// OfLimit returns the rate of hand-overs as a percentage of the limit: a hand-over takes at
// least the critical section without contention, and two round trips, in µs.
func OfLimit(rate, section, roundTrip float64) float64 {
	return 100 * rate * (section + 2*roundTrip) / 1e6
}

func (s Set) acrossTable() Table {
	in := func(c Cell) bool { return c.Scenario == Hot && c.Procs > 1 }
	label := func(c Cell) string {
		return fmt.Sprintf("%d processes, %d workers, hold %s, N=%d", c.Procs, c.Workers, c.Hold, c.N)
	}
	return s.table(in, "where", []column{
		{"p50", "across.p50", micros, false}, {"p99", "across.p99", micros, false}, {"hand-overs between processes", "across.count", count, false},
	}, label)
}
