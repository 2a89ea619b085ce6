package wire

import (
	"math"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

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
