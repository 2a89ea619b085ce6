package redlock

import (
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/wire"
)

// Break replaces some rules of the algorithm by wrong ones until the test ends. The test must not
// be parallel to any other.
func Break(t testing.TB, ways ...string) {
	t.Helper()
	t.Setenv("REDLOCK_BROKEN", "yes") // a parallel test must not call it
	sound := algorithm
	t.Cleanup(func() { algorithm = sound })
	for _, way := range ways {
		change := wrong[way]
		if change == nil {
			t.Fatalf("there is no way to break %q", way)
		}
		rightly := algorithm
		algorithm = func() rules {
			r := rightly()
			change(&r)
			return r
		}
	}
}

// wrong has rules that the checkers must find wrong.
var wrong = map[string]func(*rules){
	"reuseID": func(r *rules) { // every attempt of a Locker has the same id
		id := newID()
		r.newID = func() string { return id }
	},
	"validityFromReply": func(r *rules) { r.validFrom = func(_, decided instant) instant { return decided } },
	"lateExtension":     func(r *rules) { r.isOver = func(_, _ instant) bool { return false } },
	"oneRound":          func(r *rules) { r.agreed = func(_, _ int) bool { return true } },
	"sameToken":         func(r *rules) { r.successor = func(fence int64) int64 { return fence } },
	"keepsHandle":       func(r *rules) { r.retire = func(*Lease) func() { return nil } },
	"lateHandOver":      func(r *rules) { r.handsOver = func(*grant, instant) bool { return true } },
	"votelessCount":     func(r *rules) { r.node.Counts = func(node.Reply) bool { return true } },
	"keepsRunID":        func(r *rules) { r.node.Run = func(first, _ string) string { return first } },
	"ignoresSteps":      func(r *rules) { r.node.Heeds = func(time.Duration) bool { return false } },
	"noSurvey":          func(r *rules) { r.ignores = func(error) bool { return true } },
	"fewerVotes":        func(r *rules) { r.quorum = func(n int) int { return quorum(n) - 1 } },
}

// BreakScript replaces a part of the scripts until the test ends. The nodes of internal/virtual
// have no twin of the changed script.
func BreakScript(t testing.TB, change func(script string) string) {
	t.Helper()
	redistest.Lua(t)
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

// NewID returns an id of an attempt that no Locker makes.
// LosePart tells a lease on several resources that its first part was lost.
func (m *MultiLease) LosePart() { m.lost(m.parts[0]) }

func NewID() string { return newID() }

// QueueNodeOf returns the index of the node that keeps the queue for a resource, as far as the
// Locker knows.
func (l *Locker) QueueNodeOf(resource string) int { return l.groups[0].queueNodeOf(resource) }

// Lines returns the number of resources that the Locker holds, or has callers for.
func (l *Locker) Lines() int {
	l.groups[0].waitlines.mu.Lock()
	defer l.groups[0].waitlines.mu.Unlock()
	return len(l.groups[0].waitlines.lines)
}

// Asking returns how many attempts ask the nodes, and how many wait for admission.
func (l *Locker) Asking() (asking, waiting int) {
	a := &l.groups[0].admission
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asking, len(a.waiting)
}

// GroupOf returns the number of the group that a resource belongs to.
func (l *Locker) GroupOf(resource string) int { return l.groupOf(resource).group }
