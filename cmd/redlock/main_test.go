package main

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/redistest"
)

// The test binary is also redlock itself, and the command that redlock runs in tests.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "10") // unless -parallel is given: most tests wait
	logging.Disable()                   // as main does
	testscript.Main(leakChecked{redistest.Again(m)}, map[string]func(){"redlock": observedMain, "beat": beat})
}

// leakChecked runs the tests and then looks for leaked goroutines.
type leakChecked struct{ m interface{ Run() int } }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
