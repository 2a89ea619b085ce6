package measure

import (
	"slices"
	"time"
)

// Latency is some durations. In a [Result] they are sorted.
type Latency []time.Duration

func (l Latency) sort() { slices.Sort(l) }

// At returns the duration that percent of all durations do not exceed; 0 if there are none.
func (l Latency) At(percent float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	rank := int(percent / 100 * float64(len(l)))
	if float64(rank) < percent/100*float64(len(l)) {
		rank++
	}
	return l[max(rank, 1)-1]
}

// Micros returns a duration in microseconds, with their fraction.
func Micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// Jain returns Jain's fairness index: 1 if all shares are equal, 1/n if one caller has
// everything. Without shares, or if all are 0, it returns 0.
func Jain(shares []int) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
