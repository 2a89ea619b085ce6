package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Access is a read or a write of a store that the lock protects.
type Access struct {
	Store      string
	Client     string
	Fence      int64
	Call, Done time.Duration
	Write      bool
	Value      int64 // the value that the client read: with this read, or before this write, which writes one more
	Accepted   bool  // the store accepted the fencing token
	Seq        int64 // number of an accepted write in the order of the store
}

// Lost returns the lost updates: writes that overwrote a value that their client had not
// read. Refused writes do not count.
func Lost(accesses []Access) (lost []Access) {
	writes := slices.DeleteFunc(slices.Clone(accesses), func(a Access) bool { return !a.Write || !a.Accepted })
	slices.SortStableFunc(writes, func(a, b Access) int { return cmp.Compare(a.Seq, b.Seq) })
	var value, seq int64
	for _, w := range writes {
		// The client of this write died before it could report it.
		if w.Value != value && w.Seq <= seq+1 {
			lost = append(lost, w)
		}
		value, seq = w.Value+1, w.Seq
	}
	return lost
}

// Stale checks a store that compares fencing tokens. It must not accept an access with a
// smaller token after an access with a larger token has returned. Reads count on both
// sides: a write between a read with a larger token and the write computed from that read
// would be lost.
//
// Source: ALGORITHM section 7.
func Stale(accesses []Access) (found []Violation) {
	byCall := slices.Clone(accesses)
	slices.SortFunc(byCall, func(a, b Access) int { return cmp.Compare(a.Call, b.Call) })
	byDone := slices.Clone(accesses)
	slices.SortFunc(byDone, func(a, b Access) int { return cmp.Compare(a.Done, b.Done) })
	var largest int64
	i := 0
	for _, a := range byCall {
		for ; i < len(byDone) && byDone[i].Done < a.Call; i++ {
			if byDone[i].Accepted {
				largest = max(largest, byDone[i].Fence)
			}
		}
		if a.Accepted && a.Fence < largest {
			what := map[bool]string{false: "read", true: "write"}[a.Write]
			found = append(found, Violation{"fence", a.Call, "store", fmt.Sprintf("a %s with fence %d by %s was accepted after an access with %d", what, a.Fence, a.Client, largest)})
		}
	}
	return found
}
