package groups

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func with(change func(c *Config)) Config {
	c := Default()
	change(&c)
	return c
}

// restarts has a number of restarts, and no join after the end of its survey.
func restarts(n int, change func(c *Config)) Config {
	return with(func(c *Config) {
		c.Restarts, c.Late = n, 0
		change(c)
	})
}

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"no restart", Default()},
		{"surveys longer than a quarantine", with(func(c *Config) { c.Timeout = 3 })},
		{"a TTL and surveys of two ticks", with(func(c *Config) { c.TTL, c.Timeout, c.Quarantine, c.InUse = 2, 2, 3, 6 })},
		{"new nodes", with(func(c *Config) { c.New = true })},
		{"a client stops", with(func(c *Config) { c.Stops = true })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Without any one of the rules the search finds a fault. Where a time is too short by the
// longest survey, it is too short on the last tick alone: any more is enough.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"no survey", with(func(c *Config) { c.NoSurvey = true }), TwoHolders},
		{"a passed survey that counts for ever", with(func(c *Config) { c.CountsForever = true }), TwoHolders},
		{"a survey that counts from its end", with(func(c *Config) { c.CountsFromEnd, c.Timeout = true, 2 }), TwoHolders},
		{"in use for less than a quarantine and the TTL", with(func(c *Config) { c.InUse = c.Quarantine + c.TTL - 1 }), TwoHolders},
		{"entered by one node", with(func(c *Config) { c.EnterByOne = true }), TwoHolders},
		{"sets compared by their number of groups", with(func(c *Config) { c.CompareNumbers = true }), TwoHolders},
		{"a group that the other client reaches is skipped", with(func(c *Config) { c.SkipSilent = true }), TwoHolders},
		{"a set in use for ever", with(func(c *Config) { c.Stops, c.StaysInUse, c.Late = true, true, 0 }), "the goal is out of reach"},

		// What is not promised: a node is emptied while the groups change.
		{"a restart", restarts(1, func(*Config) {}), TwoHolders},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
