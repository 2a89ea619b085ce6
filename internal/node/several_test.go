package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/wire"
)

// ask is a request of a process to the queue node of several keys.
type ask struct {
	op     wire.Op
	key    string // its number; "0" for none
	id     string
	target int64 // of a rest: for how many keys the process waits
	who    string
	given  int64 // of a rest: the counter of a grant that a quorum refused
}

// asks sends requests in one call of the script, and returns a text for each reply: what the queue node says of a
// rest, or the counter of another one. The processes poll.
func (n *node) asks(t *testing.T, list ...ask) (said []string) {
	t.Helper()
	n.pinned = true
	keys, args := []string{n.markerKey()}, n.common("")
	for _, a := range list {
		keys = append(keys, n.key+"~"+a.key)
		r := &Request{Op: a.op, Key: &Key{ID: a.id, TTL: hour}, Process: a.who}
		if a.op == wire.Rest {
			r.Counter, r.Target = a.given, a.target*wire.PerResource
		}
		args = append(args, argsOf(t, r)...)
	}
	n.later++
	source := fmt.Sprintf(pinTime, theTime/second, n.later*1000) + wire.Requests.Source
	values, err := n.Eval(t.Context(), source, keys, args...).Slice()
	if err != nil {
		t.Fatal(err)
	}
	_, replies, err := parseReplies(values, len(list))
	if err != nil {
		t.Fatal(err)
	}
	for i, rep := range replies {
		if rep.Err != nil {
			t.Fatalf("request %d: %v", i, rep.Err)
		}
		said = append(said, fmt.Sprint(rep.Counter))
		if list[i].op == wire.Rest {
			said[i] += fmt.Sprint(" ", rep.Extra) // the number of the key whose turn it has, and its place
		}
	}
	return said
}

// standing returns the queue of several keys, in order, and behind it the turn of each key.
func (n *node) standing(t *testing.T) string {
	t.Helper()
	var turns []string
	for i := range 4 {
		if who := n.Get(t.Context(), fmt.Sprint(n.key, "~", i, wire.TurnSuffix)).Val(); who != "" {
			turns = append(turns, fmt.Sprint(i, "=", who))
		}
	}
	return strings.Join(append(n.ZRange(t.Context(), n.key+"~"+wire.QueueSuffix, 0, -1).Val(), turns...), " ")
}

// testSeveral goes through what the queue node does with one queue for several keys.
//
// Source: ALGORITHM section 10, "Any of several".
func testSeveral(t *testing.T, base *node) {
	const x, y, z = "in1~1", "in2~1", "in3~1"
	rest := func(who string) ask { return ask{wire.Rest, "0", "r-" + who, 2, who, 0} }
	leaves := func(who string) ask { return ask{wire.Release, "0", "r-" + who, 0, who, 0} }
	frees := func(key string) ask { return ask{wire.Release, key, "b", 0, noProcess, 0} }
	for _, test := range []struct {
		name  string
		do    [][]ask // with ~1 and ~2 held by b; in each list one call
		said  []string
		stand string
	}{
		{"keys that become free at once call two processes",
			[][]ask{{rest(x), rest(y), rest(z)}, {frees("1")}, {frees("2")}}, []string{"3"}, "in3~1 in1~1 in2~1 1=in1~1 2=in2~1"},
		{"a key that is free when a process joins",
			[][]ask{{frees("2")}, {rest(x), rest(y)}}, []string{"2 0", "0 0"}, "in2~1 in1~1 2=in1~1"},
		{"a key that became free in the same call, behind a rest that found none",
			[][]ask{{rest(x), frees("1"), frees("2"), rest(y)}}, []string{"0 0", "1", "1", "2 1"}, "in1~1 in2~1 1=in1~1 2=in2~1"},
		{"a rest that has its turn already",
			[][]ask{{frees("2")}, {rest(x)}, {rest(x)}}, []string{"2 0"}, "in1~1 2=in1~1"},
		{"a turn that was in vain is given back, and the place is kept",
			[][]ask{{rest(x)}, {rest(y)}, {frees("2")}, {{wire.Extend, "2", "c", 0, "", 0}}, {{wire.Rest, "2", "d", 2, x, 0}}}, []string{"0 0"}, "in1~1 in2~1"},
		{"a turn of a key that is held by now, at a rest for none",
			[][]ask{{rest(x)}, {rest(y)}, {frees("2")}, {{wire.Extend, "2", "c", 0, "", 0}}, {rest(x)}}, []string{"0 0"}, "in1~1 in2~1"},
		{"a turn in vain, as a quorum refused the key",
			[][]ask{{rest(x)}, {rest(y)}, {frees("2")}, {{wire.Rest, "2", "d", 2, x, 64}}}, []string{"0 0"}, "in1~1 in2~1 2=="},
		{"a turn of a key beyond those that the process wants",
			[][]ask{{rest(x)}, {rest(y)}, {frees("2")}, {{wire.Rest, "0", "e", 1, x, 0}}}, []string{"0 0"}, "in1~1 in2~1"},
		{"a process that leaves gives back the turn of another key",
			[][]ask{{rest(x), rest(y)}, {frees("2")}, {leaves(x)}}, []string{"0"}, "in2~1 2=in2~1"},
		{"a process that is granted another key than that of its turn",
			[][]ask{{rest(x), rest(y)}, {frees("1"), frees("2")}, {{wire.Acquire, "3", "c", 0, x, 0}}}, nil, "in2~1 2=in2~1"},
		{"another process meets the turn of a key alone",
			[][]ask{{rest(x)}, {frees("1")}, {{wire.Acquire, "3", "c", 0, noProcess, 0}}}, nil, "in1~1 1=in1~1"},
		{"callers of the same process are no others",
			[][]ask{{rest(x), rest(y)}, {{wire.Acquire, "1", "c", 0, "in1~9", 0}}}, []string{"1"}, "in1~1 in2~1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := base.fresh(t)
			for _, key := range []string{"1", "2"} {
				n.set(t, n.key+"~"+key, "b|0", hour)
			}
			var said []string
			for _, call := range test.do {
				said = n.asks(t, call...)
			}
			if test.said != nil && !slices.Equal(said, test.said) {
				t.Errorf("last replies: got %q, want %q", said, test.said)
			}
			if got := n.standing(t); got != test.stand {
				t.Errorf("got %q, want %q", got, test.stand)
			}
			for who, seen := range n.HGetAll(t.Context(), n.key+"~"+wire.SeenSuffix).Val() {
				if !strings.Contains(seen, "~") {
					t.Errorf("seen of %s: got %q, want that it polls", who, seen)
				}
			}
		})
	}
}
