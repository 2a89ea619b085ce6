package measure

import (
	"cmp"
	"slices"
	"time"
)

// History is a contest with all its processes together.
type History struct {
	HandOvers int
	Span      time.Duration // from the start to the last unlock, or to the end if a worker waited until then

	Wait   Latency // of every round; a round that the end cut off counts with its time until then
	Hold   Latency
	Across Latency // from Unlock until the next worker, if it is of another process, has the key

	Outcome // of all processes

	Overlaps int     // workers that had the key while another worker had it: the lock did not lock
	Falls    int     // fencing tokens that did not rise
	Jain     float64 // of the numbers of turns of the workers
	Least    float64 // the turns of the worker with the fewest, as a fraction of an equal share
}

// entry is a section and its process.
type entry struct {
	process int
	Section
}

// NewHistory merges the results of all processes of a contest, each with its number of workers.
func NewHistory(c Contest, workers []int, seen []Attempts) History {
	h := History{Wait: NewLatency(), Hold: NewLatency(), Across: NewLatency()}
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
		h.Sold, h.Failed, h.CPU = h.Sold+a.Sold, h.Failed+a.Failed, h.CPU+a.CPU
		h.Err = cmp.Or(a.Err, h.Err)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Start, b.Start) })
	h.HandOvers = len(entries)
	h.Jain, h.Least = Jain(turns), Least(turns)
	h.follow(entries)
	return h
}

// follow goes through the holders in their order.
func (h *History) follow(entries []entry) {
	if len(entries) == 0 {
		return
	}
	last := entries[0] // the section that ended last, so far
	fence := last.Fence
	for _, e := range entries[1:] {
		if e.Start < last.End {
			h.Overlaps++
		} else if e.process != last.process {
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

// Jain returns Jain's fairness index: 1 if all shares are equal, 1/n if one worker has
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

// Least returns the smallest share, as a fraction of an equal share: 1 if all are equal, 0 if
// one worker has nothing. Without shares, or if all are 0, it returns 0.
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
