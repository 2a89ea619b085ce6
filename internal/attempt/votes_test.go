package attempt

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/d0720281/redlock/internal/wire"
)

// maxN is the largest number of nodes in the exhaustive tests.
const maxN = 7

// eachVote visits all combinations of answers of n nodes: yes, no or none.
func eachVote(n int, visit func(votes []Answer)) {
	votes := make([]Answer, n)
	for {
		visit(votes)
		i := 0
		for ; i < n && votes[i] == No; i++ {
			votes[i] = Awaited
		}
		if i == n {
			return
		}
		votes[i]++
	}
}

// slowTally tries every combination of the missing votes.
func slowTally(votes []Answer) Tally {
	granted, refused := 0, 0
	eachVote(len(votes), func(end []Answer) {
		yeses := 0
		for i, v := range end {
			if v == Awaited || votes[i] != Awaited && votes[i] != v {
				return // not a completion of these votes
			}
			if v == Yes {
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
		return Reached
	case granted == 0:
		return Impossible
	}
	return Undecided
}

func count(votes []Answer, of Answer) int {
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
		eachVote(n, func(votes []Answer) {
			y, x := count(votes, Yes), count(votes, No)
			if key := fmt.Sprint(y, x); !seen[key] {
				seen[key] = true
				if got, want := Decide(n, n/2+1, y, x), slowTally(votes); got != want {
					t.Errorf("attempt.Decide(%d, %[1]d/2+1, %[2]d, %[3]d): got %v, want %v", n, y, x, got, want)
				}
			}
		})
		if want := (n + 1) * (n + 2) / 2; len(seen) != want {
			t.Fatalf("n = %d: %d cases were looked at, want %d", n, len(seen), want)
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
		for set := range uint(1) << n {
			if bits.OnesCount(set) != n/2+1 {
				continue
			}
			after := slices.Clone(counters)
			votes := make([]int64, n)
			for i := range after {
				if set>>i&1 == 1 {
					after[i] += wire.Block
					votes[i] = after[i]
				}
			}
			target := fenceTarget(votes)
			for i, c := range votes {
				if raise && c > 0 {
					after[i] = max(after[i], target)
				}
			}
			if target-wire.Block < last {
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
			t.Errorf("n = %d: No overlap without the second round: the check sees nothing", n)
		}
	}
}
