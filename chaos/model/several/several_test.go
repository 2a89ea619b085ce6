package several

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func of(change func(c *Config), sets ...[]int) Config {
	c := Config{Sets: sets, Turns: 1}
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	patient := func(c *Config) { c.Patient = true }
	for _, test := range []struct {
		name string
		Config
	}{
		{"two processes, two resources, named crosswise", of(func(c *Config) { c.Turns = 2 }, []int{0, 1}, []int{1, 0})},
		{"a process dies", of(func(c *Config) { c.Crashes = 1 }, []int{0, 1}, []int{1, 0})},
		{"two, and a process that wants less", of(patient, []int{0, 1}, []int{1, 0}, []int{1})},
		{"three at a round table", of(patient, []int{0, 1}, []int{1, 2}, []int{2, 0})},
		{"nodes go on, crosswise", of(func(c *Config) { c.GoesOn, c.Turns = true, 2 }, []int{0, 1}, []int{1, 0})},
		{"nodes go on, a process dies", of(func(c *Config) { c.GoesOn, c.Crashes = true, 1 }, []int{0, 1}, []int{1, 0})},
		{"nodes go on, two, and a process that wants less", of(func(c *Config) { c.GoesOn, c.Patient = true, true }, []int{0, 1}, []int{1, 0}, []int{1})},
		{"nodes go on, a rival for the first", of(func(c *Config) { c.GoesOn, c.Turns = true, 2 }, []int{0, 1}, []int{0})},
		{"nodes go on, a rival for the first, a process dies", of(func(c *Config) { c.GoesOn, c.Crashes = true, 1 }, []int{0, 1, 2}, []int{0, 2})},
		{"nothing is kept", of(func(c *Config) { c.AllOrNothing = true }, []int{0, 1}, []int{1, 0})},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Each rule that is left out is missed: some process waits for ever, or two hold a resource.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"in the order in which they are named", of(func(c *Config) { c.Patient, c.AsNamed = true, true }, []int{0, 1}, []int{1, 0}, []int{1}), "the goal is out of reach" + searchtest.Deep},
		{"one node is enough", of(func(c *Config) { c.One = true }, []int{0}, []int{0}), TwoHolders},
		{"what too few gave is kept", of(func(c *Config) { c.NoTrim = true }, []int{0}, []int{0}, []int{0}), "the goal is out of reach"},
		{"what is free behind a gap is taken and kept", of(func(c *Config) { c.Patient, c.Some = true, true }, []int{0, 1}, []int{0, 1}, []int{0}), "the goal is out of reach" + searchtest.Deep},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
