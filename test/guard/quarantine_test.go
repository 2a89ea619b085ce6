package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// The warning about a quarantine names redlock init only if no master has a vote, as all have said, and in a
// process that had no lease: with votes for all masters at once, a lease from before the quarantine would have company.
func TestHintOfAQuarantine(t *testing.T) {
	for _, test := range []struct {
		name  string
		empty []int // the nodes that lose their data
		leads bool  // the Locker had a lease before
		want  bool  // redlock init is named
	}{
		{"new masters", []int{0, 1, 2}, false, true},
		{"one master has a vote", []int{1, 2}, false, false},
		{"all masters lose their data under a lease", []int{0, 1, 2}, true, false},
		{"two masters lose their data under a lease", []int{0, 1}, true, false},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			logger, text := locktest.LogText()
			l := b.Locker(redlock.WithLogger(logger))
			if test.leads {
				b.Lock(l, "r")
			}
			b.Each((*virtual.Node).RestartEmpty, test.empty...)
			if test.want { // all masters have answered before one call waits for them
				_, _ = l.TryLock(t.Context(), "other")
				time.Sleep(time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			lease, err := l.Lock(ctx, "other")
			locktest.Must(t, err)
			b.Unlock(lease)
			var hint string
			for line := range strings.Lines(text()) {
				if strings.Contains(line, "masters in quarantine") {
					_, hint, _ = strings.Cut(line, "hint=")
					break
				}
			}
			if !strings.HasPrefix(strings.Trim(hint, `"`), "wait ") || strings.Contains(hint, "redlock init") != test.want {
				t.Errorf("got the hint %q, want how long to wait, and redlock init named: %v; the log is\n%s", hint, test.want, text())
			}
		})
	}
}
