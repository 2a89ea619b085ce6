package queue

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

func some(processes, callers, block int, change func(c *Config)) Config {
	c := Config{Processes: processes, Callers: callers, Block: block}
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	inOrder := func(c *Config) { c.InOrder = true }
	noTimers := func(c *Config) { c.Barging, c.Renewals, c.Expiry = true, true, true }
	for _, test := range []struct {
		name string
		Config
	}{
		{"in order, three processes", some(3, 1, 1, inOrder)},
		{"in order, block of one", some(2, 3, 1, inOrder)},
		{"in order, block of two", some(2, 3, 2, inOrder)},
		{"in order, timers and callers that give up", some(2, 2, 2, func(c *Config) { c.InOrder, c.Timers, c.GiveUps = true, true, 2 })},
		{"no timer is needed", some(2, 2, 1, noTimers)},
		{"no timer is needed when callers give up", some(2, 2, 2, func(c *Config) { noTimers(c); c.GiveUps = 2 })},
		{"no timer is needed in three processes", some(3, 1, 1, func(c *Config) { c.Barging, c.Expiry = true, true })},
		{"lost notifications and crashes", some(2, 2, 2, func(c *Config) {
			c.Timers, c.Barging, c.Renewals, c.Expiry, c.Losses, c.Crashes, c.GiveUps = true, true, true, true, 2, 1, 1
		})},
		{"attempts without a quorum", some(2, 2, 2, func(c *Config) { c.TimeUp = true })},
		{"the gate dies", some(2, 2, 2, func(c *Config) { c.Timers, c.GateDies = true, true })},
		{"another gate", some(2, 2, 2, func(c *Config) { c.Stranger = true })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Each rule that is left out is missed, and nothing more is promised than what holds.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"a node that was busy is not asked again, nor the gate", some(2, 1, 1, func(c *Config) { c.AskOnce, c.NoRetry = true, true }), Stuck},
		{"a node that was busy is not asked again", some(2, 2, 1, func(c *Config) { c.AskOnce, c.InOrder = true, true }), Overtaken},
		{"no timer, a notification is lost", some(2, 1, 1, func(c *Config) { c.Losses, c.Expiry = 1, true }), Stuck},
		{"no timer, a holder dies", some(2, 1, 1, func(c *Config) { c.Crashes = 1 }), Stuck},
		{"a notification before the refusal is forgotten", some(2, 1, 1, func(c *Config) { c.Forget = true }), Stuck},
		{"a reservation is left by who had one", some(2, 1, 1, func(c *Config) { c.Barging, c.KeepReservation = true, true }), Litter},
		{"an owner is told once", some(2, 2, 1, func(c *Config) { c.Barging, c.Renewals, c.NotifyOnce = true, true, true }), Stuck},
		{"a release wakes at its own gate only", some(2, 1, 1, func(c *Config) { c.Stranger, c.OwnGateOnly = true, true }), Stuck},
		{"nothing without the gate", some(2, 1, 1, func(c *Config) { c.Timers, c.GateDies, c.GateOrNothing = true, true, true }), Stuck},
		{"no veto", some(2, 1, 1, func(c *Config) { c.NoVeto, c.InOrder = true, true }), Overtaken},
		{"in order: barging", some(2, 1, 1, func(c *Config) { c.Barging, c.InOrder = true, true }), Jumped},
		{"in order: a reservation that ends early", some(3, 1, 1, func(c *Config) { c.Expiry, c.InOrder = true, true }), Overtaken},
		{"in order: an attempt without a quorum", some(2, 1, 1, func(c *Config) { c.TimeUp, c.InOrder = true, true }), Overtaken},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
