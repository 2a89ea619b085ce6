package admin

import (
	"errors"
	"testing"

	"github.com/d0720281/redlock/internal/node"
)

// The verdict on all answers of up to five nodes, compared with the meaning of each answer.
func TestVerdictOf(t *testing.T) {
	for n := 1; n <= 5; n++ {
		q := n/2 + 1
		nodes := make([]node.Held, n)
		var all func(int)
		all = func(i int) {
			if i < n {
				for _, token := range []string{"", "a", "b"} {
					for _, void := range []error{nil, errors.New("stepped")} {
						nodes[i] = node.Held{Token: token, Void: void}
						all(i + 1)
						if token == "a" {
							nodes[i].Broken = true
							all(i + 1)
						}
					}
				}
				nodes[i] = node.Held{Err: errors.New("no answer")}
				all(i + 1)
				return
			}
			in := Inspection{Quorum: q, Masters: make([]MasterLock, n)}
			in.judge(nodes)
			checkVerdict(t, &in, nodes)
		}
		all(0)
	}
}

func checkVerdict(t *testing.T, in *Inspection, nodes []node.Held) {
	t.Helper()
	a, b, down, votes, taken := 0, 0, 0, 0, 0 // taken away from a
	for _, n := range nodes {
		if n.Err != nil {
			down++
			continue
		}
		switch {
		case n.Broken:
			taken++
		case n.Token == "a":
			a++
		}
		if n.Token == "b" {
			b++
		}
		if n.Void == nil {
			votes++
		}
	}
	q := in.Quorum
	held := a >= q || b >= q
	perhaps := a+down >= q || b+down >= q // or a third holder may have it
	blocked := taken > len(nodes)-q
	ok := false
	switch in.Verdict {
	case VerdictHeld:
		ok = held && (in.Token == "a") == (a >= q)
	case VerdictUnknown:
		ok = !held && perhaps
	case VerdictBroken:
		ok = !perhaps && blocked && in.Token == "a"
	case VerdictQuarantined:
		ok = !perhaps && !blocked && votes < q
	case VerdictSplit:
		ok = !perhaps && !blocked && votes >= q && a+taken > 0 && b > 0
	case VerdictMinority:
		ok = !perhaps && !blocked && votes >= q && (a+taken > 0) != (b > 0) && in.Token != ""
	case VerdictFree:
		ok = !perhaps && votes >= q && a+b+taken == 0
	}
	if !ok {
		t.Errorf("got %v, %q for %+v", in.Verdict, in.Token, nodes)
	}
}
