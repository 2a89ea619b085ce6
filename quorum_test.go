package redlock

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
)

// maxN is the largest number of nodes in the exhaustive tests.
const maxN = 7

// subsets returns the sets of size nodes out of n, each as a bit mask.
func subsets(n, size int) []uint {
	var sets []uint
	for s := range uint(1) << n {
		if bits.OnesCount(s) == size {
			sets = append(sets, s)
		}
	}
	return sets
}

// alwaysMeet reports whether any two sets of q out of n nodes share a node.
func alwaysMeet(n, q int) bool {
	sets := subsets(n, q)
	for _, a := range sets {
		for _, b := range sets {
			if a&b == 0 {
				return false
			}
		}
	}
	return true
}

// Two quorums share a node, and no smaller number would do.
//
// Source: distlock, step 3; ALGORITHM section 1.
func TestQuorumsShareANode(t *testing.T) {
	for n := 1; n <= maxN; n++ {
		if q := quorum(n); !alwaysMeet(n, q) || q > n {
			t.Errorf("n = %d: two sets of %d nodes need not share a node", n, q)
		}
		// A control: with one node less the same check must fail.
		if q := n / 2; alwaysMeet(n, q) {
			t.Errorf("n = %d: sets of %d nodes always share a node: the check sees nothing", n, q)
		}
	}
}

// eachVote visits all combinations of answers of n nodes: yes, no or none.
func eachVote(n int, visit func(votes []answer)) {
	votes := make([]answer, n)
	for {
		visit(votes)
		i := 0
		for ; i < n && votes[i] == no; i++ {
			votes[i] = awaited
		}
		if i == n {
			return
		}
		votes[i]++
	}
}

// slowTally tries every combination of the missing votes.
func slowTally(votes []answer) tally {
	granted, refused := 0, 0
	eachVote(len(votes), func(end []answer) {
		yeses := 0
		for i, v := range end {
			if v == awaited || votes[i] != awaited && votes[i] != v {
				return // not a completion of these votes
			}
			if v == yes {
				yeses++
			}
		}
		if yeses > len(votes)-yeses {
			granted++
		} else {
			refused++
		}
	})
	switch {
	case refused == 0:
		return reached
	case granted == 0:
		return impossible
	}
	return undecided
}

func count(votes []answer, of answer) int {
	n := 0
	for _, v := range votes {
		if v == of {
			n++
		}
	}
	return n
}

// A verdict comes exactly when the missing votes cannot change it, neither earlier nor later.
//
// Source: ALGORITHM section 3, points 4 and 5.
func TestDecide(t *testing.T) {
	for n := 1; n <= maxN; n++ {
		seen := make(map[string]bool) // the slow count is too slow to repeat
		eachVote(n, func(votes []answer) {
			y, x := count(votes, yes), count(votes, no)
			if key := fmt.Sprint(y, x); !seen[key] {
				seen[key] = true
				if got, want := decide(n, quorum(n), y, x), slowTally(votes); got != want {
					t.Errorf("decide(%d, %[1]d/2+1, %[2]d, %[3]d): got %v, want %v", n, y, x, got, want)
				}
			}
		})
		if want := (n + 1) * (n + 2) / 2; len(seen) != want {
			t.Fatalf("n = %d: %d cases were looked at, want %d", n, len(seen), want)
		}
	}
}

// A lease is exclusive while no quorum lacks its key.
//
// Source: ALGORITHM section 6, "Lost now".
func TestExclusive(t *testing.T) {
	for n := 1; n <= maxN; n++ {
		for held := range n + 1 {
			want := true
			for _, ours := range subsets(n, held) {
				for _, theirs := range subsets(n, n/2+1) {
					want = want && ours&theirs != 0
				}
			}
			if got := exclusive(n, quorum(n), held); got != want {
				t.Errorf("exclusive(%d, %d): got %v, want %v", n, held, got, want)
			}
		}
	}
}

// fenceRace grants three leases one after another, each by any quorum, on nodes whose counters
// start anywhere. It returns how often a lease's block was not entirely behind the block before it.
// If raise is false, it does not raise counters.
func fenceRace(n int, raise bool) (overlaps int) {
	var step func(counters []int64, last int64, leases int)
	step = func(counters []int64, last int64, leases int) {
		if leases == 0 {
			return
		}
		for _, set := range subsets(n, quorum(n)) {
			after := slices.Clone(counters)
			votes := make([]int64, n)
			for i := range after {
				if set>>i&1 == 1 {
					after[i] += fenceBlock
					votes[i] = after[i]
				}
			}
			target := fenceTarget(votes)
			for i, c := range votes {
				if raise && c > 0 {
					after[i] = max(after[i], target)
				}
			}
			if firstFence(target) <= last {
				overlaps++
				continue
			}
			step(after, target, leases-1)
		}
	}
	starts := []int64{1, 1000, 1, 40, 1063}
	step(starts[:n], 0, 3)
	return overlaps
}

// The blocks of successive leases never share a token and never go back.
//
// Source: ALGORITHM section 4.
func TestFenceBlocksNeverOverlap(t *testing.T) {
	for n := 1; n <= 5; n++ {
		if got := fenceRace(n, true); got != 0 {
			t.Errorf("n = %d: %d leases have a token that is not larger than all before", n, got)
		}
		// Control: without the second round the check must see it fail.
		if n > 2 && fenceRace(n, false) == 0 {
			t.Errorf("n = %d: no overlap without the second round: the check sees nothing", n)
		}
	}
}

// A block has as many tokens as the script adds, and ends with the counter.
//
// Source: ALGORITHM section 4, "the end of a block".
func TestFirstFence(t *testing.T) {
	for _, counter := range []int64{64, 1760000000000000, 1760000000000064} {
		if got, want := firstFence(counter), counter-63; got != want {
			t.Errorf("firstFence(%d): got %d, want %d", counter, got, want)
		}
	}
}
