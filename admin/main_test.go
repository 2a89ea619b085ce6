package admin_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/redistest"
)

// TestMain fails the run if a goroutine is left when all tests are over.
//
// Source: ALGORITHM section 13, I11.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // unless -parallel is given: most tests wait
	goleak.VerifyTestMain(redistest.WithExamples(m))
}
