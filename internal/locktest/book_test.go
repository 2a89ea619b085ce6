package locktest

import (
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock"
)

// A lease that is still valid when the next one is granted, although its holder has called Unlock,
// is a problem.
func TestBookSeesALeaseThatOutlivesUnlock(t *testing.T) {
	for _, returned := range []bool{false, true} {
		InBubble(t, 3, func(t *testing.T, b *Bubble) {
			seen := NewBook()
			take := func(l *redlock.Locker) *redlock.Lease {
				lease, err := seen.Take("r", false, func() (*redlock.Lease, error) { return l.TryLock(t.Context(), "r") })
				if err != nil {
					t.Fatal(err)
				}
				return lease
			}
			first := take(b.WarmLocker())
			seen.mu.Lock()
			delete(seen.held, first)
			seen.left[first] = returned // of an Unlock without effect
			seen.mu.Unlock()
			take(b.Locker(redlock.WithKeyPrefix("other:"), redlock.WithoutRestartGuard()))
			problems := seen.Problems()
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasSuffix(p, " after Unlock") }) {
				t.Errorf("Unlock has returned: %v: got problems %q, want a problem of the first lease", returned, problems)
			}
		})
	}
}
