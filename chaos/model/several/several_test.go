package several

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

var sets = map[string][][]int{
	"crosswise":                    {{0, 1}, {1, 0}},
	"crosswise, and one in it":     {{0, 1}, {1, 0}, {1}},
	"at a round table":             {{0, 1}, {1, 2}, {2, 0}},
	"all, and two of them":         {{2, 1, 0}, {0, 2}, {1, 0}},
	"a rival for the first of all": {{0, 1, 2}, {0}, {0, 2}},
}

func TestSound(t *testing.T) {
	for name, of := range sets {
		t.Run(name, func(t *testing.T) { searchtest.Sound(t, Config{Sets: of, Turns: 2, Crashes: 1}.Model()) })
	}
}

// Each rule that is left out is missed: calls wait for each other in a circle.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name, sets string
		Config
	}{
		{"in the order in which they are named", "crosswise", Config{AsNamed: true}},
		{"what is free behind what is missing is kept", "at a round table", Config{Keeps: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.Sets, test.Turns = sets[test.sets], 1
			searchtest.Breaks(t, test.Model(), Stuck)
		})
	}
}
