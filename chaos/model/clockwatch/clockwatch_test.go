package clockwatch

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func with(change func(c *Config)) Config {
	c := Config{TTL: 2, Quarantine: 2, Step: 2, Asks: [clients]int{1, 1}, Standstills: 1}
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"a step", with(func(c *Config) { c.Steps, c.Asks = 1, [clients]int{1, 2} })},
		{"a step and an extension", with(func(c *Config) { c.Steps, c.Extend = 1, true })},
		{"a step that a newcomer cannot notice, all nodes held", with(func(c *Config) { c.Steps, c.Newcomer, c.FirstNeeds = 1, true, 3 })},
		{"a standstill", with(func(c *Config) { c.Standstill = 2 })},
		{"a standstill and an extension", with(func(c *Config) { c.Standstill, c.Extend = 2, true })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Without any one of the rules the search finds a fault, and so it does for each property that
// is not promised.
func TestControls(t *testing.T) {
	twice := [clients]int{1, 2}
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"steps are not looked for", with(func(c *Config) { c.Steps, c.NoWatch = 1, true }), TwoHolders},
		{"a node that stepped is not marked", with(func(c *Config) { c.Steps, c.NoMark, c.Asks = 1, true, twice }), TwoHolders},
		{"undecided, taken for the client", with(func(c *Config) { c.Steps, c.Step, c.TrustAll, c.Asks = 1, 1, true, twice }), TwoHolders},
		{"undecided, taken for the nodes", with(func(c *Config) { c.Standstill, c.BlameNodes = 2, true }), TwoHolders},
		{"not stepped, says an old reply", with(func(c *Config) { c.Standstill, c.OldLooks = 2, true }), TwoHolders},
		{"a step that a newcomer cannot notice", with(func(c *Config) { c.Steps, c.Newcomer = 1, true }), TwoHolders},
		{"a quorum that steps alike", with(func(c *Config) {
			c.Steps, c.Step, c.Held, c.Asks = 2, 1, true, [clients]int{2, 1}
		}), TwoHolders},
		{"a step beside a standstill", with(func(c *Config) {
			c.Steps, c.Standstill, c.Held, c.AllAnswer, c.Asks = 1, 1, true, true, [clients]int{2, 1}
		}), TwoHolders},
		{"a second step, of a node that was silent", with(func(c *Config) { c.Steps, c.Another = 2, 1 }), TwoHolders},
		{"a second standstill, behind an old reply", with(func(c *Config) { c.Standstill, c.Standstills = 2, 2 }), TwoHolders},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
