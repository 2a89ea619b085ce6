package wire

import (
	"math"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// What a function does for a writer, its like does for a reader, and each reply is to some functions alone.
func TestOps(t *testing.T) {
	for o := Acquire; o <= Adopt; o++ {
		sets := slices.Contains([]Op{Acquire, Acquire.Shared(), Extend, Extend.Shared(), Adopt}, o)
		if wants := o == Acquire || o == Adopt; o.SetsKey() != sets || o.Wants() != wants {
			t.Errorf("function %d: got that it sets a key: %v, and wants one: %v; want %v, %v", o, o.SetsKey(), o.Wants(), sets, wants)
		}
	}
	if got, want := Rest.Shared(), Adopt-1; got != want {
		t.Errorf("the rest of a reader: got function %d, want %d", got, want)
	}
	for o, answers := range map[Op][]Code{
		Acquire: {Granted, Mine, Busy, SetVoteless, Late, BadType, Queued, Unseeded, Ahead},
		Raise:   {Raised, Unheld, Ahead},
		Extend:  {Kept, KeptVoteless, Filled, FilledVoteless, Taken, TakenAway, Adopted, Late, BadType},
		Release: {Released, Gone, Adopted},
		Adopt:   {Granted, Mine, SetVoteless, Late, BadType, Unseeded, Ahead, Taken, TakenAway, Adopted, Gone},
		Rest:    {Released, Gone},
	} {
		for c := range Code(40) {
			if got, want := c.Answers(o), slices.Contains(answers, c); got != want {
				t.Errorf("code %d answers %v: got %v, want %v", c, o, got, want)
			}
		}
	}
}

// CutNumber and the pattern of lua/begin.lua and lua/common.lua cut a name at the same place.
//
// Source: ALGORITHM section 10, "Any of several".
func TestCutNumber(t *testing.T) {
	const cut = `string.match(key, '^(.*~)%d+$') or key`
	if got := strings.Count(Requests.Source, cut); got != 2 {
		t.Errorf("got %d times %s in the script, want 2", got, cut)
	}
	state := lua.NewState()
	defer state.Close()
	for _, test := range []struct {
		name, queue string
		number      int
	}{
		{"", "", 0},
		{"r", "r", 0},
		{"7", "7", 0},
		{"r7", "r7", 0},
		{"r~", "r~", 0},
		{"r~x7", "r~x7", 0},
		{"r~7x", "r~7x", 0},
		{"r~-7", "r~-7", 0},
		{"r~\u0667", "r~\u0667", 0}, // another script's digit
		{"r~7\n", "r~7\n", 0},
		{"r~0", "r~", 0},
		{"r~7", "r~", 7},
		{"r~007", "r~", 7},
		{"~7", "~", 7},
		{"r~7~12", "r~7~", 12},
		{"r~~7", "r~~", 7},
		{"r\x00\n~7", "r\x00\n~", 7},
		{"r~99999999999999999999999", "r~", math.MaxInt},
	} {
		queue, number := CutNumber(test.name)
		if queue != test.queue || number != test.number || QueueOf(test.name) != queue {
			t.Errorf("%q: got %q, %d and %q, want %q and %d", test.name, queue, number, QueueOf(test.name), test.queue, test.number)
		}
		state.SetGlobal("key", lua.LString(test.name))
		if err := state.DoString("queue = " + cut); err != nil {
			t.Fatal(err)
		}
		if got := state.GetGlobal("queue").String(); got != test.queue {
			t.Errorf("%q: got %q in Lua, want %q", test.name, got, test.queue)
		}
	}
}
