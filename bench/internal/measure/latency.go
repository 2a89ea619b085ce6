// Package measure puts work on a contender and measures its cost: cycles of many goroutines,
// and a contest for one key.
package measure

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest latency that the histogram distinguishes.
const longest = 2 * time.Minute

// Latency is a histogram of durations, to 1 %. It is not safe for concurrent use.
type Latency struct{ h *hdrhistogram.Histogram }

// NewLatency returns an empty histogram.
func NewLatency() Latency { return Latency{hdrhistogram.New(1, int64(longest), 2)} }

// Record adds a duration.
func (l Latency) Record(d time.Duration) {
	_ = l.h.RecordValue(int64(min(max(d, 0), longest))) // never out of range
}

// Merge adds the durations of another histogram.
func (l Latency) Merge(other Latency) { l.h.Merge(other.h) }

// Count returns the number of durations.
func (l Latency) Count() int64 { return l.h.TotalCount() }

// Quantile returns the duration that percent of all durations do not exceed; 0 if there are none.
func (l Latency) Quantile(percent float64) time.Duration {
	return time.Duration(l.h.ValueAtQuantile(percent))
}

// Micros returns a quantile in microseconds.
func (l Latency) Micros(percent float64) float64 { return Micros(l.Quantile(percent)) }

// Micros returns a duration in microseconds, with their fraction.
func Micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
