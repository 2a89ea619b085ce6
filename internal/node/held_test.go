package node

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// The fencing token of leases that were granted by section 4 of ALGORITHM, with some of the nodes
// down or without the key. Inspect shows the right token or none, and the right one if all nodes
// have answered.
func TestFenceOfAHolder(t *testing.T) {
	certain := 0
	for range 100_000 {
		n := 1 + rand.IntN(7)
		q := n/2 + 1
		nodes := make([]Held, n)
		order := rand.Perm(n) // the order of their votes: the first q count
		var lease int64
		for i, at := range order {
			c := int64(1000 + rand.IntN(3))
			nodes[at] = Held{Token: "a", Given: c, Counter: c}
			if i < q {
				lease = max(lease, c)
			}
		}
		for _, at := range order[:q] {
			nodes[at].Counter = lease
		}
		whole := true
		for i := range nodes {
			switch rand.IntN(8) {
			case 0:
				nodes[i], whole = Held{Err: errors.New("no answer")}, false
			case 1:
				nodes[i].Given, whole = 0, false // it forgot the key, and got it again
			case 2:
				nodes[i].Token, whole = "b", false
			}
		}
		switch got := CounterOf(nodes, q, "a"); {
		case got == lease:
			certain++
		case got != 0 || whole:
			t.Fatalf("got %d, want %d of %+v", got, lease, nodes)
		}
	}
	if certain < 30_000 {
		t.Errorf("got a fencing token of %d leases only", certain)
	}
}
