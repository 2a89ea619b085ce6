package fencing

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
		{"two attempts", Default()},
		{"blocks and hand-over", with(func(c *Config) { c.Block = 3 })},
		{"blocks, hand-over and clocks that differ", with(func(c *Config) { c.Block, c.Clocks = 3, [nodes]int{0, 1, 2} })},
		{"duplicates", with(func(c *Config) { c.Twice = 2 })},
		{"lost counters", with(func(c *Config) { c.Wipe, c.Block = true, 2 })},
		{"three attempts", with(func(c *Config) { c.Attempts = 3 })},
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
		{"no second round", with(func(c *Config) { c.NoRaise, c.Clocks = true, [nodes]int{2} }), TokenFalls},
		{"raised where it is not held", with(func(c *Config) { c.Attempts, c.RaiseAnywhere = 3, true }), SameToken},
		{"raised by id alone, with duplicates", with(func(c *Config) { c.RaiseByID, c.Twice = true, 1 }), SameToken},
		{"a counter is lost, the clock is behind", with(func(c *Config) { c.Wipe, c.ClockBehind = true, true }), SameToken},
		{"the same token for the next caller", with(func(c *Config) { c.Block, c.KeepToken = 3, true }), SameToken},
		{"handed over past the block", with(func(c *Config) { c.Block, c.PastBlock = 2, true }), SameToken},
		{"handed over after the end", with(func(c *Config) { c.Block, c.HandOverLate = 2, true }), TokenFalls},
		{"the old handle stays", with(func(c *Config) { c.Block, c.KeepHandle = 2, true }), TwoHandles},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
