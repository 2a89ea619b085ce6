package permitqueue

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func semaphore(callers int, change func(*Config), wants ...int) Config {
	c := Config{Wants: wants, Of: 2, Callers: callers}
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	inOrder := func(c *Config) { c.InOrder = true }
	for _, test := range []struct {
		name string
		Config
	}{
		{"in order: three that want one", semaphore(3, inOrder, 1, 1, 1)},
		{"in order: one wants both", semaphore(3, inOrder, 2, 1, 1)},
		{"in order: two want both", semaphore(3, inOrder, 2, 1, 2)},
		{"no timer is needed: one is kept", semaphore(3, func(c *Config) { c.Keepers = 1 }, 1, 1, 1)},
		{"the other nodes refuse", semaphore(2, func(c *Config) { c.Refusals = 2 }, 2, 1, 1)},
		{"turns that end early", semaphore(2, func(c *Config) { c.Expiry, c.Timers = true, true }, 2, 1, 1)},
		{"callers give up", semaphore(2, func(c *Config) { c.GiveUps = 2 }, 2, 1, 1)},
		{"callers give up, in order", semaphore(2, func(c *Config) { c.GiveUps, c.InOrder = 1, true }, 2, 1, 1)},
		{"lost calls, crashes, early ends", semaphore(1, func(c *Config) {
			c.Timers, c.Losses, c.Crashes, c.GiveUps, c.Refusals, c.Expiry = true, 1, 1, 1, 1, true
		}, 2, 1, 1)},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// With a rule left out, or with more faults than it can survive, the search finds what goes wrong.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"permits past the queue", semaphore(2, func(c *Config) { c.InOrder, c.PassQueue = true, true }, 2, 1, 1), Overtaken},
		{"a release calls only when all is free", semaphore(1, func(c *Config) { c.CallIfAllFree, c.Keepers = true, 1 }, 1, 1, 1), Stuck},
		{"a grant calls no process", semaphore(1, func(c *Config) { c.NoChain, c.Keepers = true, 1 }, 1, 2, 1), Stuck},
		{"a rest calls no process", semaphore(1, func(c *Config) { c.NoRestCall = true }, 2, 1), Stuck},
		{"what the other nodes refused is kept", semaphore(1, func(c *Config) { c.KeepRefused, c.Refusals = true, 1 }, 1, 1), Lost},
		{"no timer, a call is lost", semaphore(1, func(c *Config) { c.Losses = 1 }, 2, 1), Stuck},
		{"no timer, a holder dies", semaphore(1, func(c *Config) { c.Crashes = 1 }, 2, 1), Stuck},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
