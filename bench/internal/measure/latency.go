// Package measure puts work on a contender and measures its cost: cycles of many goroutines,
// and a contest for one key.
package measure

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest latency that the histogram distinguishes.
const longest = 2 * time.Minute

// Latency is a histogram of durations, to 1 %. Its text form is that of HdrHistogram. It is
// not safe for concurrent use. The zero value is empty and cannot record.
type Latency struct{ h *hdrhistogram.Histogram }

// NewLatency returns an empty histogram that can record.
func NewLatency() Latency { return Latency{hdrhistogram.New(1, int64(longest), 2)} }

// Record adds a duration.
func (l Latency) Record(d time.Duration) {
	_ = l.h.RecordValue(int64(min(max(d, 0), longest))) // never out of range
}

// Merge adds the durations of another histogram.
func (l Latency) Merge(other Latency) {
	if other.h != nil {
		l.h.Merge(other.h)
	}
}

// Count returns the number of durations.
func (l Latency) Count() int64 {
	if l.h == nil {
		return 0
	}
	return l.h.TotalCount()
}

// Quantile returns the duration that percent of all durations do not exceed; 0 if there are none.
func (l Latency) Quantile(percent float64) time.Duration {
	if l.Count() == 0 {
		return 0
	}
	return time.Duration(l.h.ValueAtQuantile(percent))
}

// Micros returns a quantile in microseconds.
func (l Latency) Micros(percent float64) float64 {
	return float64(l.Quantile(percent).Nanoseconds()) / 1e3
}

// MarshalText implements [encoding.TextMarshaler].
func (l Latency) MarshalText() ([]byte, error) {
	if l.h == nil {
		return nil, nil
	}
	return l.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *Latency) UnmarshalText(text []byte) error {
	l.h = nil
	if len(text) == 0 {
		return nil
	}
	h, err := hdrhistogram.Decode(text)
	if err != nil {
		return fmt.Errorf("measure: histogram: %w", err)
	}
	l.h = h
	return nil
}
