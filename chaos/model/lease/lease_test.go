package lease

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func with(c Config, change func(c *Config)) Config {
	change(&c)
	return c
}

const (
	x = Exclusive
	s = Shared
)

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"an extension and a restart", with(Default(3, x, x), func(c *Config) { c.Extensions, c.Restarts = 1, 1 })},
		{"two restarts", with(Default(3, x, x), func(c *Config) { c.Restarts = 2 })},
		{"an extension", with(Default(3, x, x), func(c *Config) { c.Extensions = 1 })},
		{"an extension with a longer TTL, a restart", with(Default(2, x, x), func(c *Config) {
			c.Extensions, c.Restarts, c.ExtensionTTL, c.Quarantine = 1, 1, 3, 3
		})},
		{"an extension with a shorter TTL, a restart", with(Default(3, x, x), func(c *Config) { c.Extensions, c.Restarts, c.ExtensionTTL = 1, 1, 2 })},
		{"a restart with a wrong clock", with(Default(3, x, x), func(c *Config) { c.Restarts, c.WrongClocks = 1, true })},
		{"a key lost of three", with(Default(3, x, x), func(c *Config) { c.Losses, c.FirstNeeds = 1, 3 })},
		{"Break, an extension", with(Default(3, x, x), func(c *Config) { c.Breaks, c.Extensions = true, 1 })},
		{"Break, a restart", with(Default(2, x, x), func(c *Config) { c.Breaks, c.Restarts = true, 1 })},
		{"no fill, a restart", with(Default(2, x, x), func(c *Config) { c.Extensions, c.Restarts, c.NoFill = 1, 1, true })},

		{"readers: a reader and a writer, an extension and a restart", with(Default(2, s, x), func(c *Config) { c.Extensions, c.Restarts = 1, 1 })},
		{"readers: a writer and a reader, an extension and a restart", with(Default(2, x, s), func(c *Config) { c.Extensions, c.Restarts = 1, 1 })},
		{"readers: both extend", with(Default(2, s, x), func(c *Config) { c.Extensions = 2 })},
		{"readers: two restarts", with(Default(2, s, x), func(c *Config) { c.Restarts = 2 })},
		{"readers: two readers and a writer", Default(1, s, s, x)},
		{"readers: two readers and a writer, a short and a long life", with(Default(1, s, s, x), func(c *Config) { c.TTL[0] = 2 })},
		{"readers: a downgrade and a restart", with(Default(2, x, x), func(c *Config) { c.Downgrades, c.Restarts = 1, 1 })},
		{"readers: an extension, a downgrade, another writer", with(Default(2, x, x), func(c *Config) { c.Extensions, c.Downgrades = 1, 1 })},
		{"readers: a downgrade, a reader and a writer", with(Default(1, x, s, x), func(c *Config) { c.Downgrades = 1 })},
		{"readers: an old message makes a reader's claim exclusive again", with(Default(2, x, s), func(c *Config) {
			c.Extensions, c.Downgrades, c.WriteAfterLower = 1, 1, true
		})},
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
		{"guard off", with(Default(3, x, x), func(c *Config) { c.Extensions, c.Restarts, c.Quarantine = 1, 1, 0 }), TwoHolders},
		{"quarantine a tick too short", with(Default(3, x, x), func(c *Config) { c.Extensions, c.Restarts, c.Quarantine = 1, 1, 2 }), TwoHolders},
		{"a quarantine for the TTL of the lease, and an extension with a longer one", with(Default(2, x, x), func(c *Config) {
			c.Extensions, c.Restarts, c.ExtensionTTL = 1, 1, 3
		}), TwoHolders},
		{"an extension that shortens the life of a key", with(Default(3, x, x), func(c *Config) {
			c.Extensions, c.ExtensionTTL, c.Shortens = 1, 1, true
		}), EarlyEnd},
		{"quarantined nodes count", with(Default(3, x, x), func(c *Config) { c.Extensions, c.Restarts, c.CountQuarantined = 1, 1, true }), TwoHolders + searchtest.Deep},
		{"a quarantine that the correction of a clock ends", with(Default(3, x, x), func(c *Config) {
			c.Restarts, c.WrongClocks, c.CountWrongClock = 1, true, true
		}), TwoHolders},
		{"late extension", with(Default(3, x, x), func(c *Config) { c.Extensions, c.LateExtension = 1, true }), NotAlone},
		{"Break that deletes", with(Default(3, x, x), func(c *Config) { c.Breaks, c.BreakDeletes = true, true }), TwoHolders},
		{"a placeholder that is dropped before its holder's end", with(Default(3, x, x), func(c *Config) { c.Breaks, c.EarlyDrop = true, true }), TwoHolders},
		{"a placeholder that another attempt's release drops", with(Default(2, x, x, x), func(c *Config) { c.Breaks, c.ForeignDrop = true, true }), TwoHolders + searchtest.Deep},
		{"id used again", with(Default(3, x, x, x), func(c *Config) { c.ReuseID = true }), TwoHolders},
		{"validity from the last reply", with(Default(3, x, x), func(c *Config) { c.ValidityFromReply = true }), EarlyEnd},
		{"a key lost of a bare majority", with(Default(3, x, x), func(c *Config) { c.Losses = 1 }), TwoHolders},
		{"two keys lost of three", with(Default(3, x, x), func(c *Config) { c.Losses, c.FirstNeeds = 2, 3 }), TwoHolders},
		{"half of the nodes", with(Default(3, x, x), func(c *Config) { c.Nodes, c.Quorum = 4, 2 }), TwoHolders},

		{"readers: guard off", with(Default(2, s, x), func(c *Config) { c.Restarts, c.Quarantine = 1, 0 }), TwoHolders},
		{"readers: quarantine a tick too short", with(Default(2, s, x), func(c *Config) { c.Restarts, c.Quarantine = 1, 1 }), TwoHolders},
		{"readers: quarantined nodes count", with(Default(2, s, x), func(c *Config) { c.Extensions, c.Restarts, c.CountQuarantined = 1, 1, true }), TwoHolders},
		{"readers: late extension", with(Default(2, s, x), func(c *Config) { c.Extensions, c.LateExtension = 1, true }), NotAlone},
		{"readers: a writer ignores one reader", with(Default(2, s, x), func(c *Config) { c.IgnoreOne = true }), TwoHolders},
		{"readers: a writer fills beside readers", with(Default(2, x, s), func(c *Config) { c.Extensions, c.FillOverReaders = 1, true }), TwoHolders},
		{"readers: one life for all, the last", with(Default(2, s, s, x), func(c *Config) { c.TTL[1], c.LastLife = 1, true }), EarlyEnd},
		{"readers: one life for all, the longest", with(Default(2, s, s, x), func(c *Config) { c.TTL[1], c.LongestLife = 1, true }), Outlives},
		{"readers: the right to write ends after the downgrade", with(Default(2, x, s), func(c *Config) { c.Downgrades, c.LateDowngrade = 1, true }), TwoHolders},
		{"readers: a downgrade in two steps", with(Default(2, x, x), func(c *Config) { c.Downgrades, c.Restarts, c.TwoStep = 1, 1, true }), TwoHolders},
		{"readers: a key lost of a bare majority", with(Default(2, s, x), func(c *Config) { c.Losses = 1 }), TwoHolders},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
