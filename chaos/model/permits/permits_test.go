package permits

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func with(c Config, change func(c *Config)) Config {
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	one, two := Attempt{1, 2}, Attempt{2, 2}
	for _, test := range []struct {
		name string
		Config
	}{
		{"three clients, two permits", with(Default(one, one, one), func(c *Config) { c.TTL = 1 })},
		{"one wants both permits", with(Default(two, one, one), func(c *Config) { c.TTL = 1 })},
		{"one wants both permits, an extension", with(Default(two, one), func(c *Config) { c.Extensions = 1 })},
		{"an extension and a restart", with(Default(two, one), func(c *Config) { c.Extensions, c.Restarts = 1, 1 })},
		{"from any slot, an extension and a restart", with(Default(one, one), func(c *Config) { c.Anywhere, c.Extensions, c.Restarts = true, 1, 1 })},
		{"two permits, two restarts", with(Default(two, one), func(c *Config) { c.Restarts = 2 })},
		{"clients differ in how many there are", with(Default(Attempt{1, 1}, Attempt{1, 2}, Attempt{1, 2}), func(c *Config) { c.TTL = 1 })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// With a rule left out, the search finds what goes wrong.
func TestControls(t *testing.T) {
	one, two := Attempt{1, 2}, Attempt{2, 2}
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"a counter on each node", with(Default(one, one, one), func(c *Config) { c.AnySlot, c.TTL = true, 1 }), TooMany},
		{"guard off", with(Default(two, one), func(c *Config) { c.Restarts, c.Quarantine = 1, 0 }), TooMany},
		{"quarantine a tick too short", with(Default(two, one), func(c *Config) { c.Restarts, c.Quarantine = 1, 1 }), TooMany},
		{"filled in quarantine counts", with(Default(one, one), func(c *Config) { c.Restarts, c.Extensions, c.CountQuarantined = 1, 1, true }), SameSlot},
		{"late extension", with(Default(one, one), func(c *Config) { c.Extensions, c.LateExtension = 1, true }), NotAlone},
		{"half of the nodes", with(Default(one, one), func(c *Config) { c.Quorum = 1 }), SameSlot},
		{"clients differ, and the smaller number is expected", with(Default(Attempt{1, 1}, Attempt{1, 2}), func(c *Config) { c.Smallest = true }), TooMany},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
