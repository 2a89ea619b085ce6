// Package searchtest has the helpers of the models' tests.
package searchtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/chaos/model/search"
	"github.com/d0720281/redlock/internal/redistest"
)

const (
	few      = 10_000     // states of a model, with -short
	some     = 50_000     // by default
	many     = 300_000    // with REDLOCK_LONG=yes, of a model in which nothing may break
	controls = 1_000_000  // with REDLOCK_LONG=yes, of a model that is wrong: most faults are found before
	most     = 80_000_000 // with REDLOCK_MODELS=full: all there are, in a table of up to 3 GB
)

// run searches a model up to a limit that depends on REDLOCK_LONG, the whole of it with
// REDLOCK_MODELS=full; whole reports whether it did.
func run[S comparable](t *testing.T, m search.Model[S], long int) (r search.Result, whole bool) {
	t.Helper()
	limit := redistest.Rounds(some, long)
	if testing.Short() {
		limit = few
	}
	if os.Getenv("REDLOCK_MODELS") == "full" {
		limit = most
	}
	began := time.Now()
	r = search.Run(m, limit)
	t.Logf("%v (%v)", r, time.Since(began).Round(time.Millisecond))
	if r.Full && limit == most {
		t.Errorf("got no end after %d states, want all", limit)
	}
	return r, !r.Full
}

// Sound searches a model in which nothing may break.
func Sound[S comparable](t *testing.T, m search.Model[S]) {
	t.Helper()
	if r, _ := run(t, m, many); r.Broken != "" {
		t.Errorf("got a trace to %q, want none", r.Broken)
	}
}

// Deep is a suffix of the fault that Breaks wants. The fault lies beyond the states that are searched
// with REDLOCK_LONG=yes: only the whole search has to find it.
const Deep = " (deep)"

// Breaks searches a model that is wrong on purpose, or that has more faults than it can
// survive: the search must find the fault, with REDLOCK_LONG=yes unless the fault is deep.
func Breaks[S comparable](t *testing.T, m search.Model[S], want string) {
	t.Helper()
	want, deep := strings.CutSuffix(want, Deep)
	switch r, whole := run(t, m, controls); {
	case r.Broken == want:
	case r.Broken != "" || whole || redistest.Long() && !deep:
		t.Errorf("got %q, want %q", r.Broken, want)
	case redistest.Long():
		t.Skip("needs the whole search: REDLOCK_MODELS=full")
	}
}
