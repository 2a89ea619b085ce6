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
		"one permit twice":          {all: []int{2, 2}, numbers: []int{1, 1}, want: []string{"I1 s~1", "lock s~1"}},
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
				}, func(*multi) []Part { return []Part{{"s~" + string(rune('0'+number)), "t", int64(64 * (i + 1))}} })
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
			if got := len(h.Permits()); got != len(slices.Compact(slices.Clone(test.numbers))) {
				t.Errorf("got %d permits that were granted, want those of %v", got, test.numbers)
			}
		})
	}
}

// clientOf returns a client whose clock goes on by 1 ms each time that it is read.
func clientOf(h *History) *Client {
	var now atomic.Int64
	return &Client{Name: "a", Sink: h.Add, Now: func() time.Duration { return time.Duration(now.Add(int64(ms))) }, Why: func(err error) string { return err.Error() }}
}

// A part that its holder gives back is free for other clients, and not before.
func TestFreePart(t *testing.T) {
	for _, early := range []bool{false, true} {
		var h History
		c := clientOf(&h)
		take := func(parts ...Part) *Held[*multi] {
			var names []string
			for _, p := range parts {
				names = append(names, p.Resource)
			}
			held, err := TakeAll(c, names, nil, true, func() (*multi, error) {
				ctx, end := context.WithCancel(t.Context())
				t.Cleanup(end)
				return &multi{ctx, end, 50 * ms}, nil
			}, func(*multi) []Part { return parts })
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		first := take(Part{"x", "t1", 1}, Part{"y", "t2", 1})
		if early {
			take(Part{"y", "t3", 65})
		}
		if err := first.FreePart("y", func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if a := h.Done[1]; a.Ended == 0 || a.Freed <= a.Ended || h.Done[0].Ended > 0 {
			t.Errorf("got %+v and %+v, want an end of the part that was given back", a, h.Done[0])
		}
		if !early {
			take(Part{"y", "t3", 65})
		}
		first.Look() // as if the lease had been extended
		var rules []string
		for _, v := range h.Check(Rules{}) {
			rules = append(rules, v.Rule+" "+v.Resource)
		}
		slices.Sort(rules)
		want := []string{"I1 y", "lock y"}
		if !early {
			want = nil
		}
		if !slices.Equal(rules, want) {
			t.Errorf("early %v: got %q, want %q", early, rules, want)
		}
	}
}

// A call is recorded with all that a check needs of it: the acquisitions of one call belong together, a
// permit goes by its own name, and a minimum hold is known.
func TestRecordOfCall(t *testing.T) {
	var h History
	c := clientOf(&h)
	held, err := TakePermits(c, "s", 2, 9, true, func() (*multi, error) { return &multi{t.Context(), nil, 50 * ms}, nil },
		func(*multi) []Part { return []Part{{"s~1", "t1", 1}, {"s~2", "t2", 1}} })
	if err != nil {
		t.Fatal(err)
	}
	if err := held.FreePart("s~2", func() error { return errors.New("late") }); err == nil {
		t.Error("got no error of the part's Unlock")
	}
	if _, err := TakeKept(c, "job", 7*ms, func() (*fakeLease, error) { return nil, errors.New("taken") }); err == nil {
		t.Error("got a lease of a refusal")
	}
	one, two, job := h.Done[0], h.Done[1], h.Done[2]
	if one.Group != 1 || two.Group != 1 || job.Group != 0 || one.Freed > 0 || two.Freed == 0 || job.Keep != 7*ms {
		t.Errorf("got %+v, %+v and %+v, want one call for two permits, the second of which was given back, and one with a minimum hold", one, two, job)
	}
}

// A call for several resources gets each of them, or none.
func TestWhole(t *testing.T) {
	type end struct {
		resource string // that is granted; "" for none
		kind     Kind   // of the last record, "" for none
	}
	for name, test := range map[string]struct {
		permits int
		ends    []end
		want    int
	}{
		"all":                                   {0, []end{{"x", Seen}, {"y", Seen}}, 0},
		"none":                                  {0, []end{{"", Refused}, {"", Refused}}, 0},
		"a part is missing":                     {0, []end{{"x", Seen}, {"", ""}}, 1},
		"a part is refused":                     {0, []end{{"x", ""}, {"", Refused}}, 1},
		"died while it recorded the grant":      {0, []end{{"x", ""}, {"", ""}}, 0},
		"permits that differ":                   {9, []end{{"p 1", Seen}, {"p 2", Seen}}, 0},
		"one permit twice":                      {9, []end{{"p 1", Seen}, {"p 1", Seen}}, 1},
		"a permit is missing in a lost lease":   {9, []end{{"p 1", Over}, {"", ""}}, 1},
		"a permit is missing, and the rest lie": {9, []end{{"", ""}, {"p 1", Seen}, {"p 2", Seen}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			for i := range test.ends {
				h.Add(Record{Kind: Called, Client: "a", Op: uint64(i + 7), Group: 7, Resource: []string{"x", "y", "z"}[i], Permits: test.permits, At: ms})
			}
			for i, e := range test.ends {
				r := Record{Kind: Granted, Client: "a", Op: uint64(i + 7), Resource: e.resource, At: 2 * ms, Fence: int64(i + 1)}
				if e.resource != "" {
					h.Add(r)
				}
				if r.Kind = e.kind; e.kind != "" {
					r.At, r.Until = 3*ms, 4*ms
					h.Add(r)
				}
			}
			var got []Violation
			for _, v := range h.Check(Rules{}) {
				if v.Rule == "whole" {
					got = append(got, v)
				}
			}
			if len(got) != test.want {
				t.Errorf("got %v, want %d violations", got, test.want)
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
		"just after the call":  {"s~2", 80 * ms, 0},
		"long after the call":  {"s~2", 100 * ms, 1},
		"of another semaphore": {"ss~2", 80 * ms, 1},
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
