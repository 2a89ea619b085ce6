package redlock

import (
	"testing"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Break builds the algorithm wrongly until the test ends, see sabotage. The test must not
// be parallel to any other.
func Break(t testing.TB, ways ...string) {
	t.Helper()
	t.Setenv("REDLOCK_BROKEN", "yes") // which a parallel test must not do
	t.Cleanup(func() {
		broken = sabotage{}
		node.Sabotage.VotelessCount, node.Sabotage.KeepsRunID, node.Sabotage.IgnoresSteps = false, false, false
	})
	for _, way := range ways {
		switch way {
		case "reuseID":
			broken.reuseID = true
		case "validityFromReply":
			broken.validityFromReply = true
		case "lateExtension":
			broken.lateExtension = true
		case "votelessCount":
			node.Sabotage.VotelessCount = true
		case "oneRound":
			broken.oneRound = true
		case "keepsRunID":
			node.Sabotage.KeepsRunID = true
		case "ignoresSteps":
			node.Sabotage.IgnoresSteps = true
		case "sameToken":
			broken.sameToken = true
		case "keepsHandle":
			broken.keepsHandle = true
		case "lateHandOver":
			broken.lateHandOver = true
		case "fewerVotes":
			broken.fewerVotes = 1
		default:
			t.Fatalf("there is no way to break %q", way)
		}
	}
}

// BreakScript replaces a part of the scripts until the test ends. The nodes of
// internal/virtual have no twin of that.
func BreakScript(t testing.TB, change func(script string) string) {
	t.Helper()
	t.Setenv("REDLOCK_BROKEN", "yes")
	changes := 0
	for _, s := range []*wire.Script{&wire.Requests, &wire.Marker} {
		whole := *s
		t.Cleanup(func() { *s = whole })
		if changed := change(whole.Source); changed != whole.Source {
			*s = wire.NewScript("-- broken on purpose\n" + changed)
			changes++
		}
	}
	if changes == 0 {
		t.Fatal("the scripts are as they were")
	}
}

// GateOf is the index of the node that keeps the queue for a resource, as the Locker
// sees it now.
func (l *Locker) GateOf(resource string) int { return l.pool.gateOf(resource) }

// Lines is how many resources the Locker has, or has callers for.
func (l *Locker) Lines() int {
	l.pool.turns.mu.Lock()
	defer l.pool.turns.mu.Unlock()
	return len(l.pool.turns.lines)
}

// Asking is how many attempts ask the nodes, and how many wait for their turn to.
func (l *Locker) Asking() (asking, waiting int) {
	a := &l.pool.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asking, len(a.waiting)
}
