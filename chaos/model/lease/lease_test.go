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

// exchanged has lists of three nodes: one node of the first list is replaced in the others.
func exchanged(change func(c *Config)) Config {
	return with(func(c *Config) {
		c.Nodes, c.OtherNodes, c.OtherQuorum, c.Exchanged, c.Membership, c.Extensions = 4, 3, 2, 1, true, 0
		c.TTL, c.Quarantine = 2, 2
		change(c)
	})
}

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"an extension and a restart", with(func(c *Config) { c.Restarts = 1 })},
		{"two restarts", with(func(c *Config) { c.Restarts, c.Extensions = 2, 0 })},
		{"an extension", Default()},
		{"an extension with a longer TTL, a restart", with(func(c *Config) { c.Restarts, c.TTL, c.ExtensionTTL = 1, 2, 3 })},
		{"an extension with a shorter TTL, a restart", with(func(c *Config) { c.Restarts, c.ExtensionTTL = 1, 2 })},
		{"a restart with a wrong clock", with(func(c *Config) { c.Restarts, c.Extensions, c.WrongClocks = 1, 0, true })},
		{"a key lost of three", with(func(c *Config) { c.Losses, c.FirstNeeds, c.Extensions = 1, 3, 0 })},
		{"Break, an extension", with(func(c *Config) { c.Breaks = true })},
		{"Break, a restart", with(func(c *Config) { c.Breaks, c.Restarts, c.Extensions = true, 1, 0; c.TTL, c.Quarantine = 2, 2 })},
		{"a node added", with(func(c *Config) {
			c.Nodes, c.Quorum, c.OtherNodes, c.OtherQuorum, c.Extensions = 4, 3, 3, 2, 0
			c.TTL = 2
		})},
		{"a node removed", with(func(c *Config) {
			c.Nodes, c.OtherNodes, c.OtherQuorum, c.Exchanged, c.Extensions = 4, 4, 3, 1, 0
			c.TTL = 2
		})},
		{"a node exchanged, a restart", exchanged(func(c *Config) { c.Restarts = 1 })},
		{"no fill, a restart", with(func(c *Config) { c.Restarts, c.NoFill = 1, true; c.TTL, c.Quarantine = 2, 2 })},
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
		{"guard off", with(func(c *Config) { c.Restarts, c.Quarantine = 1, 0 }), TwoHolders},
		{"quarantine a tick too short", with(func(c *Config) { c.Restarts, c.Quarantine = 1, 2 }), TwoHolders},
		{"a quarantine for the TTL of the lease, and an extension with a longer one", with(func(c *Config) {
			c.Restarts, c.TTL, c.ExtensionTTL, c.Quarantine = 1, 2, 3, 2
		}), TwoHolders},
		{"an extension that shortens the life of a key", with(func(c *Config) { c.ExtensionTTL, c.Shortens = 1, true }), EarlyEnd},
		{"quarantined nodes count", with(func(c *Config) { c.Restarts, c.CountQuarantined = 1, true }), TwoHolders},
		{"a quarantine that the correction of a clock ends", with(func(c *Config) {
			c.Restarts, c.Extensions, c.WrongClocks, c.CountWrongClock = 1, 0, true, true
		}), TwoHolders},
		{"late extension", with(func(c *Config) { c.LateExtension = true }), NotAlone},
		{"Break that deletes", with(func(c *Config) { c.Breaks, c.BreakDeletes, c.Extensions = true, true, 0 }), TwoHolders},
		{"a placeholder that is dropped before its holder's end", with(func(c *Config) { c.Breaks, c.EarlyDrop, c.Extensions = true, true, 0 }), TwoHolders},
		{"a placeholder that another attempt's release drops", with(func(c *Config) {
			c.Breaks, c.ForeignDrop, c.Attempts, c.Extensions = true, true, 3, 0
			c.TTL, c.Quarantine = 2, 2
		}), TwoHolders},
		{"id used again", with(func(c *Config) { c.Attempts, c.Extensions, c.ReuseID = 3, 0, true }), TwoHolders},
		{"validity from the last reply", with(func(c *Config) { c.Extensions, c.ValidityFromReply = 0, true }), EarlyEnd},
		{"a key lost of a bare majority", with(func(c *Config) { c.Losses, c.Extensions = 1, 0 }), TwoHolders},
		{"two keys lost of three", with(func(c *Config) { c.Losses, c.FirstNeeds, c.Extensions = 2, 3, 0 }), TwoHolders},
		{"half of the nodes", with(func(c *Config) { c.Nodes, c.Quorum, c.Extensions = 4, 2, 0 }), TwoHolders},
		{"lists of three and of five", with(func(c *Config) {
			c.Nodes, c.Quorum, c.OtherNodes, c.OtherQuorum, c.Extensions = 5, 3, 3, 2, 0
		}), TwoHolders},
		{"a node exchanged", exchanged(func(c *Config) { c.Membership = false }), TwoHolders},
		{"a node exchanged, and a restarted node that has forgotten the list", exchanged(func(c *Config) {
			c.Restarts, c.ForgetLists = 1, true
		}), TwoHolders},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
