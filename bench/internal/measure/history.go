package measure

import (
	"cmp"
	"slices"
	"time"
)

// History is what a contest looks like with all its processes together.
type History struct {
	HandOvers int
	Span      time.Duration // from the start to the last unlock, or to the end if somebody waited for that

	Wait   Latency // of every round, and of those cut off at the end as far as they went
	Hold   Latency
	Within Latency // from Unlock until the next worker, of the same process, has the key
	Across Latency // of another process

	Overlaps int     // workers that had the key while another had it: the lock did not lock
	Falls    int     // fencing tokens that did not rise
	Jain     float64 // of how often each worker had the key
	Least    float64 // of the worker that had it least often, in parts of an equal share
}

// entry is a section and the process it was in.
type entry struct {
	process int
	Section
}

// NewHistory merges what each process saw of a contest, each with a number of workers.
func NewHistory(c Contest, workers []int, seen []Attempts) History {
	h := History{Wait: NewLatency(), Hold: NewLatency(), Within: NewLatency(), Across: NewLatency()}
	var entries []entry
	var turns []int
	for process, a := range seen {
		mine := make([]int, workers[process])
		for _, s := range a.Sections {
			entries = append(entries, entry{process, s})
			mine[s.Worker]++
			h.Wait.Record(s.Start - s.Asked)
			h.Hold.Record(s.End - s.Start)
			h.Span = max(h.Span, s.End-c.Start)
		}
		for _, d := range a.Waiting {
			h.Wait.Record(d)
			h.Span = max(h.Span, c.For)
		}
		turns = append(turns, mine...)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Start, b.Start) })
	h.HandOvers = len(entries)
	h.Jain, h.Least = Jain(turns), Least(turns)
	h.follow(entries)
	return h
}

// follow goes from holder to holder, in the order in which they came.
func (h *History) follow(entries []entry) {
	if len(entries) == 0 {
		return
	}
	last := entries[0] // of those so far, the one that ended last
	fence := last.Fence
	for _, e := range entries[1:] {
		if e.Start < last.End {
			h.Overlaps++
		} else if e.process == last.process {
			h.Within.Record(e.Start - last.End)
		} else {
			h.Across.Record(e.Start - last.End)
		}
		if e.Fence != 0 && e.Fence <= fence {
			h.Falls++
		}
		fence = max(fence, e.Fence)
		if e.End > last.End {
			last = e
		}
	}
}

// Jain is Jain's fairness index: 1 if all have the same, 1/n if one has everything.
// Of nobody, or with nothing to share out, it is 0.
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

// Least is the smallest share, in parts of what each would have if all had the same: 1 if they
// have, 0 if one has nothing. Of nobody, or with nothing to share out, it is 0.
func Least(shares []int) float64 {
	sum := 0
	for _, s := range shares {
		sum += s
	}
	if sum == 0 {
		return 0
	}
	return float64(slices.Min(shares)) * float64(len(shares)) / float64(sum)
}
