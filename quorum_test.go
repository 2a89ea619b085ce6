package redlock

import (
	"math/bits"
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
