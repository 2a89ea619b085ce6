package redistest_test

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/redistest"
)

// caseEnv names the case that TestCase is, in a process of its own.
const caseEnv = "REDLOCK_TEST_CASE"

var caseRuns int

// TestCase fails in one of several ways, on a steady machine or while the machine stands still.
func TestCase(outer *testing.T) {
	name := os.Getenv(caseEnv)
	if name == "" {
		outer.Skip("is for TestTimed")
	}
	t := redistest.Timed(outer)
	if caseRuns++; name != "steady" {
		standStill(100 * time.Millisecond)
	}
	switch {
	case name == "always":
		t.Error("the assumption does not hold")
	case name == "subtest" || name == "vanishes" && caseRuns == 1:
		t.Run("of a/part", func(t *redistest.T) {
			standStill(100 * time.Millisecond)
			if caseRuns == 1 {
				t.Fatal("the assumption does not hold")
			}
		})
	case caseRuns > 1:
	case name == "broken":
		redistest.Broken(t, "two holders")
	default:
		t.Fatal("the assumption does not hold")
	}
}

// examples stands in for the examples of a package, which fail as TestCase does.
type examples string

func (e examples) Run() int {
	if flag.Lookup("test.run").Value.String() != "^Example" {
		return 0 // the tests
	}
	caseRuns++
	switch {
	case e == "example steady":
		return 1
	case e == "example always":
		standStill(100 * time.Millisecond)
		return 1
	case caseRuns == 1:
		standStill(100 * time.Millisecond)
		panic("no quorum")
	}
	return 0
}

// standStill keeps all other goroutines waiting.
func standStill(long time.Duration) {
	var stop atomic.Bool
	for range 200 {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	time.Sleep(long)
	stop.Store(true)
}

// What fails while the machine stands still is run again, up to twice. What fails on a steady
// machine, and a promise that is broken on any, fails at once: these are the controls.
func TestTimed(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.TakesSeconds(t)
	for name, want := range map[string]struct {
		code, again int
	}{
		"once":     {0, 1},
		"subtest":  {0, 1},
		"vanishes": {1, 1}, // what is not found has not passed
		"always":   {1, 2},
		"broken":   {1, 0},
		"steady":   {1, 0},

		"example once":   {0, 1},
		"example always": {1, 2},
		"example steady": {1, 0},
	} {
		t.Run(name, func(t *redistest.T) {
			cmd := exec.Command(os.Args[0], "-test.v")
			if !strings.HasPrefix(name, "example") {
				cmd.Args = append(cmd.Args, "-test.run=^TestCase$")
			}
			cmd.Env = append(os.Environ(), caseEnv+"="+name)
			out, _ := cmd.CombinedOutput()
			again := strings.Count(string(out), " run again")
			if code := cmd.ProcessState.ExitCode(); code != want.code || again != want.again {
				t.Errorf("got code %d after %d more runs, want %d after %d:\n%s", code, again, want.code, want.again, out)
			}
		})
	}
}
