package tokens

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

const (
	reader = true
	writer = false
)

func of(change func(c *Config), attempts ...bool) Config {
	c := Config{Readers: attempts, Block: 1}
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	plain := func(*Config) {}
	for _, test := range []struct {
		name string
		Config
	}{
		{"a reader and two writers", of(plain, reader, writer, writer)},
		{"two readers and a writer", of(plain, reader, reader, writer)},
		{"clocks that differ", of(func(c *Config) { c.Clocks = [nodes]int{0, 1, 3} }, reader, writer)},
		{"two readers, clocks that differ", of(func(c *Config) { c.Clocks = [nodes]int{0, 0, 1} }, reader, reader, writer)},
		{"blocks, clocks that differ", of(func(c *Config) { c.Block, c.Clocks = 3, [nodes]int{0, 1, 2} }, reader, writer)},
		{"requests that arrive twice", of(func(c *Config) { c.Twice, c.Clocks = 2, [nodes]int{0, 1, 2} }, reader, writer)},
		{"counters that are lost", of(func(c *Config) { c.Wipe, c.Block, c.Clocks = true, 2, [nodes]int{0, 1, 2} }, reader, writer)},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// TestControls leaves out one rule each, and the search must notice.
func TestControls(t *testing.T) {
	clocks := [nodes]int{0, 1, 3}
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"a reader does not raise", of(func(c *Config) { c.NoRaise, c.Clocks = true, clocks }, reader, writer), ReaderPasses},
		{"a reader takes the least", of(func(c *Config) { c.Least = true }, reader, writer), ReaderRefused},
		{"a reader takes the first of a block", of(func(c *Config) { c.FirstOfBlock, c.Block = true, 2 }, reader, writer), ReaderRefused},
		{"a reader raises where it has no claim", of(func(c *Config) { c.RaiseAnywhere, c.Clocks = true, clocks }, reader, writer), ReaderPasses},
		{"a counter is lost, the clock is behind", of(func(c *Config) { c.Wipe, c.ClockBehind = true, true }, reader, writer), ReaderRefused},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
