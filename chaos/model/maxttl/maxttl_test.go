package maxttl

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func TestSound(t *testing.T) {
	for _, losses := range []int{1, 2} {
		searchtest.Sound(t, Config{Losses: losses}.Model())
	}
}

// Without any one of the rules the search finds a fault.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"a larger TTL is not written down", Config{NotRaised: true}},
		{"a smaller TTL takes the place of a larger one", Config{ForgetAtOnce: true}},
		{"the TTL of the present request takes the place", Config{NoRecent: true}},
		{"a request does not begin the time anew", Config{NotTouched: true}},
		{"forgotten a tick too early", Config{Early: true}},
	} {
		test.Losses = 1
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), TwoHolders) })
	}
}
