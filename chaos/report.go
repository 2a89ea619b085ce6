package chaos

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/d0720281/redlock/chaos/history"
)

// Report writes what became of a run: the violations, how to repeat it, the figures, and each fault.
func Report(file, title, repeat string, h *history.History, found []history.Violation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d violations; repeat with: %s\n\n", title, len(found), repeat)
	for _, v := range found {
		fmt.Fprintf(&b, "%v\n", v)
	}
	fmt.Fprintf(&b, "\n%v\n\n", Measure(h))
	for _, f := range h.Faults {
		ms := func(at time.Duration) time.Duration { return at.Round(time.Millisecond) }
		fmt.Fprintf(&b, "%v to %v, no vote until %v: %s, on %s\n", ms(f.At), ms(f.Healed), ms(f.Voteless), f.Name, f.On)
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}
