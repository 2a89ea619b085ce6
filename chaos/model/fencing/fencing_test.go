package fencing

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

const (
	reader = true
	writer = false
)

func with(c Config, change func(c *Config)) Config {
	change(&c)
	return c
}

// two has two writers.
func two(change func(c *Config)) Config { return with(Default(writer, writer), change) }

// mixed has a reader and a writer.
func mixed(change func(c *Config)) Config { return with(Default(reader, writer), change) }

// expiring lets counters expire, and time pass.
func expiring(change func(c *Config)) Config {
	return two(func(c *Config) {
		c.Expiry, c.Ticks, c.Margin = true, 3, MaxSkew
		change(c)
	})
}

// copied lets a node restart with an earlier counter.
func copied(change func(c *Config)) Config {
	return expiring(func(c *Config) {
		c.Ticks, c.Margin, c.Copies, c.Corrections, c.Quarantine = 4, 9, 1, 1, 3
		c.Start = [nodes]int{1, 1, 1}
		change(c)
	})
}

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"two attempts", Default(writer, writer)},
		{"blocks and hand-over", two(func(c *Config) { c.Block = 3 })},
		{"blocks, hand-over and counters that differ", two(func(c *Config) { c.Block, c.Start = 3, [nodes]int{0, 1, 2} })},
		{"duplicates", two(func(c *Config) { c.Twice = 2 })},
		{"lost counters", two(func(c *Config) { c.Wipe, c.Block = true, 2 })},
		{"three attempts", Default(writer, writer, writer)},
		{"counters that expire, clocks that differ", expiring(func(c *Config) { c.Ahead, c.Start = [nodes]int{0, 1, -1}, [nodes]int{1, 1, 1} })},
		{"counters that expire, a clock that is corrected", expiring(func(c *Config) { c.Ahead, c.Corrections = [nodes]int{0, 0, 3}, 1 })},
		{"a node that restarts empty, a clock that is corrected", expiring(func(c *Config) {
			c.Margin, c.Ahead, c.Corrections, c.Restarts, c.Quarantine = 9, [nodes]int{0, 0, 3}, 1, 1, 3
		})},

		{"a node that restarts with an earlier counter", copied(func(c *Config) {})},
		{"a node that restarts with an earlier counter and its clock behind", copied(func(c *Config) { c.CopyAhead = -9 })},
		{"a node that restarts with an earlier counter and its clock ahead", copied(func(c *Config) { c.CopyAhead = 9 })},

		{"readers: a reader and two writers", Default(reader, writer, writer)},
		{"readers: two readers and a writer", Default(reader, reader, writer)},
		{"readers: counters that differ", mixed(func(c *Config) { c.Start = [nodes]int{1, 2, 4} })},
		{"readers: two readers, counters that differ", with(Default(reader, reader, writer), func(c *Config) { c.Start = [nodes]int{1, 1, 2} })},
		{"readers: blocks, hand-over and counters that differ", mixed(func(c *Config) { c.Block, c.Start = 3, [nodes]int{1, 2, 3} })},
		{"readers: duplicates, counters that differ", mixed(func(c *Config) { c.Twice, c.Start = 2, [nodes]int{1, 2, 3} })},
		{"readers: lost counters", mixed(func(c *Config) { c.Wipe, c.Block, c.Start = true, 2, [nodes]int{1, 2, 3} })},
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
		{"no second round", two(func(c *Config) { c.NoRaise, c.Start = true, [nodes]int{2} }), TokenFalls},
		{"raised where it is not held", with(Default(writer, writer, writer), func(c *Config) { c.RaiseAnywhere = true }), SameToken},
		{"raised by id alone, with duplicates", two(func(c *Config) { c.RaiseByID, c.Twice = true, 1 }), SameToken},
		{"a counter is lost, the clock is behind", two(func(c *Config) { c.Wipe, c.ClockBehind = true, true }), SameToken},
		{"a counter comes back as it was earlier, and counts", two(func(c *Config) { c.Wipe, c.CountsOld = true, true }), SameToken},
		{"a counter comes back, and its node's clock was behind when it counted as earlier", copied(func(c *Config) { c.UnsureStart, c.CopyAhead = true, -9 }), SameToken},
		{"a counter comes back, and a client with a larger MaxSkew had it started", copied(func(c *Config) { c.FarCounts, c.CopyAhead, c.Ahead = true, -9, [nodes]int{-9, -9, -9} }), SameToken},
		{"a counter expires before the clock has passed it", expiring(func(c *Config) { c.ExpireEarly, c.Start = true, [nodes]int{2, 2, 2} }), TokenFalls},
		{"a counter expires as soon as the clock has passed it", expiring(func(c *Config) { c.Margin, c.Ahead = 0, [nodes]int{1, 1, 0} }), SameToken},
		{"a clock that is far off starts a counter", expiring(func(c *Config) {
			c.SeedFar, c.Margin, c.Ahead, c.Corrections, c.Restarts, c.Quarantine = true, 9, [nodes]int{0, 0, 5}, 1, 1, 3
		}), TokenFalls + searchtest.Deep},
		{"the same token for the next caller", two(func(c *Config) { c.Block, c.KeepToken = 3, true }), SameToken},
		{"handed over past the block", two(func(c *Config) { c.Block, c.PastBlock = 2, true }), SameToken},
		{"handed over after the end", two(func(c *Config) { c.Block, c.HandOverLate = 2, true }), TokenFalls},
		{"the old hold stays", two(func(c *Config) { c.Block, c.KeepHold = 2, true }), TwoHolds},

		{"readers: no second round", mixed(func(c *Config) { c.NoRaise, c.Start = true, [nodes]int{1, 2, 4} }), ReaderPasses},
		{"readers: the least vote", mixed(func(c *Config) { c.Least = true }), ReaderRefused},
		{"readers: the first of a block", mixed(func(c *Config) { c.FirstOfBlock, c.Block = true, 2 }), ReaderRefused},
		{"readers: raised where there is no claim", mixed(func(c *Config) { c.RaiseAnywhere, c.Start = true, [nodes]int{1, 2, 4} }), ReaderPasses},
		{"readers: handed over after the end", mixed(func(c *Config) { c.Block, c.HandOverLate = 2, true }), ReaderPasses},
		{"readers: a counter is lost, the clock is behind", mixed(func(c *Config) { c.Wipe, c.ClockBehind = true, true }), ReaderRefused},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
