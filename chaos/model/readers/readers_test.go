package readers

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
		{"a reader and a writer, an extension and a restart", with(Default(s, x), func(c *Config) { c.Restarts, c.Extensions = 1, 1 })},
		{"a writer and a reader, an extension and a restart", with(Default(x, s), func(c *Config) { c.Restarts, c.Extensions = 1, 1 })},
		{"both extend", with(Default(s, x), func(c *Config) { c.Extensions = 2 })},
		{"two restarts", with(Default(s, x), func(c *Config) { c.Restarts = 2 })},
		{"two readers and a writer", with(Default(s, s, x), func(c *Config) { c.TTL = []int{1, 1, 1} })},
		{"two readers and a writer, a short and a long life", with(Default(s, s, x), func(c *Config) { c.TTL = []int{2, 1, 1} })},
		{"a downgrade and a restart", with(Default(x, x), func(c *Config) { c.Restarts, c.Downgrades = 1, 1 })},
		{"an extension, a downgrade, another writer", with(Default(x, x), func(c *Config) { c.Extensions, c.Downgrades = 1, 1 })},
		{"a downgrade, a reader and a writer", with(Default(x, s, x), func(c *Config) { c.Downgrades = 1; c.TTL = []int{1, 1, 1} })},
		{"an old message makes a reader's claim exclusive again", with(Default(x, s), func(c *Config) { c.Extensions, c.Downgrades, c.WriteAfterLower = 1, 1, true })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// TestControls leaves out one rule each, and the search must notice.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"guard off", with(Default(s, x), func(c *Config) { c.Restarts, c.Quarantine = 1, 0 }), Together},
		{"quarantine a tick too short", with(Default(s, x), func(c *Config) { c.Restarts, c.Quarantine = 1, 1 }), Together},
		{"filled in quarantine counts", with(Default(s, x), func(c *Config) { c.Restarts, c.Extensions, c.CountQuarantined = 1, 1, true }), Together},
		{"late extension of a reader", with(Default(s, x), func(c *Config) { c.Extensions, c.LateExtension = 1, true }), NotAlone},
		{"a writer ignores one reader", with(Default(s, x), func(c *Config) { c.IgnoreOne = true }), Together},
		{"a writer fills beside readers", with(Default(x, s), func(c *Config) { c.Extensions, c.FillOverReaders = 1, true }), Together},
		{"one life for all readers, the last", with(Default(s, s, x), func(c *Config) { c.TTL[1], c.LastLife = 1, true }), EarlyEnd},
		{"one life for all readers, the longest", with(Default(s, s, x), func(c *Config) { c.TTL[1], c.LongestLife = 1, true }), Outlives},
		{"the right to write ends after the downgrade", with(Default(x, s), func(c *Config) { c.Downgrades, c.LateDowngrade = 1, true }), Together},
		{"a downgrade in two steps", with(Default(x, x), func(c *Config) { c.Downgrades, c.TwoStep, c.Restarts = 1, true, 1 }), Together},
		{"a claim lost of a bare majority", with(Default(s, x), func(c *Config) { c.Losses = 1 }), Together},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
