package lease

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func with(change func(c *Config)) Config {
	c := Default()
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"an extension and a restart", with(func(c *Config) { c.Restarts = 1 })},
		{"two restarts", with(func(c *Config) { c.Restarts, c.Extensions = 2, 0 })},
		{"an extension", Default()},
		{"a key lost of three", with(func(c *Config) { c.Losses, c.FirstNeeds, c.Extensions = 1, 3, 0 })},
		{"no fill, a restart", with(func(c *Config) { c.Restarts, c.NoFill = 1, true; c.TTL, c.Quarantine = 2, 2 })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Each rule that is left out is missed.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"guard off", with(func(c *Config) { c.Restarts, c.Quarantine = 1, 0 }), TwoHolders},
		{"quarantine a tick too short", with(func(c *Config) { c.Restarts, c.Quarantine = 1, 2 }), TwoHolders},
		{"quarantined nodes count", with(func(c *Config) { c.Restarts, c.CountQuarantined = 1, true }), TwoHolders},
		{"late extension", with(func(c *Config) { c.LateExtension = true }), NotAlone},
		{"id used again", with(func(c *Config) { c.Attempts, c.Extensions, c.ReuseID = 3, 0, true }), TwoHolders},
		{"validity from the last reply", with(func(c *Config) { c.Extensions, c.ValidityFromReply = 0, true }), EarlyEnd},
		{"a key lost of a bare majority", with(func(c *Config) { c.Losses, c.Extensions = 1, 0 }), TwoHolders},
		{"two keys lost of three", with(func(c *Config) { c.Losses, c.FirstNeeds, c.Extensions = 2, 3, 0 }), TwoHolders},
		{"half of the nodes", with(func(c *Config) { c.Nodes, c.Quorum, c.Extensions = 4, 2, 0 }), TwoHolders},
		{"lists of three and of five", with(func(c *Config) {
			c.Nodes, c.Quorum, c.OtherNodes, c.OtherQuorum, c.Extensions = 5, 3, 3, 2, 0
		}), TwoHolders},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
