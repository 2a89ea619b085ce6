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
	// The releases of a lease may reach the queue node before, during and after the attempt of another
	// and its rest, while the holder lacks the queue node's key.
	anyOrder := func(c *Config) { c.Barging, c.Elsewhere = true, true }
	for _, test := range []struct {
		name string
		Config
	}{
		{"release, acquire and rest in any order", some(2, 1, 1, anyOrder)},
		{"release, acquire and rest in any order, twice", some(2, 2, 1, anyOrder)},
		{"release, acquire and rest in any order, with hand-over and renewals", some(2, 2, 2, func(c *Config) { anyOrder(c); c.Renewals, c.Expiry = true, true })},
		{"release, acquire and rest in any order, callers that give up", some(2, 2, 2, func(c *Config) { anyOrder(c); c.Pauses, c.GiveUps = true, 2 })},
		{"release, acquire and rest in any order, in three processes", some(3, 1, 1, anyOrder)},
		{"what is late, with timers", some(2, 1, 1, func(c *Config) { anyOrder(c); c.Late, c.Timers = true, true })},
		{"in order, three processes", some(3, 1, 1, inOrder)},
		{"in order, block of one", some(2, 3, 1, inOrder)},
		{"in order, block of two", some(2, 3, 2, inOrder)},
		{"in order, timers and callers that give up", some(2, 2, 2, func(c *Config) { c.InOrder, c.Timers, c.GiveUps = true, true, 2 })},
		{"no timer is needed", some(2, 2, 1, noTimers)},
		{"no timer is needed when callers give up", some(2, 2, 2, func(c *Config) { noTimers(c); c.GiveUps = 2 })},
		{"no timer is needed in three processes", some(3, 1, 1, func(c *Config) { c.Barging, c.Expiry = true, true })},
		{"lost calls and crashes", some(2, 2, 2, func(c *Config) {
			c.Timers, c.Barging, c.Renewals, c.Expiry, c.Losses, c.Crashes, c.GiveUps = true, true, true, true, 2, 1, 1
		})},
		{"attempts without a quorum", some(2, 2, 2, func(c *Config) { c.TimeUp = true })},
		{"the queue node dies", some(2, 2, 2, func(c *Config) { c.Timers, c.QueueNodeDies = true, true })},
		{"readers: in order, a writer and two readers", some(3, 1, 1, func(c *Config) { inOrder(c); c.Readers = 2 })},
		{"readers: in order, a reader that comes again and a writer", some(2, 3, 1, func(c *Config) { inOrder(c); c.Readers = 1 })},
		{"readers: no timer is needed", some(3, 1, 1, func(c *Config) { c.Readers, c.Barging, c.Expiry = 2, true, true })},
		{"readers: no timer is needed, two writers", some(3, 1, 1, func(c *Config) { c.Readers, c.Barging, c.Expiry = 1, true, true })},
		{"readers: release, acquire and rest in any order", some(2, 2, 1, func(c *Config) { anyOrder(c); c.Readers = 1 })},
		{"readers: release, acquire and rest in any order, in three processes", some(3, 1, 1, func(c *Config) { anyOrder(c); c.Readers = 1 })},
		{"readers: release, acquire and rest in any order, callers that give up", some(2, 2, 1, func(c *Config) { anyOrder(c); c.Readers, c.Pauses, c.GiveUps = 1, true, 2 })},
		{"readers: those that join wait for the queue node", some(3, 1, 1, func(c *Config) { c.Readers, c.JoinsInOrder, c.Barging = 2, true, true })},
		{"readers: callers that give up", some(3, 1, 1, func(c *Config) { c.Readers, c.GiveUps = 2, 1 })},
		{"readers: lost calls and crashes", some(2, 1, 1, func(c *Config) {
			c.Readers, c.Timers, c.Barging, c.Renewals, c.Expiry, c.Losses, c.Crashes = 1, true, true, true, true, 1, 1
		})},
		{"no process can be called", some(2, 2, 1, func(c *Config) { c.Deaf, c.Expiry = true, true })},
		{"no process can be called, in three processes", some(3, 1, 1, func(c *Config) { c.Deaf = true })},
		{"in order, a holder dies", some(3, 1, 1, func(c *Config) { c.InOrder, c.Crashes, c.Timers = true, 1, true })},
		{"readers: a writer becomes a reader", some(3, 1, 1, func(c *Config) { c.Readers, c.Downgrades, c.WaitsForReaders = 2, true, true })},
		{"readers: the queue node dies", some(2, 2, 1, func(c *Config) { c.Readers, c.Timers, c.QueueNodeDies = 1, true, true })},
		{"another queue node", some(2, 2, 2, func(c *Config) { c.Stranger = true })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Without any one of the rules the search finds a fault, and so it does for each property that
// is not promised.
func TestControls(t *testing.T) {
	anyOrder := func(c *Config) { c.Barging, c.Elsewhere = true, true }
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"a node that was busy is not asked again, nor the queue node", some(2, 1, 1, func(c *Config) { c.AskOnce, c.NoRetry = true, true }), Stuck},
		{"a node that was busy is not asked again", some(2, 2, 1, func(c *Config) { c.AskOnce, c.InOrder = true, true }), Overtaken},
		{"no timer, a call is lost", some(2, 1, 1, func(c *Config) { c.Losses, c.Expiry = 1, true }), Stuck},
		{"no timer, a holder dies", some(2, 1, 1, func(c *Config) { c.Crashes = 1 }), Stuck},
		{"a process that leaves keeps its turn", some(2, 2, 1, func(c *Config) { c.Barging, c.GiveUps, c.KeepTurn = true, 1, true }), Stuck},
		{"the process with the turn is called once", some(2, 2, 1, func(c *Config) { c.Barging, c.Renewals, c.CallOnce = true, true, true }), Stuck},
		{"a release calls at its own queue node only", some(2, 1, 1, func(c *Config) { c.Stranger, c.OwnQueueNodeOnly = true, true }), Stuck},
		{"nothing without the queue node", some(2, 1, 1, func(c *Config) { c.Timers, c.QueueNodeDies, c.QueueNodeOrNothing = true, true, true }), Stuck},
		{"the head leaves the queue when it gets the turn", some(3, 1, 1, func(c *Config) { c.Readers, c.PopHead = 1, true }), Stuck},
		{"in order: an acquire of a key that has ended overtakes the queue", some(3, 1, 1, func(c *Config) { c.InOrder, c.Crashes, c.Timers, c.DeafAcquire = true, 1, true, true }), Overtaken},
		{"readers: a downgrade calls no process", some(2, 1, 1, func(c *Config) { c.Readers, c.Downgrades, c.MuteDowngrade, c.WaitsForReaders = 1, true, true, true }), Stuck},
		{"no process is called, and none asks again", some(2, 2, 1, func(c *Config) { c.Deaf, c.NoPoll = true, true }), Stuck},
		{"a rest calls no process", some(2, 1, 1, func(c *Config) { c.MuteRest = true }), Stuck},
		{"a process that may have met a holder elsewhere leaves the queue", some(2, 1, 1, func(c *Config) { anyOrder(c); c.LeaveElsewhere = true }), Stuck},
		{"a release that finds the key gone leaves no mark", some(2, 1, 1, func(c *Config) { anyOrder(c); c.NoMark = true }), Stuck},
		{"a rest does not call though a release was missed", some(2, 1, 1, func(c *Config) { anyOrder(c); c.DeafRest = true }), Stuck},
		{"the mark is a turn", some(2, 1, 1, func(c *Config) { anyOrder(c); c.MarkIsTurn = true }), Stuck},
		{"no timer, a reader that met a holder elsewhere comes when the readers have the turn", some(3, 1, 1, func(c *Config) { anyOrder(c); c.Readers = 2 }), Stuck + searchtest.Deep},
		{"no timer, a release comes to the other nodes after two attempts", some(2, 1, 1, func(c *Config) { anyOrder(c); c.Late = true }), Stuck},
		{"no veto", some(2, 1, 1, func(c *Config) { c.NoVeto, c.InOrder = true, true }), Jumped},
		{"in order: barging", some(2, 1, 1, func(c *Config) { c.Barging, c.InOrder = true, true }), Jumped},
		{"in order: a turn that ends early", some(3, 1, 1, func(c *Config) { c.Expiry, c.InOrder = true, true }), Overtaken},
		{"readers overtake the queue", some(3, 1, 1, func(c *Config) { c.Readers, c.InOrder, c.ReadersPass = 2, true, true }), Overtaken},
		{"a reader joins others without the queue node", some(3, 1, 1, func(c *Config) { c.Readers, c.JoinsInOrder, c.Barging, c.JoinBlindly = 2, true, true, true }), Jumped},
		{"the turn of the readers goes on when all of them have come", some(3, 1, 1, func(c *Config) { c.Readers, c.KeepReadersTurn = 2, true }), Litter + searchtest.Deep},
		{"a release that finds a reader leaves no mark", some(2, 2, 1, func(c *Config) { anyOrder(c); c.Readers, c.NoMarkForReaders = 1, true }), Stuck},
		{"in order: an attempt without a quorum", some(2, 1, 1, func(c *Config) { c.TimeUp, c.InOrder = true, true }), Overtaken},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
