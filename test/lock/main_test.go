package lock_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the run if a goroutine is left when all tests are over.
//
// Source: ALGORITHM section 13, I11.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // unless -parallel is given: most tests wait
	goleak.VerifyTestMain(m)
}
