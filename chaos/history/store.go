package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Write is a write to a store that the lock protects.
type Write struct {
	Store      string
	Client     string
	Fence      int64
	Call, Done time.Duration
	Read       int64 // what the client had read before, and wrote one more than
	Accepted   bool
	Seq        int64 // number of the write in the order of the store, if it was accepted
}

// Lost returns the writes that overwrote one that their client had not read: lost updates.
// Those that were not accepted do not count.
func Lost(writes []Write) (lost []Write) {
	writes = slices.Clone(writes)
	slices.SortStableFunc(writes, func(a, b Write) int { return cmp.Compare(a.Seq, b.Seq) })
	var value, seq int64
	for _, w := range writes {
		if !w.Accepted {
			continue
		}
		// A number that nobody knows of: its client died before it could tell.
		if w.Read != value && w.Seq <= seq+1 {
			lost = append(lost, w)
		}
		value, seq = w.Read+1, w.Seq
	}
	return lost
}

// Stale checks a store that compares fencing tokens: it must not have accepted a write
// with a smaller token after one with a larger one had returned.
func Stale(writes []Write) (found []Violation) {
	byCall := slices.Clone(writes)
	slices.SortFunc(byCall, func(a, b Write) int { return cmp.Compare(a.Call, b.Call) })
	byDone := slices.Clone(writes)
	slices.SortFunc(byDone, func(a, b Write) int { return cmp.Compare(a.Done, b.Done) })
	var largest int64
	i := 0
	for _, w := range byCall {
		for ; i < len(byDone) && byDone[i].Done < w.Call; i++ {
			if byDone[i].Accepted {
				largest = max(largest, byDone[i].Fence)
			}
		}
		if w.Accepted && w.Fence < largest {
			found = append(found, Violation{"fence", w.Call, "store", fmt.Sprintf("a write with fence %d by %s was accepted after one with %d", w.Fence, w.Client, largest)})
		}
	}
	return found
}
