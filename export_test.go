package redlock

import "testing"

// Break builds the algorithm wrongly until the test ends, see sabotage. The test must not
// be parallel to any other.
func Break(t testing.TB, ways ...string) {
	t.Helper()
	t.Setenv("REDLOCK_BROKEN", "yes") // which a parallel test must not do
	t.Cleanup(func() { broken = sabotage{} })
	for _, way := range ways {
		switch way {
		case "reuseID":
			broken.reuseID = true
		case "validityFromReply":
			broken.validityFromReply = true
		case "lateExtension":
			broken.lateExtension = true
		case "votelessCount":
			broken.votelessCount = true
		case "oneRound":
			broken.oneRound = true
		case "keepsRunID":
			broken.keepsRunID = true
		case "ignoresSteps":
			broken.ignoresSteps = true
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

// BreakScript replaces a part of the script until the test ends. The nodes of
// internal/virtual have no twin of that.
func BreakScript(t testing.TB, change func(script string) string) {
	t.Helper()
	t.Setenv("REDLOCK_BROKEN", "yes")
	whole, byHash, bySource := script, evalsha, eval
	t.Cleanup(func() { script, evalsha, eval = whole, byHash, bySource })
	changed := change(whole)
	if changed == whole {
		t.Fatal("the script is as it was")
	}
	script = "-- broken on purpose\n" + changed
	evalsha, eval = callsOf(script)
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
