// Package inject builds the algorithm wrongly, one rule at a time, for tests of the checkers.
package inject

import (
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// Rules replaces some rules by wrong ones for the Lockers that are made until the test ends. The
// test must not be parallel to any other.
func Rules(t testing.TB, ways ...string) {
	t.Helper()
	t.Setenv("REDLOCK_BROKEN", "yes") // a parallel test must not call it
	sound := rules.Change
	t.Cleanup(func() { rules.Change = sound })
	for _, way := range ways {
		if wrong[way] == nil {
			t.Fatalf("there is no way to break %q", way)
		}
	}
	rules.Change = func(r *rules.Rules) {
		for _, way := range ways {
			wrong[way](r)
		}
	}
}

// wrong has rules that the checkers must find wrong.
var wrong = map[string]func(*rules.Rules){
	"reuseID": func(r *rules.Rules) { // every attempt of a Locker has the same id
		var once sync.Once
		var first string
		r.ID = func(random string) string {
			once.Do(func() { first = random })
			return first
		}
	},
	"validityFromReply": func(r *rules.Rules) { r.ValidFrom = func(_, decided clock.Instant) clock.Instant { return decided } },
	"lateExtension":     func(r *rules.Rules) { r.Over = func(bool) bool { return false } },
	"oneRound":          func(r *rules.Rules) { r.Agreed = func(bool) bool { return true } },
	"sameToken":         func(r *rules.Rules) { r.Successor = func(fence int64) int64 { return fence } },
	"keepsHold":         func(r *rules.Rules) { r.KeepsHold = true },
	"lateHandOver":      func(r *rules.Rules) { r.HandsOver = func(bool) bool { return true } },
	"votelessCount":     func(r *rules.Rules) { r.CountsVoteless = true },
	"keepsRunID":        func(r *rules.Rules) { r.Run = func(first, _ string) string { return first } },
	"ignoresSteps":      func(r *rules.Rules) { r.Heeds = func(time.Duration) bool { return false } },
	"lostIsGone":        func(r *rules.Rules) { r.Arrives = func(bool) bool { return false } },
	"fewerVotes":        func(r *rules.Rules) { r.Quorum = func(votes int) int { return votes - 1 } },
}

// Script replaces a part of the scripts until the test ends.
func Script(t testing.TB, change func(script string) string) {
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
