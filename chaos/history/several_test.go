package history

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// multi is a lease on several resources, whose clock the test moves.
type multi struct {
	ctx   context.Context
	end   context.CancelFunc
	valid time.Duration
}

func (m *multi) Validity() time.Duration    { return m.valid }
func (m *multi) Context() context.Context   { return m.ctx }
func (*multi) Unlock(context.Context) error { return nil }

// A lease on several resources is recorded, and checked, as one on each.
func TestTakeAll(t *testing.T) {
	var h History
	now := ms
	client := func(name string) *Client {
		return &Client{Name: name, Sink: h.Add, Now: func() time.Duration { now += ms; return now }, Why: func(err error) string { return err.Error() }}
	}
	take := func(c *Client, parts ...Part) *Held[*multi] {
		var names []string
		for _, p := range parts {
			names = append(names, p.Resource)
		}
		h, err := TakeAll(c, names, nil, true, func() (*multi, error) {
			ctx, end := context.WithCancel(t.Context())
			return &multi{ctx, end, 50 * ms}, nil
		}, func(*multi) []Part { return parts })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Lease.end)
		return h
	}
	first := take(client("one"), Part{"a", "t1", 1}, Part{"b", "t2", 65})
	second := take(client("two"), Part{"c", "t3", 1}, Part{"b", "t4", 1})
	for _, held := range []*Held[*multi]{first, second} {
		if err := held.Free(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	take(client("three"), Part{"a", "t5", 65}, Part{"b", "t6", 129}, Part{"c", "t7", 65})
	if _, err := TakeAll(client("four"), []string{"a"}, []string{"b"}, false, func() (*multi, error) { return nil, errors.New("taken") }, nil); err == nil {
		t.Error("got no error of the call")
	}
	var seen []string
	for _, v := range h.Check(rules) {
		if id := v.Rule + " " + v.Resource; !slices.Contains(seen, id) {
			seen = append(seen, id)
		}
	}
	slices.Sort(seen)
	if want := []string{"I1 b", "I2 b", "lock b"}; !slices.Equal(seen, want) {
		t.Errorf("got %q, want %q", seen, want)
	}
	refused := 0
	for _, a := range h.So() {
		if a.Why == "taken" {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("got %d refused acquisitions, want one for each resource", refused)
	}
}

// Permits are recorded, and checked, as one lease on each permit. No more of them are held than there are.
func TestTakePermits(t *testing.T) {
	for name, test := range map[string]struct {
		all     []int // permits that each client gives the semaphore
		numbers []int // of the permits that the clients get
		want    []string
	}{
		"as many as there are":      {all: []int{2, 2}, numbers: []int{1, 2}},
		"one permit twice":          {all: []int{2, 2}, numbers: []int{1, 1}, want: []string{"I1 s 1", "lock s 1"}},
		"a counter that admits all": {all: []int{2, 2, 2}, numbers: []int{1, 2, 3}, want: []string{"permits s"}},
		"clients that differ":       {all: []int{2, 3, 2}, numbers: []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			var now atomic.Int64
			for i, number := range test.numbers {
				c := &Client{Name: string(rune('a' + i)), Sink: h.Add, Now: func() time.Duration { return time.Duration(now.Add(int64(ms))) }, Why: func(err error) string { return err.Error() }}
				_, err := TakePermits(c, "s", 1, test.all[i], true, func() (*multi, error) {
					ctx, end := context.WithCancel(t.Context())
					t.Cleanup(end)
					return &multi{ctx, end, 50 * ms}, nil
				}, func(*multi) []Part { return []Part{{"s " + string(rune('0'+number)), "t", int64(64 * (i + 1))}} })
				if err != nil {
					t.Fatal(err)
				}
			}
			var seen []string
			for _, v := range h.Check(rules) {
				if id := v.Rule + " " + v.Resource; !slices.Contains(seen, id) {
					seen = append(seen, id)
				}
			}
			slices.Sort(seen)
			if !slices.Equal(seen, test.want) {
				t.Errorf("got %q, want %q", seen, test.want)
			}
		})
	}
}

// A call for permits may leave a key on each permit for a short while, and no longer.
func TestKeysOfPermits(t *testing.T) {
	for name, test := range map[string]struct {
		resource string
		at       time.Duration
		want     int
	}{
		"just after the call":  {"s/2", 80 * ms, 0},
		"long after the call":  {"s/2", 100 * ms, 1},
		"of another semaphore": {"ss/2", 80 * ms, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := History{Healed: 10 * ms}
			h.Add(Record{Kind: Called, Client: "a", Op: 1, Resource: "s", Permits: 2, At: 20 * ms})
			h.Add(Record{Kind: Refused, Client: "a", Op: 1, At: 40 * ms, Why: "taken"})
			h.Rounds = append(h.Rounds, []Look{{At: test.at, Done: test.at, Up: true, Run: "run", Keys: map[string]Key{test.resource: {ID: "x"}}}})
			if found := h.Check(rules); len(found) != test.want || test.want > 0 && found[0].Rule != "I6" {
				t.Errorf("got %v, want %d violations of I6", found, test.want)
			}
		})
	}
}
