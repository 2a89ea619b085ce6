package anyof

import (
	"cmp"
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"three processes, two keys", Config{Processes: 3, Keys: 2, Turns: 1}},
		{"three processes, one key, twice", Config{Processes: 3, Keys: 1, Turns: 2}},
		{"two processes, three keys, twice", Config{Processes: 2, Keys: 3, Turns: 2}},
		{"ends that the queue node misses, three processes", Config{Processes: 3, Keys: 2, Turns: 1, Barging: true}},
		{"ends that the queue node misses, twice", Config{Processes: 2, Keys: 2, Turns: 2, Barging: true}},
		{"callers that give up", Config{Processes: 3, Keys: 2, Turns: 1, GiveUps: 1}},
		{"a process dies, or a call is lost", Config{Processes: 2, Keys: 2, Turns: 1, Faults: 1, Barging: true}},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Without any one of the rules the search finds a fault.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"the turn is that of the queue", Config{OneTurn: true}, Stranded},
		{"a rest attends to its own key alone", Config{OwnKey: true}, Stranded},
		{"a process that leaves keeps the turn of another key", Config{GiveUps: 1, KeepTurn: true}, Stranded},
		{"a process that has a turn is given another one", Config{TwoTurns: true}, Stranded},
		{"a process that rests keeps the turn of a key that is held by now", Config{Barging: true, KeepHeld: true}, Stranded},
		{"a process does not get its place back", Config{Barging: true, StayBack: true}, Stranded},
		{"a free key goes to the process that joined last", Config{Keys: 1, Newest: true}, Overtaken},
		{"a process that was granted without the queue node stays in the queue", Config{Barging: true, Stays: true}, Stranded},
		{"the queue node is enough", Config{Barging: true, NoQuorum: true}, TwoHolders},
	} {
		test.Processes, test.Keys, test.Turns = 3, cmp.Or(test.Keys, 2), 1
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
