package redlock

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// The verdict on all answers of up to five nodes, compared with the meaning of each answer.
func TestVerdictOf(t *testing.T) {
	for n := 1; n <= 5; n++ {
		q := quorum(n)
		nodes := make([]MasterLock, n)
		var all func(int)
		all = func(i int) {
			if i < n {
				for _, token := range []string{"", "a", "b"} {
					for _, void := range []error{nil, errors.New("stepped")} {
						nodes[i] = MasterLock{Token: token, Void: void}
						all(i + 1)
						if token == "a" {
							nodes[i].Broken = true
							all(i + 1)
						}
					}
				}
				nodes[i] = MasterLock{Err: errNodeTimeout}
				all(i + 1)
				return
			}
			in := Inspection{Quorum: q, Masters: nodes}
			in.judge()
			checkVerdict(t, &in)
		}
		all(0)
	}
}

func checkVerdict(t *testing.T, in *Inspection) {
	t.Helper()
	a, b, down, votes, taken := 0, 0, 0, 0, 0 // taken away from a
	for _, n := range in.Masters {
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
	blocked := taken > len(in.Masters)-q
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
		t.Errorf("got %v, %q for %+v", in.Verdict, in.Token, in.Masters)
	}
}

// The fencing token of leases that were granted by section 4 of ALGORITHM, with some of the nodes
// down or without the key. Inspect shows the right token or none, and the right one if all nodes
// have answered.
func TestFenceOfAHolder(t *testing.T) {
	certain := 0
	for range 100_000 {
		n := 1 + rand.IntN(7)
		q := quorum(n)
		nodes := make([]MasterLock, n)
		order := rand.Perm(n) // the order of their votes: the first q count
		var lease int64
		for i, at := range order {
			c := int64(1000 + rand.IntN(3))
			nodes[at] = MasterLock{Token: "a", given: c, counter: c}
			if i < q {
				lease = max(lease, c)
			}
		}
		for _, at := range order[:q] {
			nodes[at].counter = lease
		}
		whole := true
		for i := range nodes {
			switch rand.IntN(8) {
			case 0:
				nodes[i], whole = MasterLock{Err: errNodeTimeout}, false
			case 1:
				nodes[i].given, whole = 0, false // it forgot the key, and got it again
			case 2:
				nodes[i].Token, whole = "b", false
			}
		}
		in := Inspection{Quorum: q, Masters: nodes}
		switch got := in.counterOf("a"); {
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
