package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// orders returns every order of the steps of n holders, each of which reads and then
// writes. A step is the number of its holder.
func orders(n int) (list [][]int) {
	done := make([]int, n)
	var order []int
	var extend func()
	extend = func() {
		if len(order) == 2*n {
			list = append(list, slices.Clone(order))
			return
		}
		for holder := range n {
			if done[holder] < 2 {
				done[holder]++
				order = append(order, holder)
				extend()
				order = order[:len(order)-1]
				done[holder]--
			}
		}
	}
	extend()
	return list
}

// inOrder has holders increment a register. Holder i has token i + 1.
func inOrder(t *testing.T, shop string, r register, order []int) (accesses []history.Access) {
	t.Helper()
	var tick time.Duration
	now := func() time.Duration { tick++; return tick }
	s := newStore(shop, "client", now, func(a history.Access) { accesses = append(accesses, a) })
	defer s.client.Close()
	locktest.Must(t, s.client.FlushAll(t.Context()).Err())
	type sale struct {
		value           int64
		began, accepted bool
	}
	sales := make([]sale, len(order)/2)
	calls := 0
	for _, holder := range order {
		switch h := &sales[holder]; {
		case !h.began:
			h.began = true
			h.value, h.accepted = s.read(r, int64(holder+1))
			calls++
		case h.accepted:
			s.write(r, int64(holder+1), h.value)
			calls++
		}
	}
	if len(accesses) != calls {
		t.Fatalf("got %d accesses of %d: the store does not answer", len(accesses), calls)
	}
	return accesses
}

// A store that compares fencing tokens at reads and at writes loses no update, in whatever
// order holders read and write. The control is a store that compares them at the write only:
// it accepts the write of an older holder between the read and the write of a younger one.
// The checker finds that.
//
// Source: ALGORITHM section 7.
func TestStoreOrders(t *testing.T) {
	redistest.Server(t)
	shop := redistest.Masters(t, 1)[0].Addr()
	lost := make(map[register][][]int)
	for _, r := range registers {
		for _, order := range orders(3) {
			accesses := inOrder(t, shop, r, order)
			gone, stale := history.Lost(accesses), history.Stale(accesses)
			if len(gone) > 0 {
				lost[r] = append(lost[r], order)
			}
			if len(gone) > 0 && len(stale) == 0 && r != open {
				t.Errorf("%s, order %v: got %v lost and nothing stale, want every loss to be found by its tokens, too", r.name, order, gone)
			}
			if r == fenced && len(gone)+len(stale) > 0 {
				t.Errorf("%s, order %v: got lost updates %v and stale accesses %v, want none", r.name, order, gone, stale)
			}
			if r == fenced && !slices.ContainsFunc(accesses, func(a history.Access) bool { return a.Write && a.Accepted && a.Fence == 3 }) {
				t.Errorf("%s, order %v: got the last holder refused, want its write accepted", r.name, order)
			}
		}
	}
	t.Logf("%d orders; %s: %d with a lost update; %s: %d; %s: %d", len(orders(3)),
		fenced.name, len(lost[fenced]), writesFenced.name, len(lost[writesFenced]), open.name, len(lost[open]))
	if len(lost[open]) <= len(lost[writesFenced]) {
		t.Errorf("got %d orders with a lost update without tokens and %d with tokens at the write, want fewer with tokens", len(lost[open]), len(lost[writesFenced]))
	}

	for _, order := range orders(2) {
		got := len(history.Lost(inOrder(t, shop, writesFenced, order))) > 0
		want := slices.Equal(order, []int{0, 1, 0, 1}) || slices.Equal(order, []int{1, 0, 0, 1}) // both read, the older writes, the younger writes
		if got != want {
			t.Errorf("%s, order %v: got an update lost: %v, want %v", writesFenced.name, order, got, want)
		}
	}
}
