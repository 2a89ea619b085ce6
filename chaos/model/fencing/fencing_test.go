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

// expiring lets counters expire, and time pass.
func expiring(change func(c *Config)) Config {
	return with(func(c *Config) {
		c.Expiry, c.Ticks, c.Margin = true, 3, MaxSkew
		change(c)
	})
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
		{"counters that expire, clocks that differ", expiring(func(c *Config) { c.Ahead, c.Clocks = [nodes]int{0, 1, -1}, [nodes]int{1, 1, 1} })},
		{"counters that expire, a clock that is corrected", expiring(func(c *Config) { c.Ahead, c.Corrections = [nodes]int{0, 0, 3}, 1 })},
		{"a node that restarts empty, a clock that is corrected", expiring(func(c *Config) {
			c.Ticks, c.Margin, c.Ahead, c.Corrections, c.Restarts, c.Quarantine = 3, 9, [nodes]int{0, 0, 3}, 1, 1, 3
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
		{"no second round", with(func(c *Config) { c.NoRaise, c.Clocks = true, [nodes]int{2} }), TokenFalls},
		{"raised where it is not held", with(func(c *Config) { c.Attempts, c.RaiseAnywhere = 3, true }), SameToken},
		{"raised by id alone, with duplicates", with(func(c *Config) { c.RaiseByID, c.Twice = true, 1 }), SameToken},
		{"a counter is lost, the clock is behind", with(func(c *Config) { c.Wipe, c.ClockBehind = true, true }), SameToken},
		{"a counter expires before the clock has passed it", expiring(func(c *Config) { c.ExpireEarly, c.Clocks = true, [nodes]int{2, 2, 2} }), TokenFalls},
		{"a counter expires as soon as the clock has passed it", expiring(func(c *Config) { c.Margin, c.Ahead = 0, [nodes]int{1, 1, 0} }), SameToken},
		{"a clock that is far off starts a counter", expiring(func(c *Config) {
			c.SeedFar, c.Margin, c.Ahead, c.Corrections, c.Restarts, c.Quarantine = true, 9, [nodes]int{0, 0, 5}, 1, 1, 3
		}), TokenFalls},
		{"the same token for the next caller", with(func(c *Config) { c.Block, c.KeepToken = 3, true }), SameToken},
		{"handed over past the block", with(func(c *Config) { c.Block, c.PastBlock = 2, true }), SameToken},
		{"handed over after the end", with(func(c *Config) { c.Block, c.HandOverLate = 2, true }), TokenFalls},
		{"the old handle stays", with(func(c *Config) { c.Block, c.KeepHandle = 2, true }), TwoHandles},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
